"""Conditions that `torchx wait --for` waits for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from torchx.command_line import ArgumentError
from torchx.machine.outage import Outage
from torchx.runner.reports import FIRST_PAUSE, LONGEST_PAUSE
from torchx.scheduling.base import Reports
from torchx.scheduling.logs import LogQuery, matching, text_of, whole_lines
from torchx.scheduling.pace import seconds_left, sharing
from torchx.specs.status import AppState
from torchx.suggestions import did_you_mean

if TYPE_CHECKING:
    from torchx.errors import TorchxError
    from torchx.runner.api import Runner
    from torchx.specs.status import AppStatus

DONE, READY, STALLED, LOG = "done", "ready", "stalled", "log:"
NAMES = (DONE, "running", READY, STALLED, "log:REGEX")


class Outcome(NamedTuple):
    """The result of waiting for a condition of one application.

    Attributes:
        handle: the application.
        status: its last status; None if its scheduler no longer knows it.
        met: whether the condition was met; None if the wait timed out.
        line: the matching log line.
        replica: the replica that printed it, as ``ROLE/ID``.
        error: why its state cannot be read, or None.
    """

    handle: str
    status: AppStatus | None
    met: bool | None
    line: str | None = None
    replica: str | None = None
    error: TorchxError | None = None


def check(condition: str) -> str:
    """Returns a condition in its normal form.

    Raises:
        UsageError: it is invalid.

    >>> check("Running"), check("log:epoch [0-9]+")
    ('running', 'log:epoch [0-9]+')
    """
    if condition.startswith(LOG):
        try:
            re.compile(condition[len(LOG) :])
        except re.error as error:
            pattern = condition[len(LOG) :]
            raise ArgumentError(
                f"--for log: takes a pattern, got `{pattern}`: {error}", flag="--for", given=condition
            ) from None
        if condition == LOG:
            raise ArgumentError("--for log: takes a pattern", flag="--for", hint="e.g. --for 'log:epoch 1'")
        return condition
    states = [state.name.lower() for state in AppState if state is not AppState.UNSUBMITTED]
    if condition.lower() not in (*NAMES[:-1], *states):
        known = list(dict.fromkeys((*NAMES, *states)))
        hint = did_you_mean(
            condition.lower().removeprefix("condition="), known, f"conditions: {', '.join(known)}"
        )
        raise ArgumentError(
            f"--for takes a condition, got `{condition}`", flag="--for", given=condition, hint=hint
        )
    return condition.lower()


def wait_for(runner: Runner, handle: str, condition: str, end: float) -> Outcome:
    """Waits until an application meets a condition, or can no longer meet it.

    Args:
        runner: used to query its scheduler.
        handle: the application.
        condition: the condition, in its normal form; not that of a log, see :func:`search`.
        end: the time by ``time.monotonic()`` at which the wait times out; infinity for no limit. It does
            not limit the reading of events: see :func:`is_unlimited`.
    """
    if condition == STALLED:
        return check_stalled(runner, handle, follow=True)
    if condition in (DONE, "succeeded", "failed", "cancelled"):
        status = runner.wait(handle, timeout=seconds_left(end))
        if status is not None and not status.is_terminal():
            return Outcome(handle, status, None)
        return Outcome(handle, status, _holds(condition, status))
    return _poll(runner, handle, lambda status: _holds(condition, status), end)


def is_unlimited(condition: str) -> bool:
    """Returns True if a thread that waits for it cannot time out, as it reads a log or events."""
    return condition == STALLED or condition.startswith(LOG)


def check_stalled(runner: Runner, handle: str, *, follow: bool) -> Outcome:
    """Checks the present events for a stall, or waits for it with ``follow``."""
    met = any(event.kind == STALLED for event in runner.events(handle, follow))
    if met:
        return Outcome(handle, runner.status(handle), True)
    return unmet(runner, handle, follow=follow)


def unmet(runner: Runner, handle: str, *, follow: bool) -> Outcome:
    """Returns the outcome at the end of a log or of events; without ``follow`` at their present end."""
    status = runner.status(handle)
    if not follow and status is not None and not status.is_terminal():
        return Outcome(handle, status, None)
    return Outcome(handle, status, False)


def search(runner: Runner, handle: str, condition: str, *, follow: bool) -> Outcome:
    """Searches the log for a line that matches; with ``follow`` until the application has ended.

    Raises:
        UsageError: the search takes too long.
    """
    pattern = re.compile(condition[len(LOG) :])
    for chunk in whole_lines(runner.log_chunks(handle, LogQuery(follow=follow))):
        if lines := matching(chunk.data, pattern):
            line, replica = text_of(lines.split(b"\n", 1)[0]), f"{chunk.role}/{chunk.replica}"
            return Outcome(handle, runner.status(handle), True, line, replica)
    return unmet(runner, handle, follow=follow)


def _holds(condition: str, status: AppStatus | None) -> bool:
    if status is None:
        return False
    if condition == DONE:
        return status.is_terminal()
    if condition == READY:
        states = {replica.state for role in status.roles for replica in role.replicas}
        unready = any(role.ready is not None and role.ready < len(role.replicas) for role in status.roles)
        running = status.state is AppState.RUNNING and not unready
        return running and states <= {AppState.RUNNING, AppState.SUCCEEDED}
    return status.state.name.lower() == condition


def _poll(runner: Runner, handle: str, holds: Callable[[AppStatus | None], bool], end: float) -> Outcome:
    scheduler = runner.scheduler_of(handle)
    recorded = isinstance(scheduler, Reports)
    begun = time.monotonic()
    if scheduler.on_this_machine:
        pause = FIRST_PAUSE
    else:
        pause = runner.pause_after(handle, 0.0)
    outage, status = Outage(), runner.status(handle)
    while True:
        if status is None or status.is_terminal() or holds(status):
            return Outcome(handle, status, holds(status))
        left = end - time.monotonic()
        if left <= 0:
            return Outcome(handle, status, None)
        time.sleep(min(pause, left))
        if recorded:
            longest = LONGEST_PAUSE
        else:
            longest = runner.pause_after(handle, time.monotonic() - begun)
        pause = min(1.5 * pause, longest)
        with outage.bridged(), sharing():
            status = runner.status(handle)
