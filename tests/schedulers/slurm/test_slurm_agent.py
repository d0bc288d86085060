"""The agent of a replica on a node: the end of its output, and the end of a replica that is being ended."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from slurmscripts import SH, run_task
from support import wait_until

from torchx.jobs.log_index import LAYOUT, decode
from torchx.schedulers.shared.batch.node import agent
from torchx.schedulers.shared.batch.node.files import node_file
from torchx.schedulers.shared.batch.node.program import Program
from torchx.specs import AppDef, Role, service


class Ending:
    """A program that prints its last line and ends between two looks of the agent, as after a suspension."""

    def __init__(self, gate: Path) -> None:
        script = f"while [ ! -e {gate} ]; do sleep 0.01; done; echo last"
        self.process = subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdout, self.stderr = self.process.stdout.fileno(), self.process.stderr.fileno()
        self._gate, self._looks = gate, 0

    def poll(self) -> int | None:
        self._looks += 1
        if self._looks == 1:
            return None
        self._gate.touch()
        return self.process.wait()

    def wait(self) -> int:
        return self.process.wait()


def test_the_last_line_after_a_suspension_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the suspension is not a time without output."""
    monkeypatch.setattr(agent, "DRAIN", 0.01)
    program = Ending(tmp_path / "gate")
    with program.process:
        assert agent.follow(program, agent.Output(str(tmp_path), 1), None) == 0
    assert (tmp_path / "combined.log").read_text() == "last\n"


def test_index_of_log_stays_valid_after_full_disk(tmp_path: Path) -> None:
    """The kernel cuts a write at a limit in the middle of an entry, as at the end of a disk."""
    output = agent.Output(str(tmp_path), 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for number in range(4):
        if number == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2 * LAYOUT.size + 10, limits[1]))
        output.feed(1, b"%d\n" % number)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    output.flush(1)
    output.feed(1, b"4\n")
    log = (tmp_path / "combined.log").read_bytes()
    pieces = list(decode((tmp_path / "log.index").read_bytes()))
    assert b"".join(log[each.offset : each.offset + each.length] for each in pieces) == b"0\n1\n2\n3\n4\n"


class Ready:
    """The checks of a service that was ready in time."""

    late = ""


@pytest.mark.parametrize(("status", "checks"), [(-signal.SIGTERM, None), (143, None), (0, Ready())])
def test_the_signal_may_reach_the_program_before_the_agent(
    status: int, checks: Ready | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "SIGNALLED_WITHIN", 60.0)
    received: list[int] = []
    later = threading.Timer(0.1, received.append, [signal.SIGTERM])
    later.start()
    assert agent.is_being_ended(status, checks, received)
    later.join()


@pytest.mark.parametrize("status", [0, 3, -signal.SIGKILL])
def test_the_end_of_another_replica_needs_no_signal(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "SIGNALLED_WITHIN", 60.0)
    assert not agent.is_being_ended(status, None, [])


FEW = ("mkdir", "date", "sh", "rm", "sleep")


@pytest.mark.parametrize("python", [True, False])
@pytest.mark.parametrize("mark", ["stopping", "cancelled"])
def test_replica_that_is_being_ended_is_not_started_again(tmp_path: Path, mark: str, python: bool) -> None:
    """The job ends its replicas, and the program gets the signal first."""
    script = f"trap 'exit 5' TERM; : > {tmp_path}/{mark}; kill -TERM $$$$; sleep 60"
    server = service(Role("server", "", entrypoint=SH, args=["-c", script]))
    programs = tmp_path / "few"
    programs.mkdir()
    for name in FEW:
        (programs / name).symlink_to(shutil.which(name) or name)
    (tmp_path / ".ready-0").mkdir()
    path = {} if python else {"path": str(programs)}
    end = json.loads((run_task(AppDef("a", [server]), tmp_path, retries=1, **path) / "end.json").read_text())
    assert len(list(tmp_path.glob("*/*/attempt-*"))) == 1
    assert end["stop_signal"] == "SIGTERM"
    assert "needed" not in end


def test_variables_that_a_shell_cannot_name_reach_the_program(tmp_path: Path) -> None:
    """The shell of the replica, such as dash, drops them."""
    odd = {"a.b": "1", "caf\xe9-\udcff": "2=3", "BASH_FUNC_f%%": "() { echo called; }"}
    run = f"import os; print(ascii({{name: os.environ.get(name) for name in {list(odd)!a}}}))"
    role = Role("r", "", entrypoint=sys.executable, args=["-c", run])
    folder = run_task(AppDef("a", [role]), tmp_path, variables=odd)
    assert (folder / "stdout.log").read_text() == f"{odd!a}\n"


def test_the_agent_imports_no_large_module(tmp_path: Path) -> None:
    """A node may run hundreds of agents."""
    source = node_file("agent.py").replace('if __name__ == "__main__":', "def unused():")
    (tmp_path / "agent.py").write_text(f"{source}\nprint(*sys.modules)")
    argv = [sys.executable, "-I", "-S", str(tmp_path / "agent.py")]
    loaded = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    assert "json" in loaded
    assert not loaded & {"asyncio", "selectors", "socket", "subprocess", "threading", "typing"}


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "no-program").write_text("")
    for command, error in (
        ("no-such-program", FileNotFoundError),
        (f"{tmp_path}/no-program", PermissionError),
    ):
        with pytest.raises(error):
            Program([command], dict(os.environ))


def test_no_program_starts_before_it_is_on_record(tmp_path: Path) -> None:
    started, ended = tmp_path / "started", os.pipe()
    pid = os.fork()
    if not pid:
        os.set_inheritable(ended[1], True)
        try:
            command = ["touch", str(started)]
            Program(command, dict(os.environ), lambda pid: os.kill(os.getpid(), signal.SIGKILL))
        finally:
            os._exit(1)
    os.close(ended[1])
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert os.read(ended[0], 1) == b"", "the child of the agent has ended"
    os.close(ended[0])
    assert not started.exists()


def test_a_program_is_on_record_before_it_starts(tmp_path: Path) -> None:
    record = tmp_path / "pid"
    command = ["sh", "-c", f"[ $$ = $(cat {record}) ]"]
    assert Program(command, dict(os.environ), lambda pid: record.write_text(str(pid))).wait() == 0


def test_a_program_has_the_usual_handlers_of_signals() -> None:
    """Neither those of the agent nor those that Python ignores; it is found on its own PATH."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        program = Program(["sh", "-c", "exec cat /proc/self/status"], dict(os.environ))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert program.wait() == program.poll() == 0
    lines = dict(line.split(":\t") for line in os.read(program.stdout, 1 << 16).decode().splitlines())
    blocked_or_ignored = int(lines["SigBlk"], 16) | int(lines["SigIgn"], 16)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGURG, signal.SIGPIPE, signal.SIGXFSZ)
    assert [number for number in numbers if blocked_or_ignored >> (number - 1) & 1] == []
    for descriptor in (program.stdout, program.stderr):
        os.close(descriptor)


def test_a_program_is_ended() -> None:
    for end, status in ((Program.terminate, -signal.SIGTERM), (Program.kill, -signal.SIGKILL)):
        program = Program(["sleep", "600"], dict(os.environ))
        assert program.poll() is None
        end(program)
        wait_until(lambda program=program: program.poll() is not None, "it has ended")
        assert program.wait() == status
        end(program)
        for descriptor in (program.stdout, program.stderr):
            os.close(descriptor)
