"""Runs programs on the node of a replica, as steps beside those of the job; connects to its ports."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence

from torchx.errors import StateError
from torchx.machine import enter
from torchx.schedulers.shared.batch.exec import START, Gate, connector, entry, gated, why_not_run
from torchx.schedulers.shared.batch.status import running_host
from torchx.schedulers.shared.child import run_child
from torchx.schedulers.shared.exec import not_running
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.queue import SlurmJob, find, require_own
from torchx.scheduling.checks import require_replicas, unknown_application
from torchx.scheduling.streams import Output, Streams
from torchx.specs.status import AppState

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
    mark, variables = entry(job.record, f"{role}/{replica}", command, streams)
    env = {**client.clean_env(), **variables}
    options = ["--quiet", *(["--pty"] if streams.terminal else []), *(["--unbuffered"] if unbuffered else [])]
    if streams.stdin is None:
        options.append("--input=none")
    argv = [*step_on_node(job, role, replica), *options, "sh", "-c", START]
    gate, through = gated(mark, streams)
    errors = _Messages(through.stderr)
    through = Streams(through.stdout, errors, through.stdin, through.terminal, through.size)
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


class _Messages:
    """Forwards output without the messages of srun on how the program ended.

    Attributes:
        dropped: these messages.
    """

    def __init__(self, output: Gate | Output) -> None:
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
    if why := why_not_run(text):
        return StateError(f"no program was run beside {replica}: {why}")
    return StateError(f"Slurm rejected the step: {client.full_error(text) or 'srun reported no error'}")


def port_connector(app_id: str, role: str, replica: int, port: str) -> Callable[[], socket.socket]:
    """Returns a function that connects to a port of a replica.

    Raises:
        OwnershipError: the job belongs to another user.
        StateError: the replica is not running, or has no such port.
    """
    job = require_running(app_id, role, replica)

    def run(command: Sequence[str], streams: Streams) -> int:
        return execute(app_id, role, replica, command, streams, unbuffered=True)

    return connector(job.record, f"{role}/{replica}", port, run)
