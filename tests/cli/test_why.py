"""`why`: the cause of a state, its evidence, the differences from a success, and the next commands."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from canary import canary
from program import answer, on_terminal, torchx
from support import wait_until

from torchx.runner import get_runner
from torchx.runner.first_failure import Evidence
from torchx.runner.why.data import LARGEST, as_data
from torchx.runner.why.explain import Difference, Explanation, Line, _commands, explain
from torchx.scheduling import causes
from torchx.specs.app import AppDef, Role
from torchx.specs.status import AppState, AppStatus, FirstFailure, ReplicaStatus, RoleStatus
from torchx_cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


FAILS = f"echo loading; exec {sys.executable} -S -c 'import nope'"


def test_a_failure_is_explained_in_one_answer() -> None:
    good = torchx("run", "utils.sh", "--num_replicas", "2", "--env", "LR=1", "echo ok").stdout.strip()
    assert torchx("run", "utils.sh", "--env", "LR=2", FAILS).returncode == 1
    data = answer("why", "@last", "-o", "json")
    app_id = data["app_id"]
    assert (data["state"], data["replicas"]) == ("FAILED", {"FAILED": 1})
    assert data["cause"] == {
        "class": "import_error",
        "source": "output",
        "evidence": "exit code 1; the log ends with ModuleNotFoundError: No module named 'nope'",
        "advice": causes.ADVICE["import_error"],
    }
    first = data["first_failure"]
    assert [first[k] for k in ("role", "replica", "attempt", "host", "exit_code", "signal")] == [
        "sh", 0, 1, "localhost", 1, None,
    ]  # fmt: skip
    assert data["lines"][0] == {"line": "loading", "replica": "sh/0", "replicas": 1}
    assert data["last_success"] == good
    assert {d["part"]: (d["before"], d["now"]) for d in data["differences"]} == {
        "arguments: --num_replicas": ("2", None),
        "arguments: --env": ("LR=1", "LR=2"),
        "arguments: argument 1": ("echo ok", FAILS),
        "environment: LR": ("1", "2"),
        "resources: replicas": ("2", "1"),
    }
    assert data["commands"] == [f"torchx log {app_id}/sh/0", f"torchx rerun {app_id}"]
    shown, code = on_terminal("why", app_id)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80 + len("\x1b[31m\x1b[0m") * 2
    for text in ("import_error: exit code 1;", "failed first sh/0 on localhost", "│ loading", "2 -> 1"):
        assert text in shown
    for command in data["commands"]:  # each can be typed
        assert torchx(*command.split()[1:], "--dryrun" if "rerun" in command else "--json").returncode == 0


def test_only_a_success_of_the_same_program_is_compared() -> None:
    good = torchx("run", "utils.sh", "echo ok").stdout.strip()
    torchx("run", "utils.sh", "true")  # another job of this name
    torchx("run", "utils.sh", "echo no; exit 3")
    data = answer("why", "@last", "-o", "json")
    assert data["last_success"] == good
    assert [each["part"] for each in data["differences"]] == ["arguments: argument 1"]
    torchx("run", "utils.sh", "exit 3")
    data = answer("why", "@last", "-o", "json")
    assert (data["last_success"], data["differences"]) == (None, [])


def test_another_folder_is_the_first_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_PROVENANCE", "1")
    for name, code in (("a", "0"), ("b", "3")):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(f"raise SystemExit({code})")
        torchx("run", "utils.python", "--script", "train.py", cwd=folder / name)
    data = answer("why", "@last", "-o", "json")
    assert data["differences"][0] == {
        "part": "folder", "before": str(folder / "a"), "now": str(folder / "b")
    }  # fmt: skip
    assert "cause        exit code 3\n" in torchx("why", "@last").stdout


@pytest.mark.parametrize(
    ("cause", "command"),
    [("stalled", "torchx stacks x"), ("running", "torchx wait x")],
)
def test_running_application_has_the_command_that_helps(cause: str, command: str) -> None:
    status = AppStatus(AppState.RUNNING)
    made = Explanation("local_cwd://torchx/x", "x", status, causes.Cause(cause, "engine", "stalled for 9 s"))
    assert _commands(made, "x", "")[0] == command


def test_running_application_shows_last_line_of_each_replica(folder: Path) -> None:
    names = "touch ready-$(basename $TORCHX_REPLICA); sleep 600"
    script = f"test $TORCHX_REPLICA = sh/2 && echo stuck || echo waits; {names}"
    handle = torchx("run", "-d", "utils.sh", "--num_replicas", "3", script).stdout.strip()
    wait_until(lambda: len(list(folder.glob("ready-*"))) == 3, "all replicas have printed")

    def explained() -> dict[str, Any] | None:
        data: dict[str, Any] = answer("why", handle, "-o", "json")
        return data if len(data["lines"]) == 2 else None

    data = wait_until(explained, "the output is in the log")
    assert data["cause"]["class"] == "running"
    assert datetime.fromisoformat(data["last_output_at"]) <= datetime.now(timezone.utc)
    assert {line["line"]: line["replicas"] for line in data["lines"]} == {"stuck": 1, "waits": 2}
    torchx("cancel", handle)
    torchx("wait", handle)
    assert answer("why", handle, "-o", "json")["cause"]["class"] == "cancelled"


def test_secrets_and_control_characters_are_in_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    value, printed = canary(), canary()
    script = f"printf '\\033]0;title\\007'; echo $API_KEY; echo token={printed}; exit 3"
    assert main(["run", "utils.sh", "--env", f"API_KEY={value}", "echo fine"]) == 0
    assert main(["run", "utils.sh", "--env", f"API_KEY={value[::-1]}", script]) == 3
    capsys.readouterr()
    for form in ("text", "json", "yaml"):
        assert main(["why", "@last", "-o", form]) == 0
        out, err = capsys.readouterr()
        assert value not in out + err
        assert value[::-1] not in out + err
        assert printed not in out + err
        assert "\x1b" not in out
        assert "exit" in out


def explanation(line: str, replicas: int = 64) -> Explanation:
    """Returns the explanation of a large application, each of its texts as long as it may be."""
    statuses = [ReplicaStatus(n, AppState.FAILED, "trainer", "node-" * 20) for n in range(replicas)]
    first = FirstFailure("trainer", 3, 1, 1, None, line * 50)
    status = AppStatus(AppState.FAILED, roles=[RoleStatus("trainer", statuses)], first_failure=first)
    cause = causes.classify(status.state, "", FirstFailure("trainer", 3, 1, 1), [f"ValueError: {line * 50}"])
    lines = [Line((line * 50)[:240], f"trainer/{n}", 1) for n in range(14)]
    changed = [Difference(f"role trainer: {n} {line}", line * 50, line * 50) for n in range(8)]
    found = Evidence("trainer/3", advice=line * 300)
    return Explanation(
        "slurm://torchx/12", "train" * 40, status, cause, found, lines=lines, differences=changed
    )


@pytest.mark.parametrize("text", ["a plain line ", "日本語 ", '"\\', "\U0001f642"])
def test_an_answer_is_small(text: str) -> None:
    data = as_data(explanation(text))
    size = len(json.dumps(data, indent=2))
    assert size <= LARGEST
    assert data["lines"]
    assert data["more_differences"] + len(data["differences"]) == 8
    assert data["replicas"] == {"FAILED": 64}


def test_engine_without_logs_and_earlier_runs_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with get_runner() as runner:
        handle = runner.run(
            AppDef("job", [Role("w", "", entrypoint="sh", args=["-c", "exit 5"])]), "local_cwd"
        )
        runner.wait(handle)
        described = runner.description(handle)
        assert described is not None

        def fail(*args: object, **more: object) -> None:
            raise NotImplementedError

        for name in ("log_chunks", "select"):
            monkeypatch.setattr(runner, name, fail)
        made = explain(runner, handle, described, "job")
    assert (made.cause.name, made.lines, made.success) == ("exit_code", [], None)
