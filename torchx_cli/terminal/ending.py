"""Report the result of an application and its first failure."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, TextIO

from torchx.lazy import lazy_imports
from torchx.printable import one_line
from torchx_cli.applications import short_name
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.output import (
    LONGEST,
    bar_of,
    columns,
    fit,
    paint,
    paint_state,
    width_of,
    wrap,
    wrap_command,
)
from torchx_cli.terminal.times import duration, span

with lazy_imports:
    from torchx.runner import first_failure

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.specs.status import AppStatus, FirstFailure

LAST_LINES = 10
"""Number of log lines shown for the replica that failed first."""


def last_line(app_id: str, status: AppStatus, stream: TextIO) -> str:
    """Returns a line with the final state and run time of an application."""
    lasted = span(status.started_at, status.ended_at, over=True)
    after = ""
    if lasted is not None:
        after = f" after {duration(lasted)}"
    fits = (width_of(stream) or LONGEST) > columns(f"{app_id} {status.state.name}{after}")
    return f"{app_id}{' ' if fits else f'{chr(10)}  '}{paint_state(status.state.name, stream)}{after}"


def unreported_message(status: AppStatus) -> str:
    """Returns the message of an application, shortened, unless the first failure or the state contains it."""
    first = status.first_failure
    if status.msg.upper() == status.state.name:
        return ""
    if first is not None and (status.msg in first.msg or (first.msg and first.msg in status.msg)):
        return ""
    return fit(status.msg, None)


def failure_of(runner: Runner, handle: str, status: AppStatus) -> list[str]:
    """Returns the lines about the first failure, if any: those of the status have its message."""
    if status.first_failure is None:
        return []
    return failure_lines(runner, handle, status, sys.stdout, name=short_name(runner, handle))


def failure_lines(
    runner: Runner,
    handle: str,
    status: AppStatus,
    stream: TextIO,
    name: str,
    command: str = "",
    excerpt: bool = True,
) -> list[str]:
    """Returns the lines that describe a failure, if any.

    Args:
        runner: used to read the log.
        handle: the application.
        status: its status.
        stream: the output stream.
        name: a short name of the application, for commands.
        command: the command that ran it; empty if unknown.
        excerpt: whether to show the last lines of the log.
    """
    first = status.first_failure
    if first is None:
        if status.state.name == "FAILED" and status.msg:
            return [wrap(mask_text(fit(status.msg, None)), stream, "  ")]
        return []
    window = width_of(stream)
    lines = [wrap(mask_text(description(first, status)), stream, "  ")]
    found = first_failure.evidence_of(runner, handle, status, LAST_LINES)
    if found.description:
        lines.append(wrap(mask_text(found.description), stream, "  "))
    if found.cause.signal and found.cause.advice and not first.msg:
        lines.append(wrap(found.cause.advice, stream, "  "))
    # the lines of one rank are far above the end of a log that torchrun ends with its report
    shown = found.error or (found.lines if excerpt or found.rank else [])
    lines += [fit(f"  {bar_of(stream)} {mask_text(line)}", window) for line in shown]
    if found.advice:
        lines.append(wrap(found.advice, stream, "  "))
    log = "  " + paint("full log:", "dim", stream) + " "
    lines.append(wrap_command(log, _log_command(found, name), stream))
    if command:
        lines.append(wrap_command("  " + paint("again:", "dim", stream) + "    ", command, stream))
    return lines


def _log_command(found: first_failure.Evidence, name: str) -> str:
    """Returns the command that prints the log of the replica, or of the rank, that failed first."""
    line = f"torchx log {shlex.quote(f'{name}/{one_line(found.replica)}')}"
    if found.rank and found.rank.rank is not None and found.lines:
        line += f" --rank {found.rank.rank}"
    return line


def description(first: FirstFailure, status: AppStatus) -> str:
    """Returns a line about the replica that failed first."""
    name = one_line(first.name)
    if first.signal:
        how = f"killed by {first.signal}"
    else:
        how = f"exit {first.exit_code}"
    if first.exit_code is None and not first.signal:
        how = ""
        if not first.msg:
            how = "could not be started"
    if first.msg:
        why = fit(first.msg, None)
        how = f"{how}: {why}" if how else why
    if first.handle is not None:
        return f"{name} failed first: {how}"
    replica = next(
        (r for role in status.roles for r in role.replicas if (r.role, r.id) == (first.role, first.replica)),
        None,
    )
    of = ""
    if replica is not None:
        of = f" of {max(replica.max_attempts, first.attempt)}"
    return f"{name} failed first: {how} (attempt {first.attempt}{of}){_others(first, status)}"


def _others(first: FirstFailure, status: AppStatus) -> str:
    """Returns a remark about the replicas stopped because of the first failure."""
    stopped = [
        f"{r.role}/{r.id}"
        for role in status.roles
        for r in role.replicas
        if r.state.name == "CANCELLED" and (r.role, r.id) != (first.role, first.replica)
    ]
    if not stopped:
        return ""
    if len(stopped) == 1:
        return f"; {stopped[0]} was stopped"
    return f"; {' and '.join(stopped) if len(stopped) == 2 else f'{len(stopped)} others'} were stopped"
