"""Format the status of an application as text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from torchx.lazy import lazy_imports
from torchx.printable import counted, one_line
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import Member
from torchx.specs.status import is_terminal as has_ended
from torchx_cli.terminal.ending import unreported_message
from torchx_cli.terminal.output import (
    LONGEST,
    columns,
    fit,
    padded,
    paint,
    paint_state,
    state_cell,
    width_of,
    wrap_value,
)
from torchx_cli.terminal.times import duration, span

with lazy_imports:
    from torchx.jobs import paths
    from torchx.machine import files

if TYPE_CHECKING:
    from torchx.json_limits import Data
    from torchx.notifications.store import Delivery
    from torchx.specs.status import AppStatus, AttemptStatus, ReplicaStatus, RoleStatus

MAX_REPLICAS = 16
"""For roles with more replicas than this, only the unusual ones are listed."""

NONE: Mapping[Member, str] = {}

STALL_LINES = 8
"""Lines of the stacks that are shown of a stalled application."""

LARGEST_STACKS = 1 << 24
"""Maximum bytes of the file with its stacks."""


def title_lines(data: Data, stream: TextIO) -> list[str]:
    """Returns the id, the state and the scheduler of an application, in two lines if the window is narrow."""
    app_id, state, scheduler = data["app_id"], data["state"], data["scheduler"]
    fits = (width_of(stream) or LONGEST) >= columns(f"{app_id}  {state}  {scheduler}")
    rest = f"  {paint_state(state, stream)}  {scheduler}"
    name = paint(app_id, "bold", stream)
    if fits:
        return [name + rest]
    return [name, rest]


def status_lines(
    handle: str,
    status: AppStatus,
    roles: list[str],
    stream: TextIO,
    *,
    nodes: bool = True,
    usage: str = "",
    notable: Mapping[Member, str] = NONE,
) -> list[str]:
    """Returns the lines of `torchx status`, without the first failure.

    Args:
        handle: the application.
        status: its status.
        roles: names of the roles to show; empty for all.
        stream: the output stream.
        nodes: whether to show the host names of the replicas.
        usage: the line of measurements.
        notable: remarks about measurements, by role and replica.
    """
    scheduler, _, app_id = parse_app_handle(handle)
    lasted = span(status.started_at, status.ended_at, over=has_ended(status.state))
    head = [(one_line(app_id), "bold"), state_cell(status.state.name)]
    if lasted is not None:
        head.append((duration(lasted), ""))
    head.append((scheduler, ""))
    if status.run > 1:
        head.append((f"run {status.run}", ""))
    if status.num_restarts > 0:
        head.append((f"restarts {status.num_restarts}", ""))
    lines = [_head_line(head, stream)]
    message = unreported_message(status)
    if message and not _is_in_replica_lines(message, status, roles):
        lines.append(fit(f"  {message}", width_of(stream)))
    for role in status.roles:
        if not roles or role.role in roles:
            lines += _role_lines(role, stream, nodes, notable)
    folders = dict.fromkeys(status.workspaces.values())
    rows = [
        ("usage  ", usage),
        *(("runs in  ", one_line(_home(folder))) for folder in folders),
        ("logs  ", one_line(_home(status.log_dir or ""))),
    ]
    if status.ui_url:
        rows.append(("see   ", one_line(status.ui_url)))
    lines += [label + wrap_value(value, len(label), stream) for label, value in rows if value]
    return lines


def _head_line(head: list[tuple[str, str]], stream: TextIO) -> str:
    """Returns cells as one line, without the last ones that do not fit."""
    window = width_of(stream)
    while window is not None and len(head) > 2 and columns("  ".join(text for text, _ in head)) > window:
        head.pop()
    return "  ".join(paint(text, meaning, stream) for text, meaning in head)


def stall_lines(report_dir: str, name: str) -> list[str]:
    """Returns the first stacks that were taken when an application stalled, the rarest ones.

    Args:
        report_dir: the folder of the stacks.
        name: its name for commands.
    """
    try:
        data = files.read_file(paths.LogPaths(Path(report_dir)).stacks, LARGEST_STACKS)
    except OSError:
        return []
    lines = data.decode("utf-8", "replace").splitlines()
    shown = [f"  {one_line(line)}" for line in lines[:STALL_LINES] if line]
    return [*shown, f"  all stacks, now: torchx stacks {name}"]


def _is_in_replica_lines(message: str, status: AppStatus, roles: list[str]) -> bool:
    """Returns True if the lines of the replicas contain the message."""
    return any(
        len(role.replicas) <= MAX_REPLICAS
        and (not roles or role.role in roles)
        and any((why := waiting_reason(replica)) and message.startswith(why) for replica in role.replicas)
        for role in status.roles
    )


def _home(path: str) -> str:
    """Abbreviates the home folder as `~`, unless the path needs quotes in a shell."""
    home = os.environ.get("HOME", "")
    rest = path[len(home) :]
    plain = rest.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum()
    if home and path.startswith(home + "/") and plain:
        return "~" + rest
    return path


def _role_lines(role: RoleStatus, stream: TextIO, nodes: bool, notable: Mapping[Member, str]) -> list[str]:
    counts = Counter(replica.state.name for replica in role.replicas)
    if role.ready is not None and counts.pop("RUNNING", 0):
        if role.ready:
            counts = Counter(ready=role.ready) + counts
        else:
            counts = Counter({"ready": 0, **counts})
    summary = ", ".join(f"{n} of {len(role.replicas)} {state.lower()}" for state, n in counts.most_common())
    return [
        fit(f"{role.role}  {summary or 'no replicas'}", width_of(stream)),
        *replica_lines(role, stream, nodes=nodes, notable=notable),
    ]


def replica_lines(
    role: RoleStatus,
    stream: TextIO,
    *,
    nodes: bool = False,
    notable: Mapping[Member, str] = NONE,
) -> list[str]:
    """Returns a line for each replica of a role, or only for unusual ones if there are many.

    Args:
        role: the role.
        stream: the output stream.
        nodes: whether to show the node of each replica.
        notable: remarks about measurements, by role and replica; shown if there are many replicas.
    """
    counts = Counter(replica.state.name for replica in role.replicas)
    shown = sorted(role.replicas, key=lambda replica: replica.id)
    if len(shown) > MAX_REPLICAS:
        usual = counts.most_common(1)[0][0]
        others = {id_ for name, id_ in notable if name == role.role}
        unusual = [
            r
            for r in shown
            if r.state.name != usual or len(r.attempts) > 1 or running_message(r) or r.id in others
        ]
        unusual.sort(key=lambda replica: replica.id not in others)  # those are few
        shown = sorted(unusual[:MAX_REPLICAS], key=lambda replica: replica.id)
    else:
        notable = NONE
    rows = [_replica_cells(replica, nodes, notable.get((role.role, replica.id), "")) for replica in shown]
    lines = aligned(rows, stream)
    if len(role.replicas) > len(shown):
        left = len(role.replicas) - len(shown)
        if shown:
            more = f"  {left} more are not shown"
        else:
            more = f"  all {left} are alike"
        more += " (list them with -o json)"
        lines.append(paint(more, "dim", stream))
    return lines


def aligned(rows: Sequence[Sequence[str]], stream: TextIO) -> list[str]:
    """Returns the lines of replicas or runs.

    Args:
        rows: number, state, time, a further column, and details of each.
        stream: the output stream.
    """
    widths = [max((columns(row[at]) for row in rows), default=0) for at in range(4)]
    lines = []
    for row in rows:
        middle = [padded(row[at], widths[at]) for at in (1, 2, 3) if widths[at]]
        cells = [row[0].rjust(widths[0]), *middle, row[4]]
        line = fit("  " + "  ".join(cells).rstrip(), width_of(stream))
        lines.append(line.replace(row[1], paint_state(row[1], stream), 1))
    return lines


def _replica_cells(replica: ReplicaStatus, nodes: bool, notable: str) -> tuple[str, str, str, str, str]:
    """Returns id, state, time, process and details."""
    lasted = span(replica.started_at, replica.ended_at, over=has_ended(replica.state))
    rest = []
    if nodes and replica.hostname:
        rest = [f"on {replica.hostname}"]
    ended = ""
    if replica.attempts:
        ended = how_ended(replica.attempts[-1])
    if ended:
        rest.append(ended)
    if waiting_reason(replica):
        rest.append(f"waiting: {waiting_reason(replica)}")
    if message := running_message(replica):
        rest.append(message)
    if replica.attempt > 1:
        rest.append(
            f"attempt {replica.attempt} of {max(replica.attempt, replica.max_attempts)} ({_earlier(replica)})"
        )
    if notable:
        rest.append(notable)
    running = replica.pid is not None and replica.ended_at is None
    return (
        str(replica.id),
        replica.state.name,
        duration(lasted) if lasted is not None else "",
        f"pid {replica.pid}" if running else "",
        one_line("   ".join(rest)),
    )


def waiting_reason(replica: ReplicaStatus) -> str:
    """Returns why a replica is waiting, if known."""
    waits = replica.state.name in ("SUBMITTED", "PENDING") and replica.attempts
    if waits:
        return replica.attempts[-1].msg
    return ""


def running_message(replica: ReplicaStatus) -> str:
    """Returns the message of a running replica, such as that it is paused."""
    runs = replica.state.name == "RUNNING" and replica.attempts
    if runs:
        return replica.attempts[-1].msg
    return ""


def _earlier(replica: ReplicaStatus) -> str:
    """Returns the result of the previous attempt."""
    for attempt in reversed(replica.attempts[:-1]):
        lasted = span(attempt.started_at, attempt.ended_at, over=True)
        if lasted is None:
            after = ""
        else:
            after = f" after {duration(lasted)}"
        return f"attempt {attempt.number}: {how_ended(attempt) or attempt.state.name.lower()}{after}"
    return "earlier attempts unknown"


def how_ended(attempt: AttemptStatus) -> str:
    """Returns the nonzero exit code or the signal that ended an attempt, or an empty string."""
    if attempt.signal is not None:
        return attempt.signal
    if attempt.exit_code:
        return f"exit {attempt.exit_code}"
    return ""


def notification_line(each: Delivery) -> str:
    """Returns a line about the delivery of a notification."""
    if each.kind == "end":
        source = each.target
    else:
        source = f"{each.target} ({each.kind})"
    reason = f": {each.message}" if each.message else ""
    tries = f", {counted(each.tries, 'try', 'tries')}"
    if each.state == "delivered":
        at = ""
        if each.at is not None:
            at = each.at.astimezone().strftime("%H:%M:%S")
        return f"notified: {source} {at}"
    if each.state in ("sending", "retry"):
        return f"not yet delivered: {source}{reason}{tries}"
    if each.state == "unknown":
        return f"not known whether it was delivered: {source}{reason}"
    if each.state == "planned":
        return f"notifies: {source}"
    return f"not delivered: {source}{reason}"
