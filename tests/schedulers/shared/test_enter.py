"""The process beside a replica that waits for the program of `exec`: signals and the end of its terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support import wait_until

from torchx.machine import enter

PROGRAM = """
import os, signal, sys, time
log = open(sys.argv[1], "a", buffering=1)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: log.write(signal.Signals(number).name + "\\n"))
log.write(f"{os.getpid()}\\n")
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
sys.exit(9)
"""


@pytest.fixture
def replica() -> Iterator[str]:
    """The handle of an application with the replica r/0."""
    job = f"slurm://torchx/{os.urandom(6).hex()}"
    marks = {"TORCHX_JOB_ID": job, "TORCHX_REPLICA": "r/0", "TORCHX_ATTEMPT": "1"}
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **marks}) as process:
        yield job
        process.kill()


class Entered:
    """A program beside the replica.

    Args:
        job: the handle of its application.
        folder: a folder for its files.
        terminal: the terminal of the program (default: none).
    """

    def __init__(self, job: str, folder: Path, terminal: int | None = None) -> None:
        self._log, self._gate = folder / "log", folder / "gate"
        self._log.touch()
        command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(self._log), str(self._gate)]
        request = {"job": job, "replica": "r/0", "command": command, "terminal": False, "mark": "M"}
        env = {**os.environ, enter.REQUEST: json.dumps(request)}
        argv = [sys.executable, "-I", "-S", enter.__file__]
        if terminal is not None:
            argv = [*argv[:1], "-I", "-S", "-c", TAKE_TERMINAL, str(terminal), *argv]
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(
            argv,
            env=env,
            stdin=null,
            stdout=null,
            stderr=null,
            start_new_session=True,
            pass_fds=[] if terminal is None else [terminal],
        )
        self.pid = int(wait_until(self.lines, "the program runs")[0])

    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def code(self) -> int:
        """Ends the program, and returns the exit code of the process that waits for it."""
        self._gate.touch()
        return self.process.wait(60)


TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0);"
    "os.close(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
)


def test_a_signal_to_all_processes_reaches_the_program_once(replica: str, tmp_path: Path) -> None:
    entered = Entered(replica, tmp_path)
    for count in range(1, 4):
        os.killpg(entered.process.pid, signal.SIGTERM)
        wait_until(lambda count=count: entered.lines().count("SIGTERM") >= count, "it has the signal")
    os.killpg(entered.process.pid, signal.SIGHUP)
    wait_until(lambda: "SIGHUP" in entered.lines(), "it has the signal")
    assert entered.code() == 9
    assert entered.lines()[1:] == ["SIGTERM"] * 3 + ["SIGHUP"]


def test_the_end_of_its_terminal_reaches_the_program_once(replica: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        entered = Entered(replica, tmp_path, theirs)
    finally:
        os.close(theirs)
    os.close(ours)
    wait_until(lambda: "SIGHUP" in entered.lines(), "it has the signal")
    assert entered.code() == 9
    assert entered.lines()[1:] == ["SIGHUP"]


def test_it_returns_the_signal_that_ended_the_program(replica: str, tmp_path: Path) -> None:
    entered = Entered(replica, tmp_path)
    with suppress(ProcessLookupError):
        os.kill(entered.pid, signal.SIGKILL)
    assert entered.process.wait(60) == 128 + signal.SIGKILL
