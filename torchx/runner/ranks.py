"""The ranks of an application: torchrun's workers, as its logs name them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchx import excerpts, torchrun
from torchx.scheduling.failure_causes import printed_cause
from torchx.scheduling.logs import LogChunk, LogQuery
from torchx.specs.status import AppStatus, Member

if TYPE_CHECKING:
    from torchx.runner.api import Runner

LINES = 20_000
"""The number of last lines of ranks that are read."""


@dataclass
class RankStatus:
    """A worker of torchrun.

    Attributes:
        rank: its rank in the application.
        role: name of the role of its replica.
        replica: id of its replica.
        last_line: the last line of it in the log; if it failed, the line that names the cause.
        failure: how it failed, from torchrun's report; None if it is not in a report.
    """

    rank: int
    role: str
    replica: int
    last_line: str = ""
    failure: torchrun.RankFailure | None = None


def ranks_of(runner: Runner, handle: str, status: AppStatus) -> list[RankStatus]:
    """Returns the ranks that the logs of the current attempts name, in order."""
    roles = [role.role for role in status.roles]
    attempts = {(each.role, each.id): each.attempt for each in status.replicas}
    regex = f"{torchrun.rank_prefix(roles)}|{torchrun.REPORT_LINE}"
    query = LogQuery(regex=regex, tail=LINES)
    lines: dict[Member, list[str]] = {}
    for (role, replica), chunks in _by_replica(runner.log_chunks(handle, query), attempts).items():
        lines[role, replica] = excerpts.last_lines(chunks, LINES)
    found: dict[Member, RankStatus] = {}
    for (role, replica), texts in lines.items():
        printed: dict[int, list[str]] = {}
        for line in texts:
            rank = torchrun.rank_of(line, roles)
            if rank is not None:
                text = torchrun.without_prefix(line)
                entry = found.setdefault((role, rank), RankStatus(rank, role, replica))
                entry.replica, entry.last_line = replica, text if text.strip() else entry.last_line
                printed.setdefault(rank, []).append(text)
        for failure in torchrun.failures_of(texts):
            if failure.rank is not None:
                entry = found.setdefault((role, failure.rank), RankStatus(failure.rank, role, replica))
                entry.failure = failure
                own = printed.get(failure.rank, [])
                entry.last_line = printed_cause(failure.exit_code, failure.signal, own)[1] or entry.last_line
    return [found[key] for key in sorted(found)]


def _by_replica(chunks: Iterable[LogChunk], attempts: dict[Member, int]) -> dict[Member, list[LogChunk]]:
    found: dict[Member, list[LogChunk]] = {}
    for chunk in chunks:
        source = chunk.role, chunk.replica
        if chunk.attempt == attempts.get(source, chunk.attempt):
            found.setdefault(source, []).append(chunk)
    return found
