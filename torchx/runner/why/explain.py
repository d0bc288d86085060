"""Explain the state of an application: cause, last lines, measurements, and differences from a success."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from torchx import excerpts
from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.masking import MASK, SecretValue, add_references
from torchx.printable import shortened
from torchx.runner import first_failure
from torchx.scheduling import causes, logs
from torchx.scheduling.causes import Cause
from torchx.scheduling.query import AppQuery
from torchx.scheduling.responses import status_of
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import AppState, AppStatus
from torchx.sweeps import after
from torchx.sweeps.scheduler import SweepScheduler

with lazy_imports:
    import os

    from torchx.runner import queue

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.runner.first_failure import Evidence
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.scheduling.logs import LogChunk
    from torchx.scheduling.measurement import AppUsage
    from torchx.specs.app import Role
    from torchx.sweeps.view import Sweep

EVIDENCE = 40
"""Last lines of the replica that failed first in which its cause is searched."""

SHOWN = 10
"""Last lines of the replica that failed first that are shown."""

OTHERS = 4
"""Distinct lines of other replicas that are shown."""

MOST_REPLICAS = 64
"""Other replicas whose last lines are read."""

LONGEST_LINE = 240
"""Maximum characters of a line that is shown."""

MOST_COMPARED = 20
"""Applications of the same name among which one with the same programs is searched."""

_SHELL = ("sh", "bash", "-c")
_RANK = r"(?i)(\brank\W{0,2})\d+|^\[\w+\d+\]"
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


class Difference(NamedTuple):
    """A difference from the last success.

    Attributes:
        part: the part that differs.
        before: its value in the application that succeeded; None without one.
        now: its value in this application; None without one.
    """

    part: str
    before: str | None
    now: str | None


@dataclass
class Explanation:
    """The state of an application, explained.

    Attributes:
        handle: the application.
        name: its name.
        status: its status.
        cause: the cause of its state.
        evidence: the evidence of the first failure.
        last_output: the time of its last output, if it is running.
        lines: the distinct last lines of its replicas.
        usage: its measurements.
        success: the last application of this name that succeeded before it.
        differences: the differences from that one, which the caller adds.
        commands: the commands that may help next.
    """

    handle: str
    name: str
    status: AppStatus
    cause: Cause
    evidence: Evidence | None = None
    last_output: datetime | None = None
    lines: list[Line] = field(default_factory=list)
    usage: AppUsage | None = None
    success: str | None = None
    differences: list[Difference] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def explain(runner: Runner, handle: str, described: DescribeAppResponse, name: str) -> Explanation:
    """Explains the state of an application.

    Args:
        runner: used to read logs, measurements and other applications.
        handle: the application.
        described: its full description.
        name: a short name of it, for commands.
    """
    status = status_of(described)
    first = status.first_failure
    printed = _last_chunks(runner, handle, status)
    found = None
    if first is None:
        cause = causes.classify(status.state, status.msg, None, known=status.cause)
    else:
        found = first_failure.evidence_of(runner, handle, status, EVIDENCE)
        cause = found.cause
    made = Explanation(handle, described.name, status, cause, found)
    engine, app_id = runner.scheduler_of(handle), parse_app_handle(handle).app_id
    others: list[str] = []
    if isinstance(engine, SweepScheduler):
        sweep = engine.sweep(app_id)
        if sweep.progress.held and status.state is AppState.PENDING:
            made.cause = made.cause._replace(name="held")
        elif sweep.queued:
            _explain_waiting(made, sweep.queued)
        others = _others(runner, sweep, made)
    elif status.state is AppState.SUBMITTED and engine.waits_in_queue:
        _explain_waiting(made, [app_id])
    made.lines = _distinct(found, printed)
    if status.state is AppState.RUNNING:
        made.last_output = _last_output(printed)
    try:
        made.usage = runner.usage(handle)
    except (TorchxError, OSError):
        made.usage = None  # the cause is known without it
    if status.state is not AppState.SUCCEEDED:
        made.success = _last_success(runner, handle, described)
    again = rerun_command(name, described.roles)
    if engine.has_runs:
        again = again.replace("torchx rerun", "torchx rerun --failed", 1)
    made.commands = [f"torchx why {shlex.quote(other)}" for other in others]
    if made.cause.name != "dependency_failed" or not others:
        made.commands += _commands(made, shlex.quote(name), again)
    return made


def _explain_waiting(made: Explanation, app_ids: Collection[str]) -> None:
    """Adds the place in the queue of this machine: held, or behind the applications that hold the GPUs.

    Args:
        made: the explanation, to which it is added.
        app_ids: the application, or the runs of a sweep that wait in the queue.
    """
    held = {row.held: row for row in queue.waiting_rows() if row.own and row.app_id in app_ids}
    if not held:
        return
    cause = made.cause._replace(name="held")
    if False in held:
        evidence = [made.cause.evidence]
        if held[False].gpus:
            evidence += _gpu_holders()
        cause = made.cause._replace(name="queued", evidence="; ".join(evidence))
    if made.status.state is AppState.RUNNING:
        cause = cause._replace(name=made.cause.name)
    made.cause = cause


def _gpu_holders() -> Iterator[str]:
    """Yields the holders of the GPUs of this machine."""
    holders: dict[str, list[str]] = {}
    for gpu in queue.gpu_rows(os.environ):
        if not gpu.is_free:
            holders.setdefault(gpu.app or f"{gpu.program or 'a process'} of {gpu.user}", []).append(gpu.gpu)
    for holder, gpus in holders.items():
        yield f"{holder} holds GPU {', '.join(gpus)}"


def _others(runner: Runner, sweep: Sweep, made: Explanation) -> list[str]:
    """Returns the applications that the runs of a sweep wait for, or whose ends kept them from starting."""
    left = [other for number, other in enumerate(sweep.header.after) if number not in sweep.progress.met]
    if left and not sweep.has_ended:
        made.cause = Cause("after", "engine", made.status.msg)
        return [other for other, _ in left]
    if not sweep.progress.reason:
        return []
    found = []
    for other, condition in left:
        try:
            ended = runner.status(other)
        except _UNEXPECTED:
            ended = None
        if ended is None or (ended.is_terminal() and not after.is_met(condition, ended.state.name)):
            found.append(other)
            made.cause = Cause("dependency_failed", "engine", made.status.msg)
    return found


def _last_chunks(runner: Runner, handle: str, status: AppStatus) -> list[LogChunk]:
    """Returns the ends of the logs of the other replicas that have failed; without a failure, of all."""
    first = status.first_failure
    if status.state in (AppState.SUBMITTED, AppState.PENDING):
        return []
    alike = [r for r in status.replicas if first is None or r.state is AppState.FAILED]
    others: dict[str, set[int]] = {}
    for replica in alike[:MOST_REPLICAS]:
        if first is None or (replica.role, replica.id) != (first.role, first.replica):
            others.setdefault(replica.role, set()).add(replica.id)
    if not others:
        return []
    tail = max(EVIDENCE, 4 * sum(map(len, others.values())))
    query = logs.LogQuery({role: frozenset(ids) for role, ids in others.items()}, tail=tail)
    try:
        return list(runner.log_chunks(handle, query))
    except _UNEXPECTED:
        return []  # the status is known without the log


def _last_output(printed: Iterable[LogChunk]) -> datetime | None:
    last = max((chunk.time for chunk in printed), default=0.0)
    if last:
        return datetime.fromtimestamp(last).astimezone()
    return None


def _distinct(found: Evidence | None, printed: Iterable[LogChunk]) -> list[Line]:
    """Returns the last lines, each once; without a failure, the last one of each replica."""
    by_replica: dict[str, list[LogChunk]] = {}
    for chunk in printed:
        by_replica.setdefault(f"{chunk.role}/{chunk.replica}", []).append(chunk)
    count = 1
    if found is not None or len(by_replica) == 1:
        count = SHOWN
    lasts = {name: excerpts.last_lines(chunks, count) for name, chunks in by_replica.items()}
    if found is not None:
        lasts = {found.replica: (found.error or found.lines)[-SHOWN:], **lasts}
    lines: dict[str, Line] = {}
    for name, last in lasts.items():
        seen = set()
        for text in filter(str.strip, last):
            key = re.sub(_RANK, r"\1", text).strip()
            line = lines.setdefault(key, Line(shortened(text, LONGEST_LINE), name, 0))
            line.replicas += key not in seen
            seen.add(key)
    shown = list(lines.values())
    if found is not None:
        others = [line for line in shown if line.replica != found.replica]
        return [line for line in shown if line.replica == found.replica] + others[-OTHERS:]
    if len(shown) > SHOWN:  # the rarest and the most common ones
        shown.sort(key=lambda line: line.replicas)
        shown[SHOWN // 2 : -SHOWN // 2] = []
    return shown


def _last_success(runner: Runner, handle: str, described: DescribeAppResponse) -> str | None:
    """Returns the last application of this name with the same programs that succeeded before."""
    scheduler, _, app_id = parse_app_handle(handle)
    query = AppQuery(called=described.name, states=frozenset({"SUCCEEDED"}))
    until = described.submitted_at
    try:
        earlier = (
            app
            for app in runner.select(scheduler, query)
            if app.is_own and app.name == described.name != "" and app.app_id != app_id
            if until is None or app.submitted_at is None or app.submitted_at < until
        )
        for app in islice(earlier, MOST_COMPARED):
            before = runner.description(app.app_handle)
            if before is not None and _programs(before) == _programs(described):
                return app.app_handle
    except _UNEXPECTED:
        return None
    return None


def _programs(described: DescribeAppResponse) -> list[str | None]:
    """Returns the program of each role; in a shell, the first one of its command line."""
    commands = [" ".join([role.entrypoint, *role.args]).split() for role in described.roles]
    return [next((word for word in command if word not in _SHELL), None) for command in commands]


def rerun_command(name: str, roles: Iterable[Role]) -> str:
    """Returns the command that submits an application again, with the secrets that its record lacks.

    Args:
        name: a name of the application.
        roles: its roles, as recorded.
    """
    env = [pair for role in roles for pair in role.env.items()]
    secret = {name for name, value in env if value == MASK or isinstance(value, SecretValue)}
    add_references(secret)
    return f"torchx rerun {shlex.quote(name)}" + "".join(f" --secret {key}" for key in sorted(secret))


def _commands(made: Explanation, name: str, again: str) -> list[str]:
    status, first = made.status, made.status.first_failure
    if made.cause.name == "held":
        return [f"torchx queue release {name}", f"torchx cancel {name}"]
    if made.cause.name == "queued":
        return ["torchx queue", f"torchx wait --for running {name}", f"torchx cancel {name}"]
    if made.cause.name == "stalled" and status.state is AppState.RUNNING:
        return [f"torchx stacks {name}", f"torchx log -n 100 {name}", f"torchx cancel {name}"]
    if status.state in (AppState.SUBMITTED, AppState.PENDING):
        return [f"torchx wait --for running {name}", f"torchx cancel {name}"]
    if status.state is AppState.RUNNING:
        return [f"torchx wait {name}", f"torchx log -n 100 {name}", f"torchx cancel {name}"]
    if first is not None:
        rank = None
        if made.evidence is not None:
            rank = made.evidence.rank
        of_rank = ""
        if rank is not None and rank.rank is not None:
            of_rank = f" --rank {rank.rank}"
        if made.evidence is not None:
            replica = made.evidence.replica
        else:
            replica = f"{first.role}/{first.replica}"
        commands = [f"torchx log {name}/{shlex.quote(replica)}{of_rank}"]
    else:
        commands = [f"torchx log {name}", f"torchx events {name}"]
    if made.cause.name in ("node_lost", "image", "not_started", "unknown", "out_of_memory"):
        commands.append(f"torchx describe {name}")
    if status.state is AppState.SUCCEEDED:
        return commands
    return [*commands, again]
