"""The program that takes stacks, and its effects on the processes that it reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import wait_until

from torchx.machine import processes, stack_taker

JOB = f"local_cwd://torchx/of-a-test-{os.getpid()}"  # other processes of pytest run these tests too
READY = "import threading; print('ready', flush=True); threading.Event().wait()"


@contextmanager
def started(*command: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A process of the job, after its first line of output."""
    variables = {**os.environ, "TORCHX_JOB_ID": JOB, "TORCHX_REPLICA": "w/0", **env}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def state(pid: int) -> str:
    entry = stack_taker.look_up(pid)
    return "" if entry is None else str(entry["state"])


def spy_that(folder: Path, *lines: str) -> str:
    """A program in place of py-spy."""
    path = folder / "py-spy"
    path.write_text("\n".join(["#!/bin/sh", *lines]))
    path.chmod(0o700)
    return str(path)


def only(taken: dict[str, Any]) -> dict[str, Any]:
    (process,) = taken["processes"]
    assert isinstance(process, dict)
    return process


def test_processes_are_found_by_the_environment_of_their_ancestors() -> None:
    script = "env -i sh -c 'echo ready; sleep 600; :' & wait"
    with started("sh", "-c", script, RANK="4") as process:
        wait_until(lambda: [p for p in stack_taker.find(JOB) if p["program"] == "sleep"], "it sleeps")
        found = stack_taker.find(JOB)
        assert {p["replica"] for p in found} == {"w/0"}
        assert {p["rank"] for p in found} == {4}
        assert process.pid in {p["pid"] for p in found}
        assert stack_taker.take(JOB, ranks=[3])["processes"] == []
        assert stack_taker.take(JOB, replicas=["w/1", "v"])["processes"] == []
        assert stack_taker.take(JOB, replicas=["w"], ranks=[4])["processes"]
        assert stack_taker.find(JOB + "x") == []
        for other in found:
            processes.send(processes.Process(other["pid"], other["start"]), 9)


def test_no_values_of_variables_or_arguments_are_reported() -> None:
    code = f"secret = 'hunter2'\ndef f(password): {READY}\nf('hunter2')"
    with started(sys.executable, "-c", code, "--token=hunter2", PASSWORD="hunter2"):
        taken = stack_taker.take(JOB)
        assert only(taken)["threads"]
        assert "hunter2" not in str(taken)


def test_without_py_spy_the_kernel_view_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_taker, "find_spy", lambda: "")
    with started(sys.executable, "-c", READY):
        process = only(stack_taker.take(JOB))
        assert process["note"] == "py-spy is not installed"
        assert process["threads"] == []
        wait_until(lambda: only(stack_taker.take(JOB))["wait"] == "futex", "the kernel names the call")


def test_a_process_that_py_spy_left_stopped_continues(tmp_path: Path) -> None:
    spy = spy_that(tmp_path, 'kill -STOP "$1"', "exec sleep 600")
    with started(sys.executable, "-c", READY) as process:
        entry = stack_taker.look_up(process.pid)
        assert entry is not None
        threads, why = stack_taker.pausing(entry, [spy, str(process.pid)], 0.5)
        assert (threads, why) == ([], "no answer within 0.5 s")
        wait_until(lambda: state(process.pid) == "S", "it continues")


def test_process_that_was_stopped_is_read_without_being_resumed() -> None:
    with started(sys.executable, "-c", READY) as process:
        process.send_signal(19)
        wait_until(lambda: state(process.pid) == "T", "it is stopped")
        for native in (False, True):
            found = only(stack_taker.take(JOB, native=native))
            assert (found["state"], state(process.pid)) == ("stopped", "T")
            assert found["threads"]
        assert found["note"] == "no frames of compiled code: it is stopped"


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (["echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1"],
         "py-spy is not permitted to read it (ptrace)"),
        (["echo 'Error: no version' >&2; exit 1"], "py-spy: Error: no version"),
        (["echo '{'"], "py-spy: its output cannot be read"),
        (["echo '[]'"], "py-spy: no stack"),
        (["exec /no/such/program"], "py-spy: "),
    ],
    ids=["permission", "error", "damaged", "empty", "missing"],
)  # fmt: skip
def test_failures_of_py_spy_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], note: str
) -> None:
    monkeypatch.setattr(stack_taker, "find_spy", lambda: spy_that(tmp_path, *lines))
    with started(sys.executable, "-c", READY):
        process = only(stack_taker.take(JOB))
        assert process["note"].startswith(note)
        assert process["threads"] == []


def test_many_processes_are_read_together() -> None:
    """One launcher starts 16 ranks; each is read, none is left stopped or traced."""
    code = (
        "import os, subprocess, sys\n"
        f"ranks = [subprocess.Popen([sys.executable, '-c', {READY!r}], env={{**os.environ, 'RANK': str(n)}})"
        " for n in range(16)]\n"
        "for rank in ranks: rank.wait()"
    )
    with started(sys.executable, "-c", code):

        def read() -> list[dict[str, Any]]:
            ranks = [p for p in stack_taker.take(JOB)["processes"] if p["rank"] is not None]
            return ranks if len(ranks) == 16 and all(p["threads"] for p in ranks) else []

        ranks = wait_until(read, "each rank has a stack")
        assert sorted(p["rank"] for p in ranks) == list(range(16))
        for rank in ranks:
            assert state(rank["pid"]) in ("R", "S", "D")
            processes.send(processes.Process(rank["pid"], rank["start"]), 9)
