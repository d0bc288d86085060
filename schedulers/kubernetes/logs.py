"""Reads the logs of pods: all replicas and attempts in chronological order."""

from __future__ import annotations

import calendar
import functools
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import datetime, timezone
from typing import NamedTuple

from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.api.bulk import BulkReader
from torchx.schedulers.kubernetes.api.client import Cluster, Object, lines_of, path_of
from torchx.schedulers.kubernetes.api.connection import why
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import short
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.names import CONTAINER
from torchx.schedulers.kubernetes.state.attempts import container_of
from torchx.schedulers.kubernetes.state.replicas import Member, members_of, number_of, replica_of, run_of
from torchx.schedulers.kubernetes.state.taken import node_of
from torchx.schedulers.shared import logs as shared
from torchx.scheduling.logs import LogChunk, LogQuery, Stream

with lazy_imports:
    import urllib3


SECOND = 1_000_000_000
CHUNK_WINDOW = SECOND // 100
"""Nanoseconds within which lines of one replica form a chunk."""
MAX_PARALLEL = 16
"""Maximum number of logs read in parallel; more than that are spooled to files first."""
MAX_TAILS = 8
"""Maximum number of last lines read in parallel: the connections that the client keeps open."""
SILENCE = 60.0
"""Seconds without data after which the reading of an existing log fails."""
_STAMP = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)"
_NO_LOG = b"unable to retrieve container logs for "

Line = tuple[int, int, bytes]
"""Time in nanoseconds since the epoch, number of the source, text."""


class Source(NamedTuple):
    """The log of one run of a pod's container.

    Attributes:
        pod: the name of the pod.
        restart: the number of restarts before this run.
        previous: whether a later run exists.
        member: its replica.
        attempt: the number of the attempt.
        ended: whether the log is complete.
        node: the node of the pod.
    """

    pod: str
    restart: int
    previous: bool
    member: Member
    attempt: int
    ended: bool
    node: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """The unique key of the log."""
        return self.pod, self.restart


def sources_of(facts: Facts, query: LogQuery) -> list[Source]:
    """Returns the existing logs of the replicas in a query."""
    members = {m.key: m for m in members_of(facts)}
    older: dict[tuple[int, int], int] = {}
    sources: list[Source] = []
    for pod in sorted(facts.pods, key=run_of):
        place = replica_of(pod)
        number = number_of(pod, older.get(place, 0))
        older[place] = older.get(place, 0) + 1
        member = members.get(place)
        if member is not None and query.selects(member.role, member.replica):
            sources += _of_pod(pod, member, number)
    return sources


def _of_pod(pod: Object, member: Member, number: int) -> Iterator[Source]:
    status = container_of(pod)
    name, restarts = str(pod["metadata"]["name"]), int(status.get("restartCount") or 0)
    state, node = status.get("state") or {}, node_of(pod)
    waits = "running" not in state and "terminated" not in state
    if restarts:
        # between two runs, the node still treats the last one as current
        last = restarts - (0 if waits else 1)
        yield Source(name, restarts - 1, not waits, member, number + restarts - 1, True, node)
        if waits or last < 0:
            return
    if not waits:
        yield Source(name, restarts, False, member, number + restarts, "terminated" in state, node)


def parse(line: bytes, source: int, before: int) -> Line:
    """Splits a line into time and text.

    Args:
        line: the line from the cluster.
        source: the number of its source.
        before: the time of the previous line, used for a line without a time.

    >>> parse(b"2026-11-21T01:11:33.5Z hi\\n", 0, 0)
    (1795223493500000000, 0, b'hi\\n')
    """
    stamp, blank, rest = line.partition(b" ")
    match = re.fullmatch(_STAMP, stamp) if blank else None
    if match is None:
        return before, source, line
    fraction = int((match[2] or b"").ljust(9, b"0"))
    return _seconds(match[1], match[3]) * SECOND + fraction, source, rest


@functools.lru_cache(maxsize=256)
def _seconds(text: bytes, zone: bytes) -> int:
    seconds = calendar.timegm(time.strptime(text.decode(), "%Y-%m-%dT%H:%M:%S"))
    if zone == b"Z":
        return seconds
    offset = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return seconds - (offset if zone[:1] == b"+" else -offset)


def time_of(moment: datetime) -> int:
    """Returns a moment in nanoseconds since the epoch."""
    return int(moment.timestamp() * 1e6) * 1000


