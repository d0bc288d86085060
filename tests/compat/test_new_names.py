"""Tests of names that recent versions of TorchX have, and of its behaviour with plugins."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from project.sources import ROOT

from torchx.cli.cmd_base import AppHandleSubCommand
from torchx.discovery.errors import ComponentError
from torchx.discovery.find.finder import find_component
from torchx.errors import UsageError
from torchx.runner import Runner
from torchx.schedulers import (
    docker_scheduler,
    get_scheduler_factories,
    kubernetes_scheduler,
    local_scheduler,
    slurm_scheduler,
)
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs import AppDef, AppDryRunInfo, AppState, CfgVal, Resource, Role, Workspace
from torchx.specs.api import ReplicaStatus, RoleStatus
from torchx.specs.capabilities import CapabilityKey
from torchx.specs.handles import UnknownAppException
from torchx.workspace import MultiWorkspaceMixin, WorkspaceMixin, pin_workspace_images
from torchx.workspace.dir_workspace import DirWorkspaceMixin, TmpDirWorkspaceMixin
from torchx_cli.main import main

APP = AppDef(
    "a", [Role("r", "image", entrypoint="x", args=["y"], resource=Resource(1, 0, 1))], {"team": "ml"}
)


class Lab(Scheduler["None"]):
    """A plugin's scheduler that does not support workspaces, and reports no more than a state."""

    state: AppState | None = AppState.RUNNING

    def __init__(self, session_name: str, **params: Any) -> None:
        super().__init__("lab", session_name)
        self.cancelled: list[str] = []

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[None]:
        return AppDryRunInfo(None, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[None]) -> str:
        return "id"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return None if self.state is None else DescribeAppResponse(app_id=app_id, state=self.state)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        return []

    def _cancel_existing(self, app_id: str) -> None:
        self.cancelled.append(app_id)


@pytest.fixture
def lab() -> Lab:
    return Lab("s")


@pytest.fixture
def runner(lab: Lab) -> Runner:
    return Runner("s", {"lab": lambda session, **_: lab})


def test_an_application_has_its_roles_by_name() -> None:
    assert APP["r"] is APP.get_role("r") is APP.roles[0]
    assert ("r" in APP, "no" in APP, 3 in APP) == (True, False, False)
    with pytest.raises(KeyError):
        APP["no"]
    with pytest.raises(KeyError) as raised:
        APP.get_role("no")
    assert isinstance(raised.value, UsageError)
    assert str(raised.value).startswith("application `a` has no role `no`")
    with pytest.raises(TypeError):
        iter(APP)  # type: ignore[call-overload]


def test_an_unsupported_workspace_is_a_warning(runner: Runner, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="lab does not support workspaces"):
        handle = runner.run(APP, "lab", workspace=str(tmp_path))
    assert handle == "lab://s/id"
    own = AppDef("a", [Role("r", "i", entrypoint="x", workspace=Workspace({str(tmp_path): ""}))])
    with pytest.raises(UsageError, match="does not accept workspaces"):
        runner.run(own, "lab")


def test_the_flag_for_a_workspace_is_an_error(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "torchx.schedulers.get_scheduler_factories", lambda: {"lab": lambda session, **_: lab}
    )
    assert main(["run", "-s", "lab", "--workspace", str(tmp_path), "utils.echo"]) == 2
    assert "lab does not support workspaces (from --workspace)" in capsys.readouterr().err


@pytest.mark.parametrize("state", [AppState.RUNNING, None])
def test_a_runner_describes_its_own_application(runner: Runner, lab: Lab, state: AppState | None) -> None:
    handle = runner.run(APP, "lab")
    lab.state = state
    described = runner.describe(handle)
    assert described is not None
    assert (described.name, described.metadata) == ("a", {"team": "ml"})
    assert described["r"].args == ["y"]
    described.roles.clear()
    assert "r" in (runner.describe(handle) or {})
    runner.delete(handle)
    assert (runner.describe(handle) is None) == (state is None)


@pytest.mark.parametrize(
    ("state", "calls"),
    [(AppState.RUNNING, ["id"]), (AppState.UNKNOWN, ["id"]), (AppState.FAILED, []), (None, [])],
)
def test_an_ended_application_is_not_cancelled(
    runner: Runner, lab: Lab, state: AppState | None, calls: list[str]
) -> None:
    lab.state = state
    runner.cancel("lab://s/id")
    assert lab.cancelled == calls


