"""The request for a Grid Engine job, made without Grid Engine."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchx.errors import UsageError
from torchx.schedulers.gridengine.request import environment_file
from torchx.schedulers.gridengine.scheduler import create_scheduler
from torchx.specs import AppDef, Resource, Role


def role(name: str = "r", **changes: Any) -> Role:
    return replace(Role(name, "", entrypoint="true", resource=Resource(1, 0, -1)), **changes)


def options(*roles: Role, **cfg: Any) -> list[str]:
    """Returns the options of qsub in the script."""
    info = create_scheduler("torchx").submit_dryrun(AppDef("7 app", list(roles)), cfg)
    token = info.request.token
    lines = info.request.script.replace(token, "TOKEN").splitlines()
    return [line.removeprefix("#$ ") for line in lines if line.startswith("#$ ")]


def test_options_of_a_small_job() -> None:
    first, context = options(role())
    assert first == "-N _7-app-TOKEN -S /bin/bash -cwd -o /dev/null -j y -notify -r n"
    assert context.startswith("-ac torchx=TOKEN:/")


def test_several_replicas_need_a_parallel_environment() -> None:
    assert options(role(num_replicas=2))[2:] == ["-pe mpi 2"]
    assert options(role(), pe="smp")[2:] == ["-pe smp 1"]


def test_options_follow_resources_and_run_options() -> None:
    both = options(
        role(num_replicas=3, resource=Resource(2, 4, 4096)),
        pe="mpi",
        queue="gpu.q",
        memory_resource="h_vmem",
        resources=["arch=lx-amd64"],
        qsub=["-R y"],
        time_limit="1h",
        requeue=True,
    )
    assert both[0].endswith("-r y")
    assert both[2:] == [
        "-pe mpi 6",
        "-l h_rt=3670",
        "-l h_vmem=2048M",
        "-l gpu=2",
        "-q gpu.q",
        "-l arch=lx-amd64",
        "-R y",
    ]


@pytest.mark.parametrize(
    ("roles", "cfg", "why"),
    [
        ([role(resource=Resource(2, 1, -1))], {"pe": "smp"}, "1 GPUs on 2 slots"),
        ([role(), role("s", resource=Resource(2, 0, -1))], {"pe": "mpi"}, "request different resources"),
        ([role()], {"qsub": ["-V"]}, "may not contain the option -V"),
        ([role()], {"qsub": ["rm -rf"]}, "expected an option of qsub"),
        ([role()], {"queue": "a b"}, "expected a name without spaces"),
        ([role()], {"resources": ["a=1\n#$ -V"]}, "line break"),
    ],
)
def test_what_grid_engine_cannot_run_is_rejected(roles: list[Role], cfg: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        options(*roles, **cfg)


def test_nothing_of_a_role_is_in_the_script() -> None:
    """Everybody can see the options, the arguments and the variables of a job."""
    secret = role(args=["argument-1"], env={"TOKEN": "value-1"})
    info = create_scheduler("torchx").submit_dryrun(AppDef("a", [secret]), {})
    for text in (info.request.script, " ".join(info.request.cmd)):
        assert "argument-1" not in text
        assert "value-1" not in text
    assert "value-1" in info.request.files["role-0.sh"]


def test_environment_of_the_submission_is_set_on_hosts(tmp_path: Path) -> None:
    path = tmp_path / "environment.sh"
    path.write_text(
        environment_file({"PATH": "/a b:/bin", "A": "it's\n$HOME", "B": "2", "PWD": "/x", "a.b": "1"})
    )
    done = subprocess.run(
        ["/bin/bash", "-c", f'. {path}; printf "%s|" "$PATH" "$A" "$B" "$PWD"'],
        env={"B": "of the host", "PATH": "/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "/a b:/bin|it's\n$HOME|of the host|/|"
