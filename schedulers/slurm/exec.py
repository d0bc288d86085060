"""Runs programs on the node of a replica, as steps beside those of the job; connects to its ports."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from torchx.errors import StateError
from torchx.machine import enter, pipe_port
from torchx.machine.port_names import port_number, resolve_port, variable_of
from torchx.schedulers.shared.child import run_child
from torchx.schedulers.shared.exec import not_running
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.queue import SlurmJob, find, require_own
from torchx.schedulers.slurm.status import running_host
from torchx.scheduling.checks import require_replicas, unknown_application
from torchx.scheduling.streams import Output, Streams
from torchx.specs.handles import make_app_handle
from torchx.specs.status import AppState

PROGRAM = "TORCHX_EXEC_PROGRAM"
"""The variable with the program that becomes the requested one."""
_START = f'exec python3 -I -S -c "import os; exec(os.environ.pop(\\"{PROGRAM}\\"))"'
_END = (
    rb"srun: error: [^\n]*: tasks? [0-9,-]+: [^\n]*\n"
    rb"|srun: (Terminating|Force Term|forcing job termination|got SIGCONT)[^\n]*\n"
)
"""Messages of srun on how a task ended; the exit code says it."""


def execute(
    app_id: str,
    role: str,
    replica: int,
    command: Sequence[str],
    streams: Streams,
    *,
    unbuffered: bool = False,
) -> int:
    """Runs a program beside a replica and returns its exit code.

    Args:
        app_id, role, replica: the replica.
        command: the program and its arguments.
        streams: its standard streams.
        unbuffered: forward output immediately, not line by line.

    Raises:
        OwnershipError: the job belongs to another user.
        StateError: the job is unknown, the replica is not running, the program does not exist, or Slurm
            rejects the step.
    """
    job = require_running(app_id, role, replica)
    argument = {
        "job": make_app_handle("slurm", job.record.session, job.record.key),
        "replica": f"{role}/{replica}",
        "command": list(command),
        "terminal": streams.terminal,
        "mark": f"torchx-{os.urandom(12).hex()}",
    }
    env = client.clean_env()
    env |= {PROGRAM: Path(enter.__file__).read_text(encoding="utf-8"), enter.REQUEST: json.dumps(argument)}
    options = ["--quiet", *(["--pty"] if streams.terminal else []), *(["--unbuffered"] if unbuffered else [])]
    if streams.stdin is None:
        options.append("--input=none")
    argv = [*step_on_node(job, role, replica), *options, "sh", "-c", _START]
    gate = _Gate(str(argument["mark"]).encode(), streams.stdout if streams.terminal else streams.stderr)
    if streams.terminal:
        errors = _Messages(streams.stderr)
    else:
        errors = _Messages(gate)
    through = Streams(
        gate if streams.terminal else streams.stdout, errors, streams.stdin, streams.terminal, streams.size
    )
    code = run_child(argv, through, env=env, stderr_apart=True, end_signal=enter.END)
    errors.finish()
    if not gate.is_open:
        raise _rejection(gate.held + errors.dropped, f"{role}/{replica}")
    return code


def require_running(app_id: str, role: str, replica: int) -> SlurmJob:
    """Returns the job of a running replica of the caller.

    Raises:
        OwnershipError: the job belongs to another user.
        StateError: the job is unknown, or the replica is not running.
    """
    client.require_slurm("srun")
    job = find(app_id)
    if job is None:
        raise unknown_application("slurm", app_id)
    require_own(job, "entered")
    known = {r["name"]: list(range(r.get("num_replicas", 1))) for r in job.record.app.get("roles", ())}
    require_replicas(app_id, known, role, [replica])
    if job.outcome.state is not AppState.RUNNING or not running_host(job.record, role, replica):
        raise not_running(app_id, role, replica)
    if any(part.state == "SUSPENDED" for part in job.queue):
        raise StateError(f"job {app_id} is suspended", hint=f"resume it: scontrol resume {job.record.key}")
    return job


def step_on_node(job: SlurmJob, role: str, replica: int) -> list[str]:
    """Returns the srun command, with options, for one task on the node of a running replica."""
    number = [each["name"] for each in job.record.app["roles"]].index(role)
    group = []
    if len(job.queue) > 1:
        group = [f"--het-group={number}"]
    return [
        "srun",
        "--overlap",
        f"--jobid={job.own_id}",
        *group,
        f"--nodelist={running_host(job.record, role, replica)}",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=1",
        "--mem=0",
    ]


class _Gate:
    """Forwards the output after a line that marks the start of the program.

    Attributes:
        held: the output before that line: error messages.
        is_open: whether the line was received.
    """

    def __init__(self, mark: bytes, output: Output) -> None:
        self._mark, self._output = mark, output
        self.held = b""
        self.is_open = False

    def write(self, data: bytes, /) -> None:
        """Receives output."""
        if not self.is_open:
            self.held += data
            before, mark, after = self.held.partition(self._mark)
            if not mark or b"\n" not in after:
                return
            self.is_open, self.held = True, before
            data = after.partition(b"\n")[2]
        if data:
            self._output.write(data)

    def flush(self) -> None:
        """Flushes the output behind it."""
        self._output.flush()


class _Messages:
    """Forwards output without the messages of srun on how the program ended.

    Attributes:
        dropped: these messages.
    """

    def __init__(self, output: _Gate | Output) -> None:
        self._output = output
        self._line = b""  # the current line, held while it may be such a message
        self._begins = True
        self.dropped = b""

    def write(self, data: bytes, /) -> None:
        """Receives output."""
        for line in data.splitlines(keepends=True):
            self._add(line)

    def _add(self, part: bytes) -> None:
        if not self._begins:
            self._output.write(part)
            self._begins = part.endswith(b"\n")
            return
        self._line += part
        if self._line.startswith(b"srun: ") and not self._line.endswith(b"\n"):
            return
        if not self._line.endswith(b"\n") and b"srun: ".startswith(self._line):
            return
        if re.fullmatch(_END, self._line):
            self.dropped += self._line
        else:
            self._output.write(self._line)
            self._begins = self._line.endswith(b"\n")
        self._line = b""

    def finish(self) -> None:
        """Forwards an unfinished line."""
        if self._line:
            self._output.write(self._line)
            self._output.flush()

    def flush(self) -> None:
        """Flushes the output behind it."""
        self._output.flush()


def _rejection(messages: bytes, replica: str) -> StateError:
    """Returns the error for a program that was not started."""
    text = messages.decode("utf-8", "replace")
    own = [line.removeprefix("torchx: ") for line in text.splitlines() if line.startswith("torchx: ")]
    if own:
        return StateError(f"no program was run beside {replica}: {own[-1]}")
    if "python3" in text:
        return StateError(f"no program was run beside {replica}: its node has no python3")
    return StateError(f"Slurm rejected the step: {client.full_error(text) or 'srun reported no error'}")


def port_connector(app_id: str, role: str, replica: int, port: str) -> Callable[[], socket.socket]:
    """Returns a function that connects to a port of a replica.

    Raises:
        OwnershipError: the job belongs to another user.
        StateError: the replica is not running, or has no such port.
    """
    job = require_running(app_id, role, replica)
    if port_number(port) is None:
        declared = [each.get("port_map") or {} for each in job.record.app["roles"]]
        known = {variable_of(name): str(n) for ports in declared for name, n in ports.items()}
        resolve_port(port, known, f"{role}/{replica}")
        port = variable_of(port)

    def connected() -> socket.socket:
        ours, theirs = socket.socketpair()
        step = _Step(theirs)
        threading.Thread(target=step.run, args=(app_id, role, replica, port), daemon=True).start()
        if ours.recv(1):
            return ours
        ours.close()
        raise step.error(f"{role}/{replica}")

    return connected


class _Step:
    """A program on the node whose standard streams are one end of a pair of sockets.

    Args:
        end: that end; closed when the program has ended.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._errors = io.BytesIO()
        self._failure: StateError | None = None

    def run(self, app_id: str, role: str, replica: int, port: str) -> None:
        """Runs the program to its end."""
        source = Path(pipe_port.__file__).read_text(encoding="utf-8")
        command = ["python3", "-I", "-S", "-c", source, port]
        with self._end:
            try:
                streams = Streams(_Sender(self._end), self._errors, self._end.fileno())
                execute(app_id, role, replica, command, streams, unbuffered=True)
            except StateError as error:
                self._failure = error
            except OSError:
                pass  # the client has closed its connection
            finally:
                with suppress(OSError):
                    self._end.shutdown(socket.SHUT_RDWR)

    def error(self, replica: str) -> StateError:
        """Returns the error for a connection that failed."""
        if self._failure is not None:
            return self._failure
        lines = self._errors.getvalue().decode("utf-8", "replace").split("\n")
        return StateError(f"{replica} cannot be reached: {lines[0] or 'the step has ended'}")


class _Sender:
    """Writes output to a socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def write(self, data: bytes, /) -> None:
        """Sends data."""
        self._end.sendall(data)

    def flush(self) -> None:
        """Does nothing: data is sent immediately."""


LINE = 900
"""Characters of a line of output; srun splits longer ones when it labels them."""
