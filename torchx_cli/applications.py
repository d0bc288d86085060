"""Look up the application given to a command."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from torchx.runner import resolve
from torchx.specs.handles import LogTarget, UnknownAppException, parse_app_handle, parse_log_target
from torchx.sweeps import BACKEND

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse

ACTIVE = frozenset({"SUBMITTED", "PENDING", "RUNNING"})
"""The states of applications that have not ended."""


def find(
    runner: Runner,
    text: str,
    *,
    full: bool = False,
    replicas: bool = True,
    outline: bool = False,
    prefer: Collection[str] = (),
    acts: bool = False,
) -> tuple[str, DescribeAppResponse]:
    """Returns the full handle and the description of an application.

    Args:
        runner: used to query the schedulers.
        text: a handle or a short name.
        full: include roles and metadata.
        replicas: include the replicas; otherwise they may be omitted.
        outline: include the replicas, whose status may be omitted, and nothing else.
        prefer: if several applications match, consider only those in these states or of these schedulers.
        acts: the command changes the application, or starts another one after it: a name matches those of
            this state home only, and the start of an id needs letters after the name.

    Raises:
        UnknownAppException: the application does not exist.
        UsageError: the handle is invalid or its scheduler does not exist.
    """
    handle = runner.resolve_handle(text, prefer, acts=acts)
    if outline:
        described = runner.outline(handle)
    else:
        described = runner.description(handle, brief=not full, replicas=replicas)
    if described is None:
        raise UnknownAppException(handle)
    return handle, described


def target_of(runner: Runner, text: str, *, acts: bool = False) -> LogTarget:
    """Returns the application, the role and the replicas in ``APP``, ``APP/ROLE`` or ``APP/ROLE/0,2-3``.

    The application is as it was written, except that a run of a sweep, ``SWEEP/2``, has its handle. A command
    that acts needs the whole name of the sweep.

    Raises:
        UsageError: the text has another form.
    """
    return resolve.target_of(runner, text, acts=acts) or parse_log_target(text)


def with_role(target: LogTarget, described: DescribeAppResponse) -> LogTarget:
    """Returns a target with the role of ``APP/0``: an application of one role needs no name of it."""
    roles = [each.role for each in described.roles_statuses]
    number = target.role or ""
    if len(roles) != 1 or number in roles or not number.isdecimal() or target.replicas:
        return target
    return LogTarget(target.handle, roles[0], (int(number),))


def short_name(runner: Runner, handle: str) -> str:
    """Returns the app id of sweeps and on the default scheduler, the handle elsewhere."""
    backend, _, app_id = parse_app_handle(handle)
    if backend in (runner.default_scheduler, BACKEND):
        return app_id
    return handle


def identity(handle: str) -> dict[str, str]:
    """Returns the application of a handle as plain data."""
    scheduler, _, app_id = parse_app_handle(handle)
    return {"handle": handle, "app_id": app_id, "scheduler": scheduler}


def named_identity(handle: str, name: str) -> dict[str, str]:
    """Returns the application of a handle as plain data, with its name and the session of the handle."""
    scheduler, session, app_id = parse_app_handle(handle)
    return {"handle": handle, "app_id": app_id, "name": name, "scheduler": scheduler, "session": session}
