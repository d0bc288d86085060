"""A run that stays with its application: Ctrl-C, a closed terminal, a killed command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import COMMAND, answer, component_folder, environment, start, torchx
from support import wait_until

from torchx.machine import processes
from torchx_cli.terminal.interrupts import Interrupts, Terminated, Terminations

COMPONENT = """
import torchx.specs as specs


def app(line: str) -> specs.AppDef:
    return specs.AppDef("app", [specs.Role("app", "", entrypoint="sh", args=["-c", line])])
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with component_folder(tmp_path, monkeypatch, COMPONENT):
        yield


PATIENT = ("-cfg", "grace_period=600")
"""A loaded machine may leave a program without processor time for longer than it usually has to end."""

pytestmark = pytest.mark.timeout(600)  # the same for the commands


def attached(line: str) -> tuple[subprocess.Popen[str], str]:
    """Starts an attached run, waits for the first line of its application, and returns its handle."""
    process = start("run", "-s", "local_cwd", *PATIENT, "c.py:app", "--line", line)
    assert process.stdout is not None
    assert process.stderr is not None
    handle = process.stdout.readline().strip()
    assert handle.startswith("local_cwd://torchx/app-")
    assert process.stderr.readline() == "app/0 │ up\n"
    return process, handle


def finish(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    """Reads what is left of both streams; `communicate` would pass over what was read ahead with a line."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        err, out = process.stderr.read(), process.stdout.read()
    return out, err, process.wait()


def status(handle: str) -> dict[str, Any]:
    found: dict[str, Any] = answer("status", handle, "-o", "json")
    return found


def test_first_ctrl_c_cancels_and_shows_remaining_output() -> None:
    process, handle = attached("trap 'echo cleaning up; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    process.send_signal(signal.SIGINT)
    out, err, code = finish(process)
    app_id = handle.rpartition("/")[2]
    lines = err.splitlines()
    assert (out, code) == ("", 130)
    assert lines[0] == f"cancelling {app_id} (again to kill)"
    assert "app/0 │ cleaning up" in lines
    assert lines[-1].startswith(f"{app_id} CANCELLED after ")
    assert status(handle)["state"] == "CANCELLED"


def test_the_second_ctrl_c_kills_what_does_not_listen() -> None:
    process, handle = attached("trap '' TERM; echo up; while :; do sleep 0.05; done")
    app_id = handle.rpartition("/")[2]
    pid = status(handle)["roles"][0]["replicas"][0]["pid"]
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == f"cancelling {app_id} (again to kill)\n"
    process.send_signal(signal.SIGINT)
    _, err, code = finish(process)
    assert code == 130
    assert f"killing {app_id}" in err
    assert processes.look_up(pid) is None
    assert status(handle)["state"] == "CANCELLED"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_end_of_the_command_leaves_the_application_running(number: signal.Signals) -> None:
    process, handle = attached("echo up; while ! test -e go; do sleep 0.02; done; echo done")
    os.killpg(process.pid, number)
    assert finish(process)[2] == -number
    assert status(handle)["state"] == "RUNNING"
    Path("go").touch()
    follow = torchx("log", "-f", handle)
    assert follow.stdout == "app/0 │ up\napp/0 │ done\n"
    wait_until(lambda: status(handle)["state"] == "SUCCEEDED", "the application has ended")


WAITS = "echo up; while ! test -e go; do sleep 0.02; done  # {n}"


def as_json(*words: str) -> subprocess.Popen[str]:
    """Starts a run with -o json, and waits for the first line of its application."""
    process = start("run", "-o", "json", *PATIENT, "--log", *words, "c.py:app", "--line", WAITS)
    assert process.stderr is not None
    while not process.stderr.readline().endswith("│ up\n"):
        assert process.poll() is None
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("sweep", [(), ("--each", "n=1")])
def test_a_terminated_command_prints_the_handle_as_json(
    number: signal.Signals, sweep: tuple[str, ...]
) -> None:
    process = as_json(*sweep)
    process.send_signal(number)
    out, _, code = finish(process)
    data = json.loads(out)
    assert (code, data["exit_code"], data["state"]) == (128 + number, None, "RUNNING")
    Path("go").touch()
    assert torchx("wait", data["handle"]).returncode == 0


@pytest.mark.parametrize("sweep", [(), ("--each", "n=1")])
def test_ctrl_c_is_the_exit_code_in_json(sweep: tuple[str, ...]) -> None:
    process = as_json(*sweep)
    process.send_signal(signal.SIGINT)
    out, _, code = finish(process)
    data = json.loads(out)
    assert (code, data["exit_code"], data["state"]) == (130, 130, "CANCELLED")


def test_a_deferred_termination_is_raised_later() -> None:
    with Terminations("json") as terminations:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Terminated):
            terminations.arm()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_ignored_sigint_stays_ignored() -> None:
    """A shell without job control starts its background commands so."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process, handle = attached("echo up; while ! test -e go; do sleep 0.02; done")
    finally:
        signal.signal(signal.SIGINT, before)
    process.send_signal(signal.SIGINT)
    assert status(handle)["state"] == "RUNNING"
    Path("go").touch()
    assert finish(process)[2] == 0


def test_a_reader_that_goes_away_takes_nothing_with_it() -> None:
    process, handle = attached("echo up; while ! test -e go; do sleep 0.02; done; echo more; exit 3")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stderr.close()
    Path("go").touch()
    assert process.wait(60) == 3
    process.stdout.close()
    assert status(handle)["first_failure"]["exit_code"] == 3


def on_a_full_disk(*words: str) -> subprocess.Popen[str]:
    """Starts a command whose stderr takes nothing."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        return subprocess.Popen(
            [*COMMAND, *words], stdout=subprocess.PIPE, stderr=full, text=True, env=environment()
        )


@pytest.mark.parametrize("command", ["run", "attach", "wait"])
def test_a_full_disk_below_stderr_takes_nothing_with_it(command: str) -> None:
    words = ["run", "c.py:app", "--line", "echo up; while ! test -e go; do sleep 0.02; done; exit 3"]
    handle = ""
    if command != "run":
        handle = torchx(*words[:1], "-d", *words[1:]).stdout.strip()
        words = [command, handle]
    process = on_a_full_disk(*words)
    assert process.stdout is not None
    handle = handle or process.stdout.readline().strip()
    wait_until(lambda: torchx("log", handle).stdout, "it has written")
    Path("go").touch()
    assert process.wait(60) == 3
    process.stdout.close()
    assert status(handle)["first_failure"]["exit_code"] == 3


def test_an_application_that_is_cancelled_from_elsewhere() -> None:
    process, handle = attached("echo up; exec sleep 60")
    assert torchx("cancel", handle).returncode == 0
    _, err, code = finish(process)
    assert code == 1
    assert "CANCELLED after" in err


def test_handle_that_stdout_does_not_take_comes_on_stderr() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*COMMAND, "run", "c.py:app", "--line", "echo up; exit 5"],
            stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), timeout=60,
        )  # fmt: skip
    assert done.returncode == 5
    assert done.stderr.startswith("local_cwd://torchx/app-")
    assert "app/0 │ up\n" in done.stderr


@pytest.mark.parametrize("line", ["run -o json utils.sh true", "builtins -o json", "builtins"])
def test_a_full_disk_below_stdout_is_one_error(line: str) -> None:
    words = line.split()
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, env=environment()
        )
    error, *rest = done.stderr.splitlines()
    assert (done.returncode, error) == (1, "error: No space left on device")
    if words[0] == "run":
        assert rest[0].startswith("  the application: local_cwd://torchx/sh-")


def test_ctrl_c_before_the_submission_counts_after_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    done: list[str] = []
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert done == []
        interrupts.arm("app-1", lambda: done.append("cancel"), lambda: done.append("kill"))
        wait_until(lambda: done == ["cancel"], "it is cancelled")
        signal.raise_signal(signal.SIGINT)
        wait_until(lambda: done == ["cancel", "kill"], "it is killed")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err.splitlines() == [
        "cancelling as soon as it has started (again to leave)",
        "cancelling app-1 (again to kill)",
        "killing app-1",
    ]


def test_a_second_ctrl_c_before_the_start_leaves() -> None:
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_stops_the_wait_also_if_earlier() -> None:
    with Interrupts() as interrupts:
        interrupts.allow_stop(True)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.stopped
    with Interrupts() as interrupts:
        interrupts.allow_stop(False)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.allow_stop(True)
        assert interrupts.stopped
