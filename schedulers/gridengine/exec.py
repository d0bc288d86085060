"""Runs programs on the host of a replica, as tasks of its job; connects to its ports."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from torchx.errors import StateError
from torchx.machine import enter
from torchx.schedulers.gridengine import commands
from torchx.schedulers.gridengine.jobs import ENGINE, GridEngineJob, find
from torchx.schedulers.shared.batch.exec import START, connector, entry, gated, why_not_run
from torchx.schedulers.shared.batch.paths import NODE_FOLDER, write
from torchx.schedulers.shared.batch.status import running_host
from torchx.schedulers.shared.child import run_child
from torchx.schedulers.shared.exec import not_running
from torchx.scheduling.checks import require_replicas, unknown_application
from torchx.scheduling.streams import Streams
from torchx.specs.status import AppState

if TYPE_CHECKING:
    from socket import socket


def execute(app_id: str, role: str, replica: int, command: Sequence[str], streams: Streams) -> int:
    """Runs a program beside a replica and returns its exit code.

    The program and its arguments pass through a private file: other users can see arguments of qrsh.

    Args:
        app_id, role, replica: the replica.
        command: the program and its arguments.
        streams: its standard streams.

    Raises:
        StateError: the job is unknown, the replica is not running, the program does not exist, or Grid Engine
            rejects the task.
    """
    job = require_running(app_id, role, replica)
    record = job.record
    mark, variables = entry(record, f"{role}/{replica}", command, streams)
    path = record.paths.folder / NODE_FOLDER / f"exec-{mark.decode()}.sh"
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    write(path, "".join([*lines, 'rm -f "$0"\n', f"{START}\n"]))
    options = []
    if streams.terminal:
        options = ["-pty", "y"]
    elif streams.stdin is None:
        options = ["-nostdin"]
    host = running_host(record, role, replica)
    argv = ["qrsh", "-inherit", *options, host, f"exec sh {shlex.quote(str(path))}"]
    env = {**commands.clean_env(), "JOB_ID": str(record.job_id), "SGE_TASK_ID": "undefined"}
    if record.task is not None:
        env["SGE_TASK_ID"] = str(record.task)
    gate, through = gated(mark, streams)
    try:
        code = run_child(argv, through, env=env, stderr_apart=True, end_signal=enter.END)
    finally:
        with suppress(OSError):
            path.unlink()
    if not gate.is_open:
        raise _rejection(gate.held.decode("utf-8", "replace"), f"{role}/{replica}", record.cfg.get("pe"))
    return code


def require_running(app_id: str, role: str, replica: int) -> GridEngineJob:
    """Returns the job of a running replica.

    Raises:
        StateError: the job is unknown or suspended, or the replica is not running.
    """
    commands.require("qrsh")
    job = find(app_id)
    if job is None:
        raise unknown_application(ENGINE, app_id)
    known = {r["name"]: list(range(r.get("num_replicas", 1))) for r in job.record.app.get("roles", ())}
    require_replicas(app_id, known, role, [replica])
    if job.outcome.state is not AppState.RUNNING or not running_host(job.record, role, replica):
        raise not_running(app_id, role, replica)
    if job.facts is not None and job.facts.is_suspended:
        raise StateError(f"job {app_id} is suspended", hint=f"resume it: qmod -usj {job.record.job_id}")
    return job


def _rejection(text: str, replica: str, environment: object) -> StateError:
    """Returns the error for a program that was not started."""
    if why := why_not_run(text):
        return StateError(f"no program was run beside {replica}: {why}")
    hint = None
    if not environment:
        hint = "a job needs a parallel environment with control_slaves TRUE for it: -cfg pe=…"
    message = commands.one_line(text) or "qrsh reported no error"
    return StateError(f"Grid Engine rejected the task: {message}", hint=hint)


def port_connector(app_id: str, role: str, replica: int, port: str) -> Callable[[], socket]:
    """Returns a function that connects to a port of a replica.

    Raises:
        StateError: the replica is not running, or has no such port.
    """
    job = require_running(app_id, role, replica)

    def run(command: Sequence[str], streams: Streams) -> int:
        return execute(app_id, role, replica, command, streams)

    return connector(job.record, f"{role}/{replica}", port, run)
