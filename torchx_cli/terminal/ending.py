"""How an application ended: its last line, and on failure what failed first and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from torchx.errors import TorchxError
from torchx.printable import one_line
from torchx_cli.terminal.output import bar_of, fit, paint, paint_state, width_of, wrap
from torchx_cli.terminal.times import duration, span

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.specs.status import AppStatus, FirstFailure

LAST_LINES = 10
"""How many lines of the log of the replica that failed first are shown."""

MEANING = {
    "SIGKILL": "the kernel's out-of-memory killer is the usual reason",
    "SIGSEGV": "it touched memory that is not its own: most often a defect in native code",
    "SIGABRT": "it gave up by itself: most often a failed check in native code",
    "SIGBUS": "most often a full /dev/shm, or a file that shrank while it was mapped",
    "SIGILL": "the program has instructions that this processor lacks",
    "SIGFPE": "most often a whole number divided by zero in native code",
    "SIGTERM": "something asked it to end",
    "SIGXCPU": "its limit of processor time was reached",
}
"""What it often means that a signal ended a program."""


def last_line(app_id: str, status: AppStatus, stream: TextIO) -> str:
    """Returns the line that tells how an application ended and how long it took."""
    lasted = span(status.started_at or status.submitted_at, status.ended_at)
    after = f" after {duration(lasted)}" if lasted is not None else ""
    return f"{app_id} {paint_state(status.state.name, stream)}{after}"


def unsaid(status: AppStatus) -> str:
    """Returns the message of an application, cut where it is long, unless its first failure says the same."""
    first = status.first_failure
    if first is not None and (status.msg in first.msg or (first.msg and first.msg in status.msg)):
        return ""
    return fit(status.msg, None)


def failure_lines(
    runner: Runner,
    handle: str,
    status: AppStatus,
    stream: TextIO,
    called: str,
    again: str = "",
    excerpt: bool = True,
) -> list[str]:
    """Returns what a person needs to know of a failure; nothing when there is none.

    Args:
        runner: to read the log with.
        handle: the application.
        status: how it fares.
        stream: where the lines go.
        called: what to type for the application.
        again: the command that ran it, empty when not known.
        excerpt: whether to show the last lines of the log.
    """
    from torchx_cli.terminal.masking import mask_text

    first = status.first_failure
    if first is None:
        return _unexplained(status, stream) if status.state.name == "FAILED" else []
    window = width_of(stream)
    lines = [wrap(mask_text(_what(first, status)), stream, "  ")]
    if first.signal in MEANING and not first.msg:
        lines.append(wrap(MEANING[first.signal], stream, "  "))
    shown = _error_file(status) or (_tail(runner, handle, first) if excerpt else [])
    lines += [fit(f"  {bar_of(stream)} {mask_text(line)}", window) for line in shown]
    replica = one_line(f"{first.role}/{first.replica}")
    lines.append("  " + paint("full log:", "dim", stream) + f" torchx log {called}/{replica}")
    if again:
        lines.append("  " + paint("again:", "dim", stream) + f"    {again}")
    return lines


def _unexplained(status: AppStatus, stream: TextIO) -> list[str]:
    from torchx_cli.terminal.masking import mask_text

    return [wrap(mask_text(fit(status.msg, None)), stream, "  ")] if status.msg else []


def _what(first: FirstFailure, status: AppStatus) -> str:
    name = one_line(f"{first.role}/{first.replica}")
    how = f"killed by {first.signal}" if first.signal else f"exit {first.exit_code}"
    if first.exit_code is None and not first.signal:
        how = "it could not be started" if not first.msg else ""
    if first.msg:
        why = fit(first.msg, None)
        how = f"{how}: {why}" if how else why
    replica = next(
        (r for role in status.roles for r in role.replicas if (r.role, r.id) == (first.role, first.replica)),
        None,
    )
    of = f" of {max(replica.max_attempts, first.attempt)}" if replica is not None else ""
    return f"{name} failed first: {how} (attempt {first.attempt}{of}){_others(first, status)}"


def _others(first: FirstFailure, status: AppStatus) -> str:
    """Returns what became of the others: those that were stopped because of the first failure."""
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


def _error_file(status: AppStatus) -> list[str]:
    """Returns the message that the replica itself left, cut to its last lines."""
    from torchx.specs.status import NONE

    if not status.structured_error_msg or status.structured_error_msg == NONE:
        return []
    from torchx.excerpts import last_lines_of
    from torchx.specs.status_text import ErrorFile

    found = ErrorFile.read(status.structured_error_msg)
    text = status.structured_error_msg if found is None else found.message
    return last_lines_of(text.rstrip(), LAST_LINES)


def _tail(runner: Runner, handle: str, first: FirstFailure) -> list[str]:
    """Returns the last lines of the log of the replica that failed first."""
    from torchx.excerpts import last_lines
    from torchx.scheduling.logs import LogQuery

    query = LogQuery({first.role: frozenset({first.replica})}, tail=LAST_LINES)
    try:
        chunks = list(runner.log_chunks(handle, query))
    except (TorchxError, NotImplementedError, OSError):
        return []  # the failure is reported all the same
    # of the attempt that failed, where the log tells them apart
    return last_lines([c for c in chunks if c.attempt == first.attempt] or chunks, LAST_LINES)
