"""A program beside a replica of a local job: its environment, its folder, its input, its result."""

from __future__ import annotations

import hashlib
import io
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from local import ended, scheduler, sh, submit, text
from program import COMMAND, environment, on_terminal, start, torchx
from support import wait_until

from torchx.errors import StateError
from torchx.jobs.view import JobView
from torchx.machine import enter, processes
from torchx.machine.processes import Process
from torchx.schedulers.local.exec import process_of
from torchx.schedulers.shared.child import run_child
from torchx.scheduling.streams import Streams


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Cancels the jobs of a test at its end."""
    yield
    for app in scheduler().list():
        scheduler().cancel(app.app_id)


def until_up(app_id: str, replicas: int = 1) -> None:
    wait_until(lambda: text(app_id).count("up\n") == replicas, "it runs")


def run(app_id: str, *command: str, replica: int = 0, stdin: int | None = None) -> tuple[int, bytes, bytes]:
    out, err = io.BytesIO(), io.BytesIO()
    code = scheduler().execute(app_id, "w", replica, command, Streams(out, err, stdin))
    return code, out.getvalue(), err.getvalue()


def test_it_has_what_the_replica_has(tmp_path: Path) -> None:
    """Its environment, with the GPUs, its working directory, and its PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mine").write_text("#!/bin/sh\necho my own\n")
    (tmp_path / "bin" / "mine").chmod(0o755)
    role = sh(f"cd {tmp_path}; echo up; exec sleep 600", 2)
    role.env = {"CUDA_VISIBLE_DEVICES": "3", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    app_id = submit(role)
    until_up(app_id, 2)
    script = "echo $CUDA_VISIBLE_DEVICES $TORCHX_REPLICA $TORCHX_ATTEMPT; pwd; exec mine"
    expected = f"3 w/1 1\n{tmp_path}\nmy own\n"
    assert run(app_id, "sh", "-c", script, replica=1) == (0, expected.encode(), b"")
    handle = f"local_cwd://torchx/{app_id}"
    done = torchx("exec", f"{handle}/w/1", "sh", "-c", "echo $TORCHX_REPLICA; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "w/1\n", "")
    shown, code = on_terminal("exec", handle, "sh", "-c", "stty size; test -t 0 && echo terminal; exit 6")
    assert (shown.split(), code) == (["40", "80", "terminal"], 6)
    with pytest.raises(StateError, match="`no-such-program` could not be run: No such file"):
        run(app_id, "no-such-program")
    scheduler().cancel(app_id)
    ended(app_id)
    with pytest.raises(StateError, match=rf"w/0 of {app_id} is not running"):
        run(app_id, "true")


def test_megabytes_in_both_directions_and_the_end_of_each(tmp_path: Path) -> None:
    app_id = submit(sh("echo up; exec sleep 600"))
    until_up(app_id)
    data = random.Random(7).randbytes(4_000_000)
    (tmp_path / "data").write_bytes(data)

    def fed(*command: str) -> tuple[int, bytes, bytes]:
        with (tmp_path / "data").open("rb") as file:
            return run(app_id, *command, stdin=file.fileno())

    assert fed("cat") == (0, data, b"")
    digest = f"{hashlib.sha256(data).hexdigest()}  -\n".encode()
    # all is read before anything is printed: only the end of the input starts the output
    assert fed("sh", "-c", "sha256sum; exit 7") == (7, digest, b"")
    assert fed("sh", "-c", "head -c 10; exit 9") == (9, data[:10], b""), "the rest is not read"
    assert run(app_id, "sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 6")[0] == 6
    code, left_behind, _ = run(app_id, "sh", "-c", "sleep 600 & echo $!; exit 4")
    assert code == 4, "a process left behind is not awaited"
    os.kill(int(left_behind), signal.SIGKILL)


def test_the_current_attempt_is_entered(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = (
        f"echo up; until test -e {gate}; do sleep 0.05; done; test $TORCHX_ATTEMPT = 2 || exit 1; sleep 600"
    )
    app_id = submit(sh(script.replace("$", "$$"), retries=1, policy="REPLICA"))
    until_up(app_id)
    assert run(app_id, "sh", "-c", "echo $TORCHX_ATTEMPT")[1] == b"1\n"
    gate.touch()

    def attempt() -> bytes:
        try:
            return run(app_id, "sh", "-c", "echo $TORCHX_ATTEMPT")[1]
        except StateError as error:
            assert error.code == "not_running"
            return b""

    wait_until(lambda: attempt() == b"2\n", "the second attempt runs")


def test_a_program_that_has_overwritten_its_environment() -> None:
    """The record has it too, as programs change their title in that memory."""
    app_id = submit(sh("echo up; exec env -i sleep 600"))
    until_up(app_id)
    script = "echo $TORCHX_REPLICA $TORCHX_ATTEMPT ${HOME:+home}"
    wait_until(lambda: run(app_id, "sh", "-c", script)[1] == b"w/0 1 home\n", "it has the environment")


def test_processes_of_another_user_are_not_read() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    marks = {"TORCHX_JOB_ID": "local_cwd://torchx/x", "TORCHX_REPLICA": "w/0", "TORCHX_ATTEMPT": "1"}
    code = "import os, sys; os.setuid(65534); os.execvp('sleep', ['sleep', '600'])"
    import subprocess

    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], env={**os.environ, **marks})
    try:
        wait_until(lambda: Path(f"/proc/{child.pid}").stat().st_uid == 65534, "it is another user")
        assert enter.environment_of(child.pid) == {}
        assert enter.find(marks["TORCHX_JOB_ID"], "w/0") is None
    finally:
        child.kill()
        child.wait()


def test_a_replica_that_ends_while_it_is_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = submit(sh("echo up; exec sleep 600"))
    until_up(app_id)

    def found(view: JobView, role: str, replica: int) -> tuple[Process, Mapping[bytes, bytes]]:
        result = process_of(view, role, replica)
        os.kill(result[0].pid, signal.SIGKILL)
        wait_until(lambda: enter.start_of(result[0].pid) < 0, "it has ended")
        return result

    monkeypatch.setattr("torchx.schedulers.local.exec.process_of", found)
    with pytest.raises(StateError) as raised:
        run(app_id, "true")
    assert raised.value.code == "not_running"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda n: n.name)
