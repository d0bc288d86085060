"""What a scheduler declares about itself, the commands honour: no name of a scheduler has a meaning."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from memory_scheduler import MemoryScheduler
from project.sources import modules, tree_of

import torchx.runner
from torchx.runner import Runner
from torchx.schedulers import BUILT_IN, create_scheduler
from torchx.specs import AppState
from torchx_cli.completion import offers
from torchx_cli.main import main


class Ending(MemoryScheduler):
    """A scheduler whose applications succeed immediately."""

    def schedule(self, dryrun_info: Any) -> str:
        app_id = super().schedule(dryrun_info)
        self.jobs[app_id].end(AppState.SUCCEEDED)
        return app_id


class Attaching(Ending):
    attaches_by_default = True
    cheap_to_list = True
    on_this_machine = True


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # a session sets its own
    made = Runner("torchx", {"local_plain": Ending, "attaching": Attaching})
    monkeypatch.setattr(torchx.runner, "get_runner", lambda *args, **params: made)
    monkeypatch.setattr(made, "close", lambda: None)  # several commands share it
    return made


def test_a_run_stays_attached_where_the_scheduler_declares_it(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []
    monkeypatch.setattr(Runner, "wait", lambda self, handle: waited.append(handle) or self.status(handle))
    for scheduler in ("local_plain", "attaching"):
        assert main(["run", "-s", scheduler, "utils.echo"]) == 0
    assert [handle.partition(":")[0] for handle in waited] == ["attaching"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_that_is_not_attached_says_so(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    """Its exit code is not that of the application; in a script, only the handle is printed."""
    monkeypatch.setattr("torchx_cli.commands.run.is_terminal", lambda stream: terminal)
    for flags, noted in (([], terminal), (["-d"], False)):
        assert main(["run", *flags, "-s", "local_plain", "utils.echo"]) == 0
        printed = capsys.readouterr()
        app_id = printed.out.strip().rpartition("/")[2]
        assert (f"to follow it: torchx attach {app_id}" in printed.err) == noted


def test_host_names_are_shown_for_several_machines_only(
    runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    for scheduler, nodes in (("local_plain", True), ("attaching", False)):
        assert main(["run", "-d", "-s", scheduler, "utils.echo"]) == 0
        handle = capsys.readouterr().out.strip()
        assert main(["status", handle]) == 0
        assert ("here" in capsys.readouterr().out) is nodes


def test_completion_offers_the_applications_that_are_cheap_to_list(
    runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    for scheduler in ("local_plain", "attaching"):
        assert main(["run", "-d", "-s", scheduler, "utils.echo"]) == 0
    offered = [offer.text for offer in offers.handles("status", "")]
    assert offered == ["attaching://torchx/echo-0", "@last"]


def test_the_declarations_of_the_engines() -> None:
    names = ("attaches_by_default", "cheap_to_list", "on_this_machine")
    made = {name: create_scheduler(name, "torchx") for name in BUILT_IN}
    assert {name: tuple(getattr(made[name], each) for each in names) for name in made} == {
        "local_cwd": (True, True, True),
        "local_dir": (True, True, True),
        "local_docker": (True, False, True),
        "kubernetes": (False, False, False),
        "slurm": (False, False, False),
        "gridengine": (False, False, False),
    }


def test_command_line_guesses_nothing_from_start_of_name() -> None:
    import ast

    wrong = [
        f"{path}:{node.lineno}"
        for name, path in modules().items()
        if name.startswith(("torchx_cli", "torchx.runner"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "startswith"
        and any(isinstance(arg, ast.Constant) and arg.value in ("local", "local_") for arg in node.args)
    ]
    assert not wrong