def test_schedulers_of_plugins_alone() -> None:
    assert get_scheduler_factories(skip_defaults=True) == {}
    assert "slurm" in get_scheduler_factories()


def test_the_status_of_a_role_as_data() -> None:
    data = RoleStatus("r", [ReplicaStatus(0, AppState.FAILED, "r", "h")]).to_json()
    assert (data["role"], data["replicas"][0]["state"]) == ("r", "FAILED")


def test_a_bool_is_not_a_number() -> None:
    count = CapabilityKey("n", "c", int)
    with pytest.raises(TypeError, match="must be int, got True"):
        count.get(Resource(1, 0, 1, capabilities={"n.c": True}))
    CapabilityKey("n", "c", bool).set(Resource(1, 0, 1), True)


def test_the_testing_package_is_imported_without_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; sys.meta_path.insert(0, type('No', (), {'find_spec': "
    code += "staticmethod(lambda name, *_: None)})); import importlib.util as u; f = u.find_spec; "
    code += "u.find_spec = lambda name, *a: None if name == 'pytest' else f(name, *a); import torchx.testing"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("module", "names", "given"),
    [
        (docker_scheduler, ["Opts", "DockerOpts"], {"privileged": True}),
        (kubernetes_scheduler, ["Opts", "KubernetesOpts"], {"queue": "q", "reserved_memmb": 5}),
        (local_scheduler, ["Opts", "LocalOpts"], {"log_dir": "/logs"}),
        (slurm_scheduler, ["Opts", "SlurmOpts"], {"mail_user": "me", "partition": "gpu"}),
    ],
)
def test_run_options_as_a_class(module: Any, names: list[str], given: dict[str, Any]) -> None:
    for name in names:
        opts = getattr(module, name)(**given)
        assert {key: getattr(opts, key) for key in given} == given
        info = module.create_scheduler("s").submit_dryrun(APP, opts)
        assert {key: info.cfg[key.replace("mail_", "mail-")] for key in given} == given


class Handles(AppHandleSubCommand):
    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        if runner.status(args.app_handle) is None:
            self.exit_missing_app(args.app_handle)


def test_a_command_for_one_application() -> None:
    parser = argparse.ArgumentParser()
    Handles().add_arguments(parser)
    args = parser.parse_args(["local_cwd://s/none"])
    with pytest.raises(UnknownAppException):
        Handles().run(args)


class Ways(MultiWorkspaceMixin):
    def __init__(self) -> None:
        self.builders = {"dir": DirWorkspaceMixin(), "tmpdir": TmpDirWorkspaceMixin()}

    def workspace_builders(self) -> Mapping[str, WorkspaceMixin[Any]]:
        return self.builders


def test_a_scheduler_offers_several_workspaces(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("1")
    ways = Ways()
    assert ways.workspace_builder({})[0] == "dir"
    assert {"workspace_type", "job_dir"} <= {name for name, _ in ways.workspace_opts()}
    role = Role("r", "i", workspace=Workspace({str(tmp_path / "code"): ""}))
    ways.build_workspaces([role], {"job_dir": str(tmp_path / "job")})
    assert (tmp_path / "job" / "a.py").exists()
    ways.caching_build_workspace_and_update_role(role, {"workspace_type": "tmpdir"}, {})
    assert Path(role.image, "a.py").exists()
    ways.push_images(ways.dryrun_push_images(APP, {}))
    with pytest.raises(UsageError, match="expected one of dir, tmpdir"):
        ways.workspace_builder({"workspace_type": "no"})


def test_built_images_are_pinned() -> None:
    app = AppDef("a", [Role("r", "i", workspace=Workspace({"x": ""})), Role("s", "j")])
    pin_workspace_images(app, AppDef("a", [Role("r", "built"), Role("s", "j")]))
    assert [(role.image, role.workspace) for role in app.roles] == [("built", None), ("j", None)]


COMPONENT = "import torchx.specs as specs\ndef go() -> specs.AppDef:\n    return specs.AppDef('go')\n"


def test_a_file_of_a_broken_package_is_loaded_alone(tmp_path: Path) -> None:
    package = tmp_path / "broken_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('heavy')")
    (package / "c.py").write_text(COMPONENT)
    (package / "relative.py").write_text(f"from . import c\n{COMPONENT}")
    assert find_component(f"{package}/c.py:go").fn_name == "go"
    with pytest.raises(ComponentError, match="heavy"):
        find_component(f"{package}/relative.py:go")
