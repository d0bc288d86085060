"""Tests of values that are texts of another type, as components of NeMo-Run and members of an Enum are."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
import yaml

from torchx.runner import get_runner
from torchx.schedulers.kubernetes import request
from torchx.specs import AppDef, AppState, BindMount, Resource, Role
from torchx.specs.serialize import app_to_dict
from torchx_cli.main import main

FILE = """
from torchx.compat.quoting import noquote
import torchx.specs as specs

def go() -> specs.AppDef:
    return specs.AppDef("go", [specs.Role("r", "i", entrypoint="sh", args=["-c", noquote("$HOME")])])
"""


class Odd(str):
    def __str__(self) -> str:
        return "odd"

    def __format__(self, spec: str) -> str:
        return "odd"

    __repr__ = __str__


class Colour(str, Enum):
    RED = "red"


def app() -> AppDef:
    odd: dict[str, Any] = {Odd("key"): [Odd("text"), (Odd("tuple"),)]}
    role = Role(
        Odd("r"),
        Odd("img"),
        entrypoint=Odd("echo"),
        args=[Odd("a b"), Colour.RED],
        env={Odd("K"): Odd("v"), "C": Colour.RED},
        resource=Resource(1, 0, 64, capabilities=dict(odd), tags=dict(odd)),
        metadata={Odd("notes"): odd},
        mounts=[BindMount(Odd("/tmp"), Odd("/data"))],
    )
    return AppDef(Odd("name"), [role], {Odd("team"): Odd("ml")})


def types_in(data: Any) -> set[type]:
    """Returns the types of all texts in plain data."""
    if isinstance(data, dict):
        return types_in([*data, *data.values()])
    if isinstance(data, (list, tuple)):
        return {found for item in data for found in types_in(item)}
    return {type(data)} if isinstance(data, str) else set()


@pytest.mark.parametrize("scheduler", ["local_cwd", "local_docker", "slurm", "kubernetes"])
def test_a_dryrun_has_texts_only(scheduler: str) -> None:
    cfg = {"slurm": {"partition": Odd("gpu")}, "kubernetes": {"namespace": Odd("team")}}.get(scheduler, {})
    with get_runner("s") as runner:
        info = runner.dryrun(app(), scheduler, cfg)
    assert "odd" not in repr(info)
    assert info.app is not None
    (role,) = info.app.roles
    assert types_in(app_to_dict(info.app)) <= {str}
    assert types_in([role.name, role.image, role.args, role.env, role.metadata, role.resource.tags]) == {str}
    assert role.args == ["a b", "red"]
    assert {type(value) for value in info.cfg.values() if isinstance(value, str)} <= {str}


def test_a_job_and_its_record_have_texts() -> None:
    with get_runner("s") as runner:
        handle = runner.run(app(), "local_cwd")
        status = runner.wait(handle)
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        assert [*runner.log_lines(handle, "r")] == ["a b red\n"]
        recorded = runner.describe(handle)
        assert recorded is not None
        assert recorded.roles[0].env["C"] == "red"


def test_an_application_is_not_changed() -> None:
    before = app()
    with get_runner("s") as runner:
        runner.dryrun(before, "local_cwd")
    assert type(before.roles[0].env["K"]) is Odd
    assert type(before.metadata["team"]) is Odd


def test_a_manifest_may_get_one_from_a_hook() -> None:
    assert yaml.safe_load(request.dump([{"key": Colour.RED, Odd("k"): Odd("v")}])) == {
        "key": "red",
        "k": "v",
    }


@pytest.mark.parametrize("form", ["text", "json", "yaml"])
@pytest.mark.parametrize("scheduler", ["local_cwd", "local_docker", "slurm", "kubernetes"])
def test_the_command_line_shows_one(
    scheduler: str, form: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.py").write_text(FILE)
    assert main(["run", "--dryrun", "-s", scheduler, "-o", form, f"{tmp_path}/c.py:go"]) == 0
    assert "HOME" in capsys.readouterr().out