def log_params(source: Source, query: LogQuery, *, follow: bool = False, from_ns: int = 0) -> Object:
    """Returns the query parameters for a log.

    Args:
        source: the log.
        query: the query.
        follow: follow the log until it ends.
        from_ns: earliest time; rounded down to whole seconds.
    """
    params: Object = {"container": CONTAINER, "timestamps": "true"}
    if source.previous:
        params["previous"] = "true"
    if follow:
        params["follow"] = "true"
    if not from_ns and query.since is not None:
        from_ns = int(query.since.timestamp()) * SECOND
    if from_ns:
        at = datetime.fromtimestamp(from_ns // SECOND, timezone.utc)
        params["sinceTime"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    # the cluster counts before filters apply: it may count only without filters
    elif query.tail is not None and query.regex is None and query.until is None and not follow:
        params["tailLines"] = query.tail
    return params


def log_path(namespace: str, pod: str) -> str:
    """Returns the path of a pod's log."""
    return path_of("v1", "pods", namespace, pod) + "/log"


def is_no_log(raw: bytes) -> bool:
    """Returns True for the node's message that a container is missing; log lines start with a time."""
    return raw.startswith(_NO_LOG)


def read_log(
    reader: BulkReader, facts: Facts, source: Source, number: int, query: LogQuery
) -> Iterator[Line]:
    """Yields the existing lines of a log; none if it was deleted or has not started."""
    try:
        response = reader.stream(log_path(facts.namespace, source.pod), log_params(source, query))
    except ClusterError as error:
        if error.status in (400, 404):
            return
        raise
    before = 0
    try:
        for raw in lines_of(response):
            line = parse(raw, number, before)
            if is_no_log(raw):
                return
            before = line[0]
            yield line
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ClusterError(f"the log of pod {source.pod} broke off: {why(error)}") from None
    finally:
        response.close()


Missing = dict[Source, ClusterError]
"""Logs that cannot be read, as their nodes do not answer; the others are read."""


def _read_if_possible(lines: Iterator[Line], source: Source, missing: Missing) -> Iterator[Line]:
    """Yields the lines of a log; none without a response of its node, which is requested once."""
    known = [error for other, error in missing.items() if other.node == source.node and error.of_node]
    if known:
        missing[source] = known[0]
        return
    try:
        yield from lines
    except ClusterError as error:
        if error.hopeless or (error.status and not error.passes):
            raise
        missing[source] = error


def require_all(missing: Missing) -> None:
    """Raises the first error, once the other logs have been read.

    Raises:
        ClusterError: a log is missing.
    """
    members = sorted({(each.member.role_index, each.member.replica, each.member.role) for each in missing})
    names = [f"{role}/{replica}" for _, replica, role in members]
    for error in missing.values():
        error.message = f"lines of {short(', '.join(names))} are missing: {error.message}"
        raise error


def merged(
    cluster: Cluster, facts: Facts, sources: list[Source], query: LogQuery, missing: Missing
) -> Iterator[Line]:
    """Yields the existing lines of several logs in chronological order."""
    with closing(BulkReader(cluster, SILENCE)) as reader:
        readers = _readers(reader, facts, sources, query, missing)
        yield from shared.merged(readers, MAX_PARALLEL, MAX_PARALLEL)


def last_lines(
    cluster: Cluster, facts: Facts, sources: list[Source], query: LogQuery, tail: int, missing: Missing
) -> Iterator[Line]:
    """Yields the last lines of a query in chronological order, whatever the number of logs."""
    keep = shared.line_filter(query, time_of)
    with closing(BulkReader(cluster, SILENCE)) as reader:
        readers = _readers(reader, facts, sources, query, missing)
        yield from shared.last_lines(readers, keep, tail, MAX_TAILS)


def _readers(
    reader: BulkReader, facts: Facts, sources: list[Source], query: LogQuery, missing: Missing
) -> list[Iterator[Line]]:
    return [
        _read_if_possible(read_log(reader, facts, source, number, query), source, missing)
        for number, source in enumerate(sources)
    ]


def chunks(sources: list[Source], lines: Iterable[Line]) -> Iterator[LogChunk]:
    """Groups consecutive lines of one replica into chunks."""

    def chunk_of(time: int, number: int, data: bytes) -> LogChunk:
        source = sources[number]
        role, replica = source.member.role, source.member.replica
        return LogChunk(role, replica, source.attempt, Stream.COMBINED, time / SECOND, data)

    return shared.chunks(lines, lambda time: time + CHUNK_WINDOW, chunk_of)


def read_logs(cluster: Cluster, facts: Facts, query: LogQuery) -> Iterator[LogChunk]:
    """Yields the existing lines of a query.

    Raises:
        ClusterError: logs could not be read; the lines of the others have been returned.
    """
    sources, missing = sources_of(facts, query), Missing()
    if query.tail is not None and len(sources) > MAX_PARALLEL:
        lines = last_lines(cluster, facts, sources, query, query.tail, missing)
    else:
        keep = shared.line_filter(query, time_of)
        lines = shared.select(merged(cluster, facts, sources, query, missing), keep, query.tail)
    yield from chunks(sources, lines)
    require_all(missing)
