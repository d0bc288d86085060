"""Watch an application and show changes until it has ended."""

from __future__ import annotations

import collections
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from torchx.errors import TorchxError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine import threads
from torchx.machine.outage import Outage
from torchx.printable import one_line
from torchx.scheduling.responses import status_of
from torchx_cli.terminal.ending import failure_of
from torchx_cli.terminal.output import fit, is_terminal, note, say
from torchx_cli.terminal.times import duration, span

with lazy_imports:
    from torchx_cli.terminal import drawing, status_text

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.status import AppStatus, ReplicaStatus


def show_changes(
    runner: Runner,
    handle: str,
    described: DescribeAppResponse,
    lines_of: Callable[[DescribeAppResponse], list[str]],
) -> None:
    """Shows an application until it has ended; `lines_of` formats it for a terminal, with its failure."""
    last = watch(runner, handle, described, lines_of)
    if last is not None and not is_terminal(sys.stdout):
        for line in failure_of(runner, handle, status_of(last)):
            say(line)


def check_watch_format(form: str) -> None:
    """Checks that the output format can be used with --watch.

    Raises:
        UsageError: the format is not text.
    """
    if form != "text":
        raise UsageError(
            f"--watch cannot be combined with -o {form}",
            hint="for the final result as JSON: torchx wait -o json",
            code="conflicting_flags",
        )


def watch(
    runner: Runner,
    handle: str,
    first: DescribeAppResponse,
    lines_of: Callable[[DescribeAppResponse], list[str]],
) -> DescribeAppResponse | None:
    """Shows the status of an application on stdout until it has ended.

    On a terminal the lines are updated in place; elsewhere each change is printed as a line.

    Args:
        runner: used to wait and to query.
        handle: the application.
        first: its current description.
        lines_of: formats a description for a terminal; later ones are brief.

    Returns:
        The final description, or None if the scheduler no longer knows the application.
    """
    printed: dict[str, str] = {}
    current: DescribeAppResponse | None = first
    begun, outage, over = time.monotonic(), Outage(), threading.Event()
    if runner.wakes(handle):
        threads.begin(_wait, runner, handle, over, name="end")
    screen: drawing.Screen | None = None
    if is_terminal(sys.stdout):
        screen = drawing.Screen(sys.stdout)
    with screen or nullcontext():
        while current is not None:
            status = status_of(current)
            if screen is not None:
                screen.show(lines_of(current), final=status.is_terminal())
            else:
                _print_changes(printed, changes(current.app_id, status))
            if status.is_terminal():
                return current
            woken = over.wait(runner.pause_after(handle, time.monotonic() - begun))
            over.clear()
            with outage.bridged():
                if woken:
                    current = runner.description(handle, brief=True)
                else:
                    current = runner.poll(handle)
    note(f"{first.app_id} is no longer known to its scheduler")
    return None


def _wait(runner: Runner, handle: str, over: threading.Event) -> None:
    """Sets an event at the end of an application."""
    with suppress(TorchxError, OSError):  # the queries go on
        runner.wait(handle)
        over.set()


def _print_changes(printed: dict[str, str], now: dict[str, str]) -> None:
    for key, text in now.items():
        if printed.get(key) != text:
            say(f"{time.strftime('%H:%M:%S')}  {one_line(key)}  {fit(text, None)}", flush=True, hide=True)
    printed.clear()
    printed.update(now)


def changes(app_id: str, status: AppStatus) -> dict[str, str]:
    """Returns the state of the application and its roles and replicas by name, without times.

    A role with many replicas is summarized; only failed or restarted replicas are listed.
    """
    now: dict[str, str] = {}
    for role in status.roles:
        counts = collections.Counter(replica.state.name for replica in role.replicas)
        many = len(role.replicas) > status_text.MAX_REPLICAS
        if many:
            summary = ", ".join(f"{n} {state.lower()}" for state, n in sorted(counts.items()))
            now[role.role] = f"{summary} of {len(role.replicas)}"
        for replica in role.replicas:
            parts = _progress(replica)
            if not many or len(parts) > 1:
                now[f"{role.role}/{replica.id}"] = "  ".join(parts)
    lasted = span(status.started_at, status.ended_at, over=True)
    parts = [status.state.name]
    if lasted is not None:
        parts.append(f"after {duration(lasted)}")
    if status.msg and not status.first_failure:
        parts.append(status.msg)
    now[app_id] = "  ".join(parts)
    return now


def _progress(replica: ReplicaStatus) -> list[str]:
    """Returns the state of a replica, the end of its last attempt, and the attempts after a retry."""
    ended = ""
    if replica.attempts:
        ended = status_text.how_ended(replica.attempts[-1])
    parts = [replica.state.name]
    if ended:
        parts.append(ended)
    if replica.attempt > 1:
        parts.append(f"attempt {replica.attempt} of {max(replica.attempt, replica.max_attempts)}")
    return parts