def test_the_program_ends_with_the_command_line(number: signal.Signals) -> None:
    app_id = submit(sh("echo up; exec sleep 600"))
    until_up(app_id)
    command = start("exec", f"local_cwd://torchx/{app_id}", "sh", "-c", "echo $$; exec sleep 600")
    with command:
        assert command.stdout is not None
        pid = int(command.stdout.readline())
        command.send_signal(number)
    wait_until(lambda: enter.start_of(pid) < 0, "it has ended")


BELOW = """
sh -c 'trap "" TERM HUP; echo $$ > {0}/child; exec sleep 600' &
setsid sh -c 'echo $$ > {0}/session; exec sleep 600' &
env -i sh -c 'echo $$ > {0}/nameless; exec sleep 600' &
while ! [ -s {0}/child -a -s {0}/session -a -s {0}/nameless ]; do sleep 0.01; done
echo up
wait
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_processes_below_the_program_end_with_the_command_line(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Without a terminal, whose end would be a signal for them; some ignore it, or have left the session."""
    app_id = submit(sh("echo up; exec sleep 600"))
    until_up(app_id)
    command = start("exec", f"local_cwd://torchx/{app_id}", "sh", "-c", BELOW.format(tmp_path))
    with command:
        assert command.stdout is not None
        assert command.stdout.readline() == "up\n"
        command.send_signal(number)
    for name in ("child", "session", "nameless"):
        pid = int((tmp_path / name).read_text())
        wait_until(lambda pid=pid: enter.start_of(pid) < 0, f"{name} has ended")  # type: ignore[misc]
    assert text(app_id) == "up\n"
    described = scheduler().glance(app_id)
    assert described is not None
    assert described.state.name == "RUNNING"


def test_a_program_may_leave_a_process_behind(tmp_path: Path) -> None:
    app_id = submit(sh("echo up; exec sleep 600"))
    until_up(app_id)
    script = f"sleep 600 >/dev/null 2>&1 & echo $! > {tmp_path}/pid"
    assert run(app_id, "sh", "-c", script)[0] == 0
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not pids_of_module("shared.child_guard"), "the guard has ended")
    assert enter.start_of(pid) > 0
    os.kill(pid, signal.SIGKILL)


def pids_of_module(name: str) -> list[int]:
    """Returns the child processes of this process that run a module."""
    found = []
    for entry in processes.table():
        command = processes.read_proc(f"/proc/{entry.process.pid}/cmdline")
        if entry.parent == os.getpid() and name.encode() in command:
            found.append(entry.process.pid)
    return found


SHELL = """
import os, pty, signal, sys
pid, terminal = pty.fork()
if not pid:  # the shell of the terminal, with another process group in the foreground
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.execv(sys.argv[1], sys.argv[1:])
    os.setpgid(child, child)
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.killpg(child, signal.SIGKILL)
        os._exit(99)
    os._exit(os.waitstatus_to_exitcode(status))
shown = b""
try:
    while data := os.read(terminal, 1024):
        shown += data
except OSError:
    pass
print(shown.decode(), end="")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("flags", [[], ["-i"]])
def test_a_program_runs_in_the_background_of_a_shell(flags: list[str]) -> None:
    """A process in the background that reads the terminal or changes its mode is stopped."""
    app_id = submit(sh("echo up; exec sleep 600"))
    until_up(app_id)
    words = ["exec", *flags, f"local_cwd://torchx/{app_id}", "sh", "-c", "echo out; exit 7"]
    done = subprocess.run(
        [sys.executable, "-c", SHELL, *COMMAND, *words],
        env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "out\n"), done.stderr


def test_an_interrupt_ends_the_program(tmp_path: Path) -> None:
    """The caller is interrupted while the program runs: the program does not stay behind."""

    class Interrupting(io.BytesIO):
        def write(self, data: object, /) -> int:
            raise KeyboardInterrupt

    streams = Streams(Interrupting(), io.BytesIO())
    with pytest.raises(KeyboardInterrupt):
        run_child(["sh", "-c", f"echo $$ > {tmp_path}/pid; echo out; exec sleep 600"], streams)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: enter.start_of(pid) < 0, "it has ended")
