"""Reads the logs of containers: separate streams, all replicas in order of time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from select import POLLIN, poll

from torchx.errors import StateError, TorchxError
from torchx.json_limits import Object
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import PATIENCE, Engine, EngineError
from torchx.schedulers.docker.engine.following import Following, follow
from torchx.schedulers.docker.engine.http import receive
from torchx.schedulers.docker.events import Events
from torchx.schedulers.docker.frames import (
    Frames,
    Line,
    Source,
    normalized,
    seconds_of,
    split,
    stamp,
    time_of,
)
from torchx.schedulers.docker.lookup import find_containers
from torchx.schedulers.docker.reconcile import reconcile
from torchx.schedulers.docker.replay import replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.unstarted import readable
from torchx.schedulers.shared.logs import TIME, Position, chunks, line_filter, merged, select
from torchx.scheduling.logs import LogChunk, LogQuery, Stream

READ_SIZE = 1 << 18
HUNDREDTH = 22
"""Length of a timestamp up to hundredths of a second; lines of one hundredth form a chunk."""
MOST_OPEN = 256
"""Maximum number of logs read at the same time; more than that are spooled to files first."""
MAX_PARALLEL = 16
"""Maximum number of logs spooled in parallel."""
TOGETHER = 0.01
"""Seconds to wait for lines of other replicas after a line, so that lines can be sorted by time."""
Filter = Callable[[Line], bool]
POLL_INTERVAL = 10.0
"""Seconds between checks of the containers without an event."""
REOPEN_AFTER = 1.0
"""Seconds after which a log that the engine has closed is reopened if its container still runs."""
MARGIN = 1.0
"""Seconds by which the queried time range is extended, as parts of a long line have different times."""


def read_logs(engine: Engine, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
    """Returns the logs of all replicas in order of time.

    Raises:
        StateError: the engine does not know the application, it cannot be read, or its logs were removed.
    """
    containers = readable(engine, app_id)
    keep = line_filter(query, time_of)
    if query.follow and query.until is None and not _is_over(containers):
        return _Follower(engine, app_id, query, keep).read()
    _require_logs(app_id, containers, query)
    containers = [c for c in containers if _is_wanted(query, c)]
    logs = [select(read_log(engine, one, query), keep) for one in containers]
    return _chunks(containers, select(merged(logs, MOST_OPEN, MAX_PARALLEL), None, query.tail))


def _is_over(containers: Sequence[Container]) -> bool:
    """Returns True if an application has ended, so that there is nothing to follow."""
    return not containers or replay(job_of(containers), containers).end is not None


def _require_logs(app_id: str, containers: Sequence[Container], query: LogQuery) -> None:
    """Checks that a container of the selected replicas has a log, if one has run.

    Raises:
        StateError: all of them were removed.
    """
    if any(_is_wanted(query, container) for container in containers if not container.removed):
        return
    progress = replay(job_of(containers), containers)
    for ordinal, (role, replica) in enumerate(progress.job.members):
        newest = progress.newest(ordinal)
        is_removed = ordinal in progress.lost or (newest is not None and newest.removed)
        if is_removed and query.selects(role.name, replica):
            raise StateError(f"the log of {role.name}/{replica} of {app_id} was removed with its container")


def _is_wanted(query: LogQuery, container: Container) -> bool:
    """Returns True if a container has a log, and a query selects it."""
    return container.started is not None and query.selects(container.role, container.replica)


def read_log(engine: Engine, container: Container, query: LogQuery) -> Iterator[Line]:
    """Yields the current lines of a container."""
    frames = Frames(container)
    try:
        parameters = _parameters(query, follow=False)
        connection, data = engine.stream(f"/containers/{container.id}/logs", parameters, patience=PATIENCE)
    except EngineError as error:
        if error.status == 404:
            return  # it was removed
        raise
    try:
        while True:
            yield from frames.feed(data)
            data = connection.recv(READ_SIZE)
            if not data:
                break
    except OSError as error:
        raise engine.unreachable(error) from error
    finally:
        connection.close()
    yield from frames.rest()


def _parameters(query: LogQuery, *, follow: bool, since: str = "") -> Object:
    parameters: Object = {
        "stdout": int(query.stream is not Stream.STDERR),
        "stderr": int(query.stream is not Stream.STDOUT),
        "timestamps": 1,
        "follow": int(follow),
    }
    if since:
        parameters["since"] = since
    elif query.since is not None:
        parameters["since"] = f"{query.since.timestamp() - MARGIN:.6f}"
    if query.until is not None:
        parameters["until"] = f"{query.until.timestamp() + MARGIN:.6f}"
    # the engine applies `tail` before other filters, so it is only passed if there are none
    elif query.tail is not None and query.regex is None and query.stream is Stream.COMBINED and not since:
        parameters["tail"] = query.tail
    return parameters


class FollowedLog:
    """The followed log of a container; once the engine has closed it, it continues after the last line.

    Args:
        engine: the engine.
        container: the container.
    """

    def __init__(self, engine: Engine, container: Container) -> None:
        self._engine, self._container = engine, container
        self._position: Position[bytes] = Position()
        self._connection: Following | None = None
        self._rest = b""
        self._open_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it has a descriptor to poll."""
        return self._connection is not None

    def fileno(self) -> int:
        """Returns the descriptor to poll."""
        assert self._connection is not None
        return self._connection.fileno()

    def pause(self) -> float:
        """Returns the seconds until it is to be opened."""
        if self._connection is not None:
            return math.inf
        return max(self._open_at - time.monotonic(), 0.0)

    def read(self) -> list[Line]:
        """Returns the lines since the last call, and the begun ones."""
        if self._connection is None and self.pause() <= 0:
            self._open_at = time.monotonic() + REOPEN_AFTER
            with suppress(TorchxError):
                self._position.resume()
                query = LogQuery()
                self._connection, self._rest = _follow(self._engine, self._container, self._position, query)
        if self._connection is None:
            return []
        try:
            data, closed = receive(self._connection, READ_SIZE)
        except TorchxError:  # it was removed
            data, closed = b"", True
        pieces, self._rest = split(self._rest + data)
        if closed:
            self.close()
        lines = [(*normalized(piece), stream) for stream, piece in pieces]
        fresh = [self._position.fresh((at, (self._container.id, n), text)) for at, text, n in lines]
        found = [line for line in fresh if line is not None]
        for line in found:
            self._position.note(line)
        return found

    def close(self) -> None:
        """Closes it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _follow(
    engine: Engine, container: Container, position: Position[bytes], query: LogQuery
) -> tuple[Following, bytes]:
    """Follows the log of a container after a position; see :func:`follow`."""
    since = ""
    if position.last:
        since = stamp(position.last)
    parameters = _parameters(query, follow=True, since=since)
    return follow(engine, container.id, {**parameters, "tail": "all"})


def _chunks(containers: Iterable[Container], lines: Iterable[Line]) -> Iterator[LogChunk]:
    by_id = {c.id: c for c in containers}

    def chunk_of(time: bytes, source: Source, data: bytes) -> LogChunk:
        one = by_id[source[0]]
        if source[1] == 2:
            stream = Stream.STDERR
        else:
            stream = Stream.STDOUT
        return LogChunk(one.role, one.replica, one.attempt, stream, seconds_of(time), data)

    return chunks(lines, lambda time: time[:HUNDREDTH] + b"\xff", chunk_of)


class _Follower:
    """Follows the logs of an application, over all its attempts, until it has ended."""

    def __init__(self, engine: Engine, app_id: str, query: LogQuery, keep: Filter | None) -> None:
        self._engine, self._app_id, self._query, self._keep = engine, app_id, query, keep
        self._containers: dict[str, Container] = {}
        self._open: dict[int, tuple[Following, Frames]] = {}
        self._frames: dict[str, Frames] = {}
        # the last run of each container that was read, and whether it was live when reading began
        self._runs: dict[str, tuple[float | None, bool]] = {}
        self._closed: dict[str, float] = {}  # when the engine closed the log of a live container
        self._unended: dict[str, list[Line]] = {}  # its last lines, which had no line end
        self._poll = poll()
        self._seen: list[Container] = []
        self._over = False

    def read(self) -> Iterator[LogChunk]:
        """Yields lines as they arrive."""
        events = Events(self._engine, self._app_id)
        self._poll.register(events, POLLIN)
        try:
            yield from self._history()
            while True:
                yield from _chunks(self._containers.values(), self._update(events))
                if self._over and not self._open:
                    return
                changed = False
                while not changed:
                    lines, changed = self._wait(events)
                    yield from _chunks(self._containers.values(), lines)
        finally:
            events.close()
            for connection, _ in self._open.values():
                connection.close()

    def _history(self) -> Iterator[LogChunk]:
        """Yields the existing lines in order of time."""
        query = self._query
        containers = [
            c
            for c in find_containers(self._engine, self._app_id).get(self._app_id, ())
            if _is_wanted(query, c)
        ]
        self._containers.update((c.id, c) for c in containers)
        logs = []
        for container in containers:
            self._frames[container.id] = Frames(container)
            logs.append(self._noted(container, read_log(self._engine, container, query)))
        lines = select(merged(logs, MOST_OPEN, MAX_PARALLEL), self._keep, query.tail)
        yield from _chunks(containers, lines)

    def _noted(self, container: Container, lines: Iterator[Line]) -> Iterator[Line]:
        note = self._frames[container.id].position.note
        for line in lines:
            note(line)
            yield line

    def _update(self, events: Events) -> list[Line]:
        """Opens the logs of containers that have started or ended since, and checks if all have ended.

        An engine may close the log of an ending container before its last line is written. So the log is read
        again after the container has ended.

        Returns:
            The last lines of containers whose log is no longer available.
        """
        unchanged = events.unchanged(self._seen)
        containers = self._seen = find_containers(self._engine, self._app_id, unchanged).get(self._app_id, [])
        reading = {frames.container.id for _, frames in self._open.values()}
        for container in containers:
            if not _is_wanted(self._query, container) or container.id in reading:
                continue
            # the log of a container that waits for a restart was read to its end
            if container.status == "restarting":
                continue
            run = container.started, container.live
            closed_just_now = time.monotonic() < self._closed.get(container.id, 0.0) + REOPEN_AFTER
            if self._runs.get(container.id) == run and (closed_just_now or not container.live):
                continue
            self._runs[container.id] = run
            self._containers[container.id] = container
            if self._follow(container):
                self._unended.pop(container.id, None)
        present = {c.id for c in containers}
        removed = [self._unended.pop(one) for one in list(self._unended) if one not in present]
        self._over = _is_over(containers)
        reconcile(self._engine, containers)
        return self._kept([line for lines in removed for line in lines])

    def _kept(self, lines: list[Line]) -> list[Line]:
        return list(select(iter(sorted(lines, key=TIME)), self._keep))

    def _follow(self, container: Container) -> bool:
        """Opens the log of a container after its last line; returns False if the container was removed."""
        frames = self._frames.get(container.id) or Frames(container)
        self._frames[container.id] = frames
        frames.resume()
        with suppress(EngineError):
            query = self._query
            connection, frames.held_back = _follow(self._engine, container, frames.position, query)
            self._open[connection.fileno()] = (connection, frames)
            self._poll.register(connection, POLLIN)
            return True
        return False

    def _wait(self, events: Events) -> tuple[list[Line], bool]:
        """Waits for lines or events; returns the lines, and whether the containers may have changed."""
        pending = any(frames.held_back for _, frames in self._open.values())
        ready = self._poll.poll(0 if pending else POLL_INTERVAL * 1000)
        if not ready and not pending:
            return [], True
        if len(self._open) > 1 and any(fd != events.fileno() for fd, _ in ready):
            time.sleep(TOGETHER)
            ready = self._poll.poll(0)
        changed = False
        lines: list[Line] = []
        for descriptor in {fd for fd, _ in ready} | {fd for fd, (_, f) in self._open.items() if f.held_back}:
            if descriptor == events.fileno():
                changed = True
                self._poll.unregister(descriptor)
                if not events.clear():
                    raise EngineError(503, "the engine stopped while its logs were followed")
                self._poll.register(events, POLLIN)
                continue
            more, closed = self._receive(descriptor)
            lines += more
            changed = changed or closed
        return self._kept(lines), changed

    def _receive(self, descriptor: int) -> tuple[list[Line], bool]:
        connection, frames = self._open[descriptor]
        data, frames.held_back = frames.held_back, b""
        lines = frames.feed(data) if data else []
        try:
            received, closed = receive(connection, READ_SIZE)
        except EngineError:  # it was removed
            received, closed = b"", True
        lines += frames.feed(received)
        if closed:
            container = frames.container.id
            if self._runs[container][1]:
                self._closed[container] = time.monotonic()
                self._unended[container] = frames.rest()
            else:
                lines += frames.rest()
            self._poll.unregister(connection)
            del self._open[descriptor]
            connection.close()
        for line in lines:
            frames.position.note(line)
        return lines, closed
