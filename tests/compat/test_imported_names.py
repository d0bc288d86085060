"""Tests of names that public packages import; each of them is there, and works."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = {
    # NeMo-Run 0.11.1
    "torchx.cli.cmd_log": "_prefix_line find_role_replicas validate",
    "torchx.cli.colors": "ENDC GREEN",
    "torchx.components.dist": "_TORCH_DEBUG_FLAGS _args_join _noquote get_role_name parse_nnodes",
    "torchx.runner.api": "Runner Stream get_runner",
    "torchx.runner.events": "log_event record SourceType TorchxEvent",
    "torchx.runner.events.api": "SourceType TorchxEvent",
    "torchx.schedulers": "Scheduler SchedulerFactory get_scheduler_factories get_default_scheduler_name",
    "torchx.schedulers.api": "AppDryRunInfo DescribeAppResponse ListAppResponse Scheduler Stream filter_regex"
    " split_lines split_lines_iterator",
    "torchx.schedulers.docker_scheduler": "DockerOpts DockerScheduler _to_str has_docker",
    "torchx.schedulers.ids": "make_unique random_id random_uint64",
    "torchx.schedulers.local_scheduler": "AppId COMBINED_LOG CWDImageProvider ImageProvider LocalOpts "
    "LocalScheduler LogIterator PopenRequest STDERR_LOG STDOUT_LOG _LocalAppDef",
    "torchx.schedulers.slurm_scheduler": "SLURM_JOB_DIRS SLURM_STATES SlurmOpts SlurmScheduler",
    "torchx.specs.api": "AppDef AppState ReplicaState ReplicaStatus RoleStatus is_started is_terminal",
    "torchx.specs.builders": "make_app_handle materialize_appdef",
    "torchx.specs.finder": "ComponentsFinder CustomComponentsFinder ModuleComponentsFinder get_components",
    "torchx.util.types": "none_throws to_dict",
    # Ax 1.3.1
    "torchx.runtime.tracking": "FsspecResultTracker ResultTracker",
    "torchx.specs": "AppDef AppState AppStatus CfgVal",
    # component files and programs
    "torchx": "IMAGE",
    "torchx.cli.main": "main",
    "torchx.deprecations": "deprecated deprecated_module",
}


@pytest.mark.parametrize("module", NAMES)
def test_the_names_exist(module: str) -> None:
    loaded = importlib.import_module(module)
    assert not [name for name in NAMES[module].split() if not hasattr(loaded, name)]


def test_a_module_of_docker_works_as_an_attribute() -> None:
    """As in torchmonarch 0.7.0."""
    from torchx.schedulers import docker_scheduler, kubernetes_scheduler, local_scheduler, slurm_scheduler

    for module in (docker_scheduler, kubernetes_scheduler, local_scheduler, slurm_scheduler):
        assert callable(module.create_scheduler)


def test_the_state_of_each_slurm_job() -> None:
    from torchx.schedulers.slurm.parse import ENDED
    from torchx.schedulers.slurm_scheduler import SLURM_STATES

    assert SLURM_STATES.keys() >= ENDED
    assert SLURM_STATES["TIMEOUT"].name == "FAILED"
    assert SLURM_STATES["SUSPENDED"].name == "PENDING"


def test_ids_have_the_documented_parameters() -> None:
    from torchx.schedulers.ids import make_unique, random_id, random_uint64

    assert len(random_id(5)) == 5
    assert random_id(0) == ""
    assert 11 <= len(random_id()) <= 14
    assert make_unique("a", 4).startswith("a-")
    assert len(make_unique("a", 4)) == 6
    assert 0 <= random_uint64() < 1 << 64


def test_the_results_of_trials(tmp_path: Path) -> None:
    from torchx.runtime.tracking import FsspecResultTracker

    tracker = FsspecResultTracker(str(tmp_path))
    tracker[7] = {"booth_eval": 0.0}
    assert tracker[7] == {"booth_eval": 0.0}
    assert json.loads((tmp_path / "7").read_text()) == {"booth_eval": 0.0}


def test_warnings_about_former_names() -> None:
    from torchx.deprecations import deprecated, deprecated_module

    @deprecated(replacement="new")
    def old() -> int:
        return 3

    with pytest.warns(UserWarning, match="old is deprecated; use new") as caught:
        assert old() == 3
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="the module a.b has moved to a.c"):
        deprecated_module("a.b", "a.c")


def test_the_program_as_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    from torchx.cli.main import main

    main(["runopts", "local_cwd"])
    assert "log_dir" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["status", "nowhere://a/b"])
    assert ended.value.code == 2


def test_the_package_is_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "torchx", "--version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "torchx" in done.stdout


def test_functions_for_logs() -> None:
    from torchx.cli.cmd_log import _prefix_line, find_role_replicas, validate
    from torchx.specs import AppDef, Role

    app = AppDef("a", [Role("r", "i", num_replicas=2), Role("s", "i")])
    assert find_role_replicas(app, None) == [("r", 0), ("r", 1), ("s", 0)]
    assert find_role_replicas(app, "s") == [("s", 0)]
    assert _prefix_line("s/0 ", "1 %\r2 %\n") == "s/0 1 %\rs/0 2 %\n"
    validate("local_cwd://a/b/r/0,1")
    with pytest.raises(SystemExit, match="error"):
        validate("x")


def test_colours_only_on_a_terminal() -> None:
    from torchx.cli.colors import GREEN

    assert GREEN == ""


def test_the_events_of_a_call_can_be_changed() -> None:
    from torchx.runner.events import SourceType, TorchxEvent, log_event

    with log_event("run", "local_cwd") as call:
        call._torchx_event.app_id = "a"
    assert call.event.app_id == "a"
    event = TorchxEvent("s", "x", "run", source=SourceType.EXTERNAL)
    assert TorchxEvent.deserialize(event.serialize()) == event


def test_a_state_that_is_a_number_proves_nothing() -> None:
    """NeMo-Run 0.11.1 passes the exit code of a container as its state."""
    from torchx.specs import AppState, ReplicaStatus, RoleStatus
    from torchx.specs.status import proven

    replica = ReplicaStatus(id=0, state=0, role="r", hostname="h")  # type: ignore[arg-type]
    assert replica.state is AppState.UNKNOWN
    assert proven(AppState.SUCCEEDED, "", [RoleStatus("r", [replica])]) == (AppState.SUCCEEDED, "")


def test_importing_warns_of_nothing() -> None:
    code = "import importlib\n" + "\n".join(f"importlib.import_module({name!r})" for name in NAMES)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_finders_of_components(tmp_path: Path) -> None:
    from torchx import components
    from torchx.specs.finder import CustomComponentsFinder, ModuleComponentsFinder

    file = tmp_path / "mine.py"
    file.write_text(
        "from torchx.specs import AppDef\n\ndef make(x: int = 1) -> AppDef:\n    return AppDef('a', [])\n"
    )
    assert [each.fn_name for each in CustomComponentsFinder(str(file), "make").find()] == ["make"]
    assert "utils.echo" in [each.name for each in ModuleComponentsFinder(components).find(None)]
    assert "my.echo" in [
        each.name for each in ModuleComponentsFinder("torchx.components.utils", "my").find(None)
    ]


def test_the_memory_of_named_resources_is_the_published_one() -> None:
    from torchx.specs import named_resources

    published = {
        "aws_c5.18xlarge": 139586,
        "aws_g5.xlarge": 15728,
        "aws_p3.2xlarge": 59963,
        "aws_t3.medium": 3932,
    }
    assert {name: named_resources[name].memMB for name in published} == published
    for name in published:
        assert named_resources[name].tags["torchx/named_resources.name"] == name
