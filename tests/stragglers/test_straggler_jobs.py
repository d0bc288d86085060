"""Slow ranks of local jobs: ranks that wait for each other, steps in their output, events, notifications."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hooks import Hooks
from program import ROOT, answer, delete_all, torchx
from stragglers.programs import ALONE, PRINTS, WAITS
from support import wait_until

from torchx.runner import get_runner
from torchx.specs.app import AppDef, Role
from torchx.specs.notify import Notify
from torchx.stragglers.record import PROGRESS, reports_in, steps_in
from torchx.stragglers.text import lines_of

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("deleted")]


@pytest.fixture
def deleted() -> Iterator[None]:
    yield
    delete_all()


def steps_of(handle: str) -> dict[str, Any]:
    """Returns the progress of the only role, an empty dict before its first step."""
    steps = answer("status", "-o", "json", handle)["steps"]
    return dict(steps[0]) if steps else {}


def stragglers_of(handle: str) -> list[dict[str, Any]]:
    events = torchx("events", "-o", "json", handle).stdout.splitlines()
    return [each for each in map(json.loads, events) if each["kind"] == "straggler"]


@pytest.mark.torch
def test_the_rank_that_others_wait_for_is_named(tmp_path: Path) -> None:
    """Three ranks with gloo, of which one is slower by a fifth: all have the same step."""
    pytest.importorskip("torch", reason="no PyTorch: .venv/bin/pip install torch")
    script = tmp_path / "train.py"
    script.write_text(WAITS)
    words = ("dist.torchrun", "-j", "1x3", "--script", str(script))
    handle = torchx("run", "-d", "-s", "local_cwd", "--straggler", "10", *words).stdout.strip()
    wait_until(lambda: steps_of(handle).get("stragglers"), "the slow rank is found", 240)
    found = steps_of(handle)
    assert found["waits"]
    assert found["ranks"] == 3
    assert found["slowest"]["local_rank"] == 1
    assert found["slowest"]["behind"] <= 1
    assert 0.003 < found["slowest"]["late"] < 0.05
    (event,) = stragglers_of(handle)
    assert event["message"].startswith("train/0 local rank 1: ")
    assert "late at each step" in event["message"]
    for command in ("status", "why"):
        assert "slowest train/0 local rank 1: 0.0" in torchx(command, handle).stdout.replace("\n", " ")


def test_a_slow_replica_is_reported_until_its_retry(hooks: Hooks) -> None:
    role = Role("sh", "", entrypoint=sys.executable, args=["-c", ALONE], num_replicas=3, max_retries=1)
    role.env["PYTHONPATH"] = str(ROOT)
    with get_runner() as runner:
        info = runner.dryrun(AppDef("slow", [role]), "local_cwd", {"straggler": 10})
        info.notify = Notify([hooks.url], ["end", "straggler"])
        handle = runner.schedule(info)
    wait_until(lambda: stragglers_of(handle), "it is found")
    found = steps_of(handle)
    assert (found["waits"], found["stragglers"]) == (False, ["sh/1"])
    assert found["slowest"]["behind"] >= 10
    _, body = hooks.wait_for(1)[0]
    assert (body["event"], body["state"]) == ("straggler", "RUNNING")
    assert "steps behind the median" in body["text"]
    assert "slowest sh/1: " in answer("report", "--json", handle)["steps"]
    assert answer("top", "-o", "json", handle)[0]["steps"][0]["slowest"]["replica"] == 1
    (slow,) = [each for each in _replicas(handle) if each["id"] == 1]
    os.kill(slow["pid"], signal.SIGKILL)
    wait_until(lambda: not steps_of(handle)["stragglers"], "its next attempt is as fast as the others")
    time.sleep(5.0)  # longer than the first attempt took to be found: its steps are far behind
    assert len(stragglers_of(handle)) == 1
    torchx("cancel", handle)
    assert hooks.wait_for(2)[1][1]["event"] == "end"
    assert steps_of(handle)["ranks"] == 3, "the last steps stay with the record"


def _replicas(handle: str) -> list[dict[str, Any]]:
    return list(answer("status", "-o", "json", handle)["roles"][0]["replicas"])


def test_steps_are_read_in_the_output() -> None:
    handle = torchx(
        "run", "-d", "-s", "local_cwd", "--straggler", "10", "--progress-regex", r"step (\d+)",
        "utils.sh", "--num_replicas", "3", PRINTS,
    ).stdout.strip()  # fmt: skip
    (event,) = wait_until(lambda: stragglers_of(handle), "the slow replica is found")
    assert (event["role"], event["replica"]) == ("sh", 1)


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ("9", "--straggler is `9`, expected 10 to 1,000,000 steps"),
        ("1000001", "--straggler is `1000001`, expected"),
        ("many", '--straggler takes an integer, got "many"'),
    ],
)
def test_a_number_of_steps_is_checked(steps: str, error: str) -> None:
    done = torchx("run", "--dryrun", "-s", "local_cwd", "--straggler", steps, "utils.echo")
    assert (done.returncode, error in done.stderr) == (2, True), done.stderr


def test_a_damaged_record_is_ignored(tmp_path: Path) -> None:
    row: dict[str, Any] = {"role": "a", "ranks": 1, "step": 5, "pace": None, "waits": False}
    row |= {"slowest": None, "stragglers": []}
    for text in ("", "[]", "{", "[" * 100_000, '{"roles": 1}', '{"roles": [1, {}, []]}'):
        (tmp_path / PROGRESS).write_text(text)
        assert (steps_in(tmp_path), reports_in(tmp_path), steps_in(None)) == ([], [], [])
    rows = [row, {**row, "step": "x"}, {**row, "slowest": {}}]
    (tmp_path / PROGRESS).write_text(json.dumps({"roles": rows, "reports": [{"at": -1}]}))
    assert [each.step for each in steps_in(tmp_path)] == [5]
    assert lines_of(tmp_path) == ["a: step 5"]
