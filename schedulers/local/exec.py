"""Programs beside a replica of a local job, with its environment and working directory; its ports."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import StateError
from torchx.machine import enter, processes
from torchx.machine.pipe_port import connect_here
from torchx.machine.port_names import resolve_port
from torchx.machine.relay import unreachable
from torchx.schedulers.shared.child import run_child
from torchx.schedulers.shared.exec import not_running
from torchx.schedulers.shared.exec_guard import VARIABLE
from torchx.scheduling.checks import require_replicas

if TYPE_CHECKING:
    from torchx.jobs.view import JobView
    from torchx.machine.processes import Process
    from torchx.schedulers.local.status import LocalJobs
    from torchx.scheduling.streams import Streams


def execute(
    jobs: LocalJobs, app_id: str, role: str, replica: int, command: Sequence[str], streams: Streams
) -> int:
    """Runs a program beside a replica and returns its exit code.

    Raises:
        StateError: the replica is not running, or the program does not exist.
    """
    process, env = process_of(jobs.require(app_id), role, replica)
    try:
        folder = os.open(f"/proc/{process.pid}/cwd", os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        if not processes.is_alive(process):
            raise not_running(app_id, role, replica) from None
        raise StateError(f"{role}/{replica} cannot be entered: {error.strerror}") from error
    try:
        if not processes.is_alive(process):  # the folder may be that of a later process with its pid
            raise not_running(app_id, role, replica)
        mark = os.urandom(12).hex()
        env = {**env, VARIABLE.encode(): mark.encode()}
        return run_child(command, streams, env=env, cwd=f"/proc/self/fd/{folder}", mark=mark)
    finally:
        os.close(folder)


def port_connector(
    jobs: LocalJobs, app_id: str, role: str, replica: int, port: str
) -> Callable[[], socket.socket]:
    """Returns a function that connects to a port of a replica.

    Raises:
        StateError: the replica is not running, or has no such port.
    """

    def number() -> int:
        _, env = process_of(jobs.require(app_id), role, replica)
        texts = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
        return resolve_port(port, texts, f"{role}/{replica}")

    def connected() -> socket.socket:
        current = number()
        try:
            return connect_here(current)
        except OSError as error:
            raise unreachable(current, f"{role}/{replica}", error) from error

    number()
    return connected


def folder_of(view: JobView, role: str, replica: int) -> Path | None:
    """Returns the working directory of a replica, running or ended.

    Raises:
        StateError: the replica does not exist.
    """
    _require(view, role, replica)
    folder = next(each.cwd for each in view.record.roles if each.name == role)
    if not folder:
        return None
    return Path(folder)


def _require(view: JobView, role: str, replica: int) -> None:
    known: dict[str, list[int]] = {}
    for each in view.replicas:
        known.setdefault(each.role, []).append(each.id)
    require_replicas(view.record.app_id, known, role, [replica])


def process_of(view: JobView, role: str, replica: int) -> tuple[Process, Mapping[bytes, bytes]]:
    """Returns the process of a running replica and the environment that it was started with.

    Raises:
        StateError: the replica does not exist or is not running.
    """
    _require(view, role, replica)
    app_id, handle = view.record.app_id, view.record.handle
    attempts = next(each.attempts for each in view.replicas if (each.role, each.id) == (role, replica))
    process = None
    if attempts and attempts[-1].ended_at is None:
        process = attempts[-1].process
    if view.has_ended or process is None:
        raise not_running(app_id, role, replica)
    env = enter.environment_of(process.pid)
    if not processes.is_alive(process):
        raise not_running(app_id, role, replica)
    if enter.is_of(env, handle, f"{role}/{replica}"):
        return process, env
    return process, _recorded_environment(view, role, replica, attempts[-1].number)


def _recorded_environment(view: JobView, role: str, replica: int, attempt: int) -> dict[bytes, bytes]:
    """Returns the environment of a replica from the record: a program may overwrite its own in memory."""
    supervisor = view.supervisor
    spec = next(each for each in view.record.roles if each.name == role)
    recorded = {**spec.env, **spec.replicas[replica].env, settings.TORCHX_ATTEMPT: str(attempt)}
    return {
        **({} if supervisor is None else enter.environment_of(supervisor.pid)),
        **{os.fsencode(name): os.fsencode(value) for name, value in recorded.items()},
    }
