"""The status of an application as a person reads it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TextIO

from torchx.printable import one_line
from torchx_cli.terminal.ending import unsaid
from torchx_cli.terminal.output import STATE_MEANING, columns, fit, paint, paint_state, width_of
from torchx_cli.terminal.times import duration, span

if TYPE_CHECKING:
    from torchx.specs.status import AppStatus, AttemptStatus, ReplicaStatus, RoleStatus

CROWD = 16
"""Of a role with more replicas than this, only the unusual ones are told one by one."""


def status_lines(handle: str, status: AppStatus, roles: list[str], stream: TextIO) -> list[str]:
    """Returns the lines of `torchx status`, without what failed first.

    Args:
        handle: the application.
        status: how it fares.
        roles: names of the roles to tell of; empty for all.
        stream: where the lines go.
    """
    from torchx.specs.handles import parse_app_handle

    scheduler, _, app_id = parse_app_handle(handle)
    lasted = span(status.started_at, status.ended_at)
    head = [
        (one_line(app_id), "bold"),
        (status.state.name, STATE_MEANING.get(status.state.name, "dim")),
        *([(duration(lasted), "")] if lasted is not None else []),
        (scheduler, ""),
        *([(f"restarts {status.num_restarts}", "")] if status.num_restarts > 0 else []),
    ]
    window = width_of(stream)
    while window is not None and len(head) > 2 and columns("  ".join(text for text, _ in head)) > window:
        head.pop()
    lines = ["  ".join(paint(text, meaning, stream) for text, meaning in head)]
    said = unsaid(status)
    if said and not _replicas_say(said, status, roles):
        lines.append(fit(f"  {said}", width_of(stream)))
    for role in status.roles:
        if not roles or role.role in roles:
            # on this machine the name of a host says nothing
            lines += _role_lines(role, stream, nodes=not scheduler.startswith("local"))
    for folder in dict.fromkeys(status.workspaces.values()):
        lines.append(f"runs in  {one_line(_home(folder))}")
    if status.log_dir:
        lines.append(f"logs  {one_line(_home(status.log_dir))}")
    if status.ui_url:
        lines.append(f"see   {one_line(status.ui_url)}")
    return lines


def _replicas_say(said: str, status: AppStatus, roles: list[str]) -> bool:
    """Tells whether the lines of the replicas say the same."""
    return any(
        len(role.replicas) <= CROWD and (not roles or role.role in roles) and any(
            (why := waits_for(replica)) and said.startswith(why) for replica in role.replicas
        )
        for role in status.roles
    )  # fmt: skip


def _home(path: str) -> str:
    """Shortens the home folder to `~`, which a shell takes back, unless the rest needs quotes."""
    import os

    home = os.environ.get("HOME", "")
    rest = path[len(home) :]
    plain = rest.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum()
    return "~" + rest if home and path.startswith(home + "/") and plain else path


def _role_lines(role: RoleStatus, stream: TextIO, *, nodes: bool) -> list[str]:
    counts = Counter(replica.state.name for replica in role.replicas)
    told = ", ".join(f"{n} of {len(role.replicas)} {state.lower()}" for state, n in counts.most_common())
    return [
        fit(f"{role.role}  {told or 'no replicas'}", width_of(stream)),
        *replica_lines(role, stream, nodes=nodes),
    ]


def replica_lines(role: RoleStatus, stream: TextIO, *, nodes: bool = False) -> list[str]:
    """Returns a line for each replica of a role; for each unusual one where there are many.

    Args:
        role: the role.
        stream: where the lines go.
        nodes: whether the node of each replica is shown.
    """
    lines = []
    counts = Counter(replica.state.name for replica in role.replicas)
    shown = sorted(role.replicas, key=lambda replica: replica.id)
    if len(shown) > CROWD:
        usual = counts.most_common(1)[0][0]
        shown = [r for r in shown if r.state.name != usual or len(r.attempts) > 1 or told_of(r)][:CROWD]
    rows = [tuple(map(one_line, _replica_cells(replica, nodes))) for replica in shown]
    widths = [max((columns(row[at]) for row in rows), default=0) for at in range(4)]
    window = width_of(stream)
    for row in rows:
        filled = [at for at in (1, 2, 3) if widths[at]]
        cells = [row[0].rjust(widths[0]), *(row[at].ljust(widths[at]) for at in filled), row[4]]
        line = fit("  " + "  ".join(cells).rstrip(), window)
        lines.append(line.replace(row[1], paint_state(row[1], stream), 1))
    if len(role.replicas) > len(shown):
        more = f"  {len(role.replicas) - len(shown)} more are not shown (all of them: -o json)"
        lines.append(paint(more, "dim", stream))
    return lines


def _replica_cells(replica: ReplicaStatus, nodes: bool) -> tuple[str, str, str, str, str]:
    """Id, state, time, process, and the rest."""
    lasted = span(replica.started_at, replica.ended_at)
    rest = [f"on {replica.hostname}"] if nodes and replica.hostname else []
    ended = how_ended(replica.attempts[-1]) if replica.attempts else ""
    if ended:
        rest.append(ended)
    if waits_for(replica):
        rest.append(f"waiting: {waits_for(replica)}")
    if told := told_of(replica):
        rest.append(told)
    if replica.attempt > 1:
        rest.append(
            f"attempt {replica.attempt} of {max(replica.attempt, replica.max_attempts)} ({_earlier(replica)})"
        )
    running = replica.pid is not None and replica.ended_at is None
    return (
        str(replica.id),
        replica.state.name,
        "" if lasted is None else duration(lasted),
        f"pid {replica.pid}" if running else "",
        "   ".join(rest),
    )


def waits_for(replica: ReplicaStatus) -> str:
    """Returns why a replica does not run yet, where its engine tells."""
    waits = replica.state.name in ("SUBMITTED", "PENDING") and replica.attempts
    return replica.attempts[-1].msg if waits else ""


def told_of(replica: ReplicaStatus) -> str:
    """Returns what its engine tells of a replica that runs, such as that it is paused."""
    runs = replica.state.name == "RUNNING" and replica.attempts
    return replica.attempts[-1].msg if runs else ""


def _earlier(replica: ReplicaStatus) -> str:
    """Returns how the attempt before the current one ended."""
    for attempt in reversed(replica.attempts[:-1]):
        lasted = span(attempt.started_at, attempt.ended_at)
        after = "" if lasted is None else f" after {duration(lasted)}"
        return f"attempt {attempt.number}: {how_ended(attempt) or attempt.state.name.lower()}{after}"
    return "the earlier ones are not known"


def how_ended(attempt: AttemptStatus) -> str:
    """Returns the exit code or the signal that ended an attempt; empty while it runs and when all is well."""
    if attempt.signal is not None:
        return attempt.signal
    return f"exit {attempt.exit_code}" if attempt.exit_code else ""
