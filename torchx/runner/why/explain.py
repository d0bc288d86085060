"""Explain the state of an application: cause, last lines, measurements, and differences from a success."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from torchx import excerpts
from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.runner import differences
from torchx.runner.differences import Difference
from torchx.runner.status import status_of
from torchx.scheduling import causes, logs
from torchx.scheduling.query import AppQuery
from torchx.specs.app import AppDef
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import NONE, AppState, AppStatus, FirstFailure, ReplicaStatus

with lazy_imports:
    from torchx.specs import status_text

if TYPE_CHECKING:
    from torchx.runner.applications import Applications
    from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
    from torchx.scheduling.causes import Cause
    from torchx.scheduling.logs import LogChunk
    from torchx.scheduling.usage import AppUsage

EVIDENCE = 40
"""Last lines of the replica that failed first in which its cause is searched."""

SHOWN = 10
"""Last lines of the replica that failed first that are shown."""

OTHERS = 4
"""Distinct lines of other replicas that are shown."""

MOST_REPLICAS = 64
"""Other replicas whose last lines are read."""

MOST_DIFFERENCES = 8
"""Differences from the last success that are shown."""

LONGEST_LINE = 240
"""Maximum characters of a line that is shown."""

_RANK = re.compile(r"(\brank\W{0,2})\d+|^\[\w+\d+\]", re.I)
_UNEXPECTED = (TorchxError, NotImplementedError, OSError)


@dataclass
class Line:
    """A last line, and the replicas that have printed it.

    Attributes:
        line: the text, without control codes.
        replica: the first of these replicas, ``role/replica``.
        replicas: their number.
    """

    line: str
    replica: str
    replicas: int


@dataclass
class Explanation:
    """The state of an application, explained.

    Attributes:
        handle: the application.
        name: its name.
        status: its status.
        cause: the cause of its state.
        last_output: the time of its last output, if it is running.
        lines: the distinct last lines of its replicas.
        usage: its measurements.
        success: the last application of this name that succeeded before it.
        differences: the differences from that one.
        hidden: the number of further differences.
        commands: the commands that may help next.
    """

    handle: str
    name: str
    status: AppStatus
    cause: Cause
    last_output: datetime | None = None
    lines: list[Line] = field(default_factory=list)
    usage: AppUsage | None = None
    success: str | None = None
    differences: list[Difference] = field(default_factory=list)
    hidden: int = 0
    commands: list[str] = field(default_factory=list)


def explain(runner: Applications, handle: str, described: DescribeAppResponse, name: str) -> Explanation:
    """Explains the state of an application.

    Args:
        runner: used to read logs, measurements and other applications.
        handle: the application.
        described: its full description.
        name: a short name of it, for commands.
    """
    status = status_of(described)
    first = status.first_failure
    printed = _last_chunks(runner, handle, status, first)
    own = [c for c in printed if first is None or (c.role, c.replica) == (first.role, first.replica)]
    ended = [c for c in own if first is not None and c.attempt == first.attempt] or own
    tail = excerpts.last_lines(ended, EVIDENCE)
    cause = causes.classify(status.state, status.msg, first, tail, _error_file(status))
    made = Explanation(handle, described.name, status, cause)
    made.lines = _distinct(tail, first, printed)
    if status.state is AppState.RUNNING:
        made.last_output = _last_output(printed)
    try:
        made.usage = runner.usage(handle)
    except (TorchxError, OSError):
        made.usage = None  # the cause is known without it
    if status.state is not AppState.SUCCEEDED:
        _compare(made, runner, described)
    made.commands = _commands(made, name)
    return made


def _last_chunks(
    runner: Applications, handle: str, status: AppStatus, first: FirstFailure | None
) -> list[LogChunk]:
    """Returns the end of the log of the replica that failed first, then those of others like it."""
    if status.state in (AppState.SUBMITTED, AppState.PENDING):
        return []
    queries = []
    if first is not None:
        queries.append(logs.LogQuery({first.role: frozenset({first.replica})}, tail=EVIDENCE))
    alike = [r for r in replicas_of(status) if first is None or r.state is AppState.FAILED]
    others: dict[str, set[int]] = {}
    for replica in alike[:MOST_REPLICAS]:
        if first is None or (replica.role, replica.id) != (first.role, first.replica):
            others.setdefault(replica.role, set()).add(replica.id)
    if others:
        count = sum(map(len, others.values()))
        ids = {role: frozenset(them) for role, them in others.items()}
        queries.append(logs.LogQuery(ids, tail=max(EVIDENCE, 4 * count)))
    read: list[LogChunk] = []
    for query in queries:
        try:
            read += runner.log_chunks(handle, query)
        except _UNEXPECTED:
            continue  # the status is known without the log
    return read


def replicas_of(status: AppStatus) -> list[ReplicaStatus]:
    """Returns all replicas of an application."""
    return [replica for role in status.roles for replica in role.replicas]


def _error_file(status: AppStatus) -> str:
    """Returns the message in the error file of the replica that failed first."""
    text = status.structured_error_msg
    if not text or text == NONE:
        return ""
    read = status_text.ErrorFile.read(text)
    return "\n".join(excerpts.last_lines_of((text if read is None else read.message).rstrip(), SHOWN))


def _last_output(printed: Iterable[LogChunk]) -> datetime | None:
    last = max((chunk.time for chunk in printed), default=0.0)
    return datetime.fromtimestamp(last).astimezone() if last else None


def _distinct(tail: list[str], first: FirstFailure | None, printed: Iterable[LogChunk]) -> list[Line]:
    """Returns the last lines, each once; without a failure, the last one of each replica."""
    by_replica: dict[str, list[LogChunk]] = {}
    for chunk in printed:
        by_replica.setdefault(f"{chunk.role}/{chunk.replica}", []).append(chunk)
    count = SHOWN if first is not None or len(by_replica) == 1 else 1
    lasts = {name: excerpts.last_lines(chunks, count) for name, chunks in by_replica.items()}
    lines: dict[str, Line] = {}
    if first is not None:
        own = f"{first.role}/{first.replica}"
        lasts = {own: tail[-SHOWN:], **{name: last for name, last in lasts.items() if name != own}}
    for name, last in lasts.items():
        seen = set()
        for text in filter(str.strip, last):
            key = _RANK.sub(r"\1", text).strip()
            line = lines.setdefault(key, Line(short(text, LONGEST_LINE), name, 0))
            line.replicas += key not in seen
            seen.add(key)
    shown = list(lines.values())
    if first is None:
        if len(shown) > SHOWN:  # the rarest and the most common ones
            shown.sort(key=lambda line: line.replicas)
            shown[SHOWN // 2 : -SHOWN // 2] = []
        return shown
    others = [line for line in shown if line.replica != own]
    return [line for line in shown if line.replica == own] + others[-OTHERS:]


def short(text: str, width: int) -> str:
    """Returns a text with a maximum number of characters."""
    return text if len(text) <= width else text[: width - 2] + ".."


def _compare(made: Explanation, runner: Applications, described: DescribeAppResponse) -> None:
    """Finds the last application of this name that succeeded before, and the differences from it."""
    before = _last_success(runner, made.handle, described)
    earlier = None
    if before is not None:
        made.success = before.app_handle
        try:
            earlier = runner.description(before.app_handle)
        except _UNEXPECTED:
            return
    if earlier is None or not earlier.roles or not described.roles:
        return
    scheduler = parse_app_handle(made.handle).scheduler_backend
    found = list(
        differences.differences(
            *(
                differences.parts_of(AppDef(d.name, d.roles, d.metadata), d.cfg, scheduler)
                for d in (earlier, described)
            )
        )
    )
    made.differences, made.hidden = found[:MOST_DIFFERENCES], max(0, len(found) - MOST_DIFFERENCES)


def _last_success(
    runner: Applications, handle: str, described: DescribeAppResponse
) -> ListAppResponse | None:
    if not described.name:
        return None
    scheduler, _, app_id = parse_app_handle(handle)
    query = AppQuery(called=described.name, states=frozenset({"SUCCEEDED"}))
    until = described.submitted_at
    try:
        for app in runner.select(scheduler, query):
            earlier = until is None or app.submitted_at is None or app.submitted_at < until
            if app.is_own and app.name == described.name and app.app_id != app_id and earlier:
                return app
    except _UNEXPECTED:
        return None
    return None


def _commands(made: Explanation, name: str) -> list[str]:
    status, first = made.status, made.status.first_failure
    if status.state in (AppState.SUBMITTED, AppState.PENDING):
        return [f"torchx wait --for running {name}", f"torchx cancel {name}"]
    if status.state is AppState.RUNNING:
        return [f"torchx wait {name}", f"torchx log -n 100 {name}", f"torchx cancel {name}"]
    if first is not None:
        commands = [f"torchx log {name}/{first.role}/{first.replica}"]
    else:
        commands = [f"torchx log {name}", f"torchx events {name}"]
    if made.cause.name in ("node_lost", "image", "not_started", "unknown", "out_of_memory"):
        commands.append(f"torchx describe {name}")
    return commands if status.state is AppState.SUCCEEDED else [*commands, f"torchx rerun {name}"]
