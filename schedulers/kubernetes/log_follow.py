"""Follows the logs of an application on a cluster, with a thread for each log, until it has ended."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes import logs
from torchx.schedulers.kubernetes.api.client import Cluster, hang_up, lines_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.logs import SECOND, Line, Source
from torchx.schedulers.kubernetes.objects import gather, require
from torchx.schedulers.kubernetes.reconcile import note_outcome, reconcile_objects
from torchx.schedulers.kubernetes.status import describe
from torchx.schedulers.kubernetes.watch import Watch
from torchx.schedulers.shared.logs import TIME, Position, line_filter, select
from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.scheduling.pace import LONGEST
from torchx.specs.status import is_terminal

with lazy_imports:
    import urllib3


BATCH_WINDOW = 0.02
"""Seconds to wait for lines of other replicas after the first line, to sort them by time."""
PAUSE = 0.3
"""Seconds before a log that has ended or broken off is requested again."""
LAST_TRIES = 3
"""Maximum number of requests for a log after the end of the application, while its node does not answer."""
LAST_SILENCE = 60.0
"""Seconds without a line after the end of the application, after which no log is read any more."""
QUEUE_SIZE = 10_000


class _Reader:
    """Reads new lines of one log in a thread; resumable.

    Args:
        cluster: the cluster.
        path: the path of the log.
        source: the log.
        number: the number of the source.
        output: receives lines, and the number of the source when the log has ended.
    """

    def __init__(
        self, cluster: Cluster, path: str, source: Source, number: int, output: queue.Queue[Line | int | None]
    ) -> None:
        self._cluster, self._path, self._source = cluster, path, source
        self._number, self._output = number, output
        self._position: Position[int] = Position()
        self._response: Any = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._open: Line | None = None  # the last line, while it may be incomplete
        self.reading = False
        self.broken = False
        self.done = False
        self.tries = LAST_TRIES
        self.error: ClusterError | None = None
        self.lost: ClusterError | None = None  # of the last request

    def note(self, line: Line) -> Line:
        """Records a line as emitted."""
        self._position.note(line)
        return line

    def start(self, query: LogQuery, pause: float = 0.0) -> None:
        """Starts or resumes reading."""
        self.reading = True
        self._thread = threading.Thread(
            target=self._run, args=(query, pause), name=f"log {self._source.pod}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stops reading without an error."""
        self._stopped.set()
        response = self._response
        if response is not None:
            hang_up(response)

    def join(self) -> None:
        """Waits for the thread to end."""
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self, query: LogQuery, pause: float) -> None:
        self._stopped.wait(pause)
        self.broken = False
        self.lost = None
        try:
            if not self._stopped.is_set():
                self._read(query)
            self._close_line()
        except ClusterError as error:
            self.broken = error.passes
            if error.passes:
                self.lost = error
            if not error.passes and error.status not in (400, 404):  # not started yet, or deleted
                self.error = error
            elif not error.passes:
                self._close_line()
        except (urllib3.exceptions.HTTPError, OSError):
            self.broken = True
        self._emit(self._number)

    def _read(self, query: LogQuery) -> None:
        before = self._position.last or 0
        # the log starts at a whole second: the lines emitted before are skipped
        params = logs.log_params(self._source, query, follow=True, from_ns=before // SECOND * SECOND)
        self._position.resume()
        response = self._cluster.stream(self._path, params)
        self._response = response
        try:
            if self._stopped.is_set():
                return  # stopped before the response was known
            for raw in lines_of(response):
                if logs.is_no_log(raw):
                    return
                line = logs.parse(raw, self._number, before)
                before = line[0]
                fresh = self._position.fresh(line)
                if fresh is None:
                    continue
                if self._stopped.is_set():
                    return
                if not raw.endswith(b"\n"):
                    self._open = fresh  # perhaps cut off: it is read again
                    return
                self._open = None
                self._emit(self.note(fresh))
        finally:
            self._response = None
            response.close()

    def _close_line(self) -> None:
        """Emits a last line without a line end, once the log is complete."""
        if self.done and (line := self.rest()) is not None:
            self._emit(self.note(line))

    def rest(self) -> Line | None:
        """Returns a last line without a line end that was not emitted yet."""
        line, self._open = self._open, None
        return line

    def _emit(self, item: Line | int) -> None:
        while not self._stopped.is_set():
            try:
                self._output.put(item, timeout=0.5)
                return
            except queue.Full:
                continue


def log_chunks(clusters: Clusters, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
    """Returns the logs of all replicas in chronological order.

    Raises:
        StateError: the application does not exist.
        UsageError: the query selects a stream; a cluster does not separate them.
    """
    if query.stream is not Stream.COMBINED:
        raise UsageError(
            "kubernetes keeps stdout and stderr in one log and cannot separate them", hint="omit --streams"
        )
    facts = require(clusters, app_id)
    if query.follow and query.until is None:
        return Follower(clusters.of(app_id), facts, query).read()
    return logs.read_logs(clusters.of(app_id), facts, query)


class Follower:
    """Follows the logs of an application until it has ended.

    Args:
        cluster: the cluster.
        facts: the objects of the application.
        query: the query.
    """

    def __init__(self, cluster: Cluster, facts: Facts, query: LogQuery) -> None:
        self._cluster, self._facts, self._query = cluster, facts, query
        self._keep = line_filter(query, logs.time_of)
        self._output: queue.Queue[Line | int | None] = queue.Queue(QUEUE_SIZE)
        self._sources: list[Source] = []
        self._readers: dict[tuple[str, int], _Reader] = {}
        self._changed = threading.Event()
        self._known: list[Source] = []
        self._over = False
        self._heard = 0.0  # the time of the last line, or of the end
        self._reconciling: threading.Thread | None = None

    def read(self) -> Iterator[LogChunk]:
        """Yields lines as they arrive."""
        watch = Watch(self._cluster, self._facts, self._wake)
        try:
            yield from self._history()
            while True:
                self._changed.clear()
                if self._update(watch) and self._is_complete():
                    yield from self._last_lines()
                    lost = ((source, self._readers[source.key].lost) for source in self._known)
                    logs.require_all({source: error for source, error in lost if error is not None})
                    return
                for lines in self._batches():
                    yield from logs.chunks(self._sources, select(iter(lines), self._keep))
        finally:
            watch.close()
            for reader in self._readers.values():
                reader.stop()
            for reader in self._readers.values():
                reader.join()

    def _is_complete(self) -> bool:
        """Returns True if all logs have been read, or the others have been silent for too long."""
        reading = [reader for reader in self._readers.values() if reader.reading]
        if self._output.empty() and time.monotonic() > self._heard + LAST_SILENCE:
            for reader in reading:
                reader.lost = ClusterError("their nodes are silent")
            return True
        return not reading

    def _last_lines(self) -> Iterator[LogChunk]:
        """Yields incomplete last lines of pods that were deleted."""
        rest = [line for reader in self._readers.values() if (line := reader.rest()) is not None]
        yield from logs.chunks(self._sources, select(iter(sorted(rest, key=TIME)), self._keep))

    def _reconcile(self, facts: Facts) -> None:
        """Reconciles the application in a thread, while lines are shown."""
        if self._reconciling is None or not self._reconciling.is_alive():
            self._reconciling = threading.Thread(
                target=reconcile_objects, args=(self._cluster, facts), name="reconcile", daemon=True
            )
            self._reconciling.start()

    def _wake(self) -> None:
        self._changed.set()
        with suppress(queue.Full):  # a full queue wakes the reader too
            self._output.put_nowait(None)

    def _history(self) -> Iterator[LogChunk]:
        """Yields the existing lines in chronological order."""
        query = self._query
        sources = logs.sources_of(self._facts, query)
        readers = [self._reader(source) for source in sources]
        missing = logs.Missing()
        lines = logs.merged(self._cluster, self._facts, sources, query, missing)
        noted = (readers[line[1]].note(line) for line in lines)
        yield from logs.chunks(self._sources, select(noted, self._keep, query.tail))
        for reader, source in zip(readers, sources, strict=True):
            reader.done = source.ended and source not in missing

    def _reader(self, source: Source) -> _Reader:
        number = len(self._sources)
        self._sources.append(source)
        path = logs.log_path(self._facts.namespace, source.pod)
        reader = _Reader(self._cluster, path, source, number, self._output)
        self._readers[source.key] = reader
        return reader

    def _update(self, watch: Watch) -> bool:
        """Starts readers for new logs; returns True if the application has ended."""
        if not self._over:
            self._find_sources(watch)
        self._start_readers()
        return self._over

    def _find_sources(self, watch: Watch) -> None:
        """Finds the logs, and the end of the application."""
        facts = watch.facts()
        self._over = facts is None or is_terminal(describe(facts, self._cluster.clock.now()).state)
        if facts is not None and not self._over:
            self._reconcile(facts)
        if self._over:
            self._heard = time.monotonic()
            note_outcome(self._cluster, self._facts)
            # the watch of pods may lag behind that of jobs
            facts = gather(self._cluster, self._facts.namespace, self._facts.name, events=False)
        self._known = []
        if facts is not None:
            self._known = logs.sources_of(facts, self._query)

    def _start_readers(self) -> None:
        """Reads new logs, and those that have ended or whose connection is broken once more."""
        for source in self._known:
            reader = self._readers.get(source.key)
            if reader is None:
                reader = self._reader(source)
                reader.done = source.ended
                reader.start(self._query)
            elif reader.error is not None:
                raise reader.error
            elif not reader.reading and reader.tries and (reader.broken or not reader.done):
                # read once more after the end: the state of a pod lags behind its log
                reader.done = source.ended or self._over
                reader.tries -= self._over and reader.lost is not None  # its node may never answer
                reader.start(self._query, 0.0 if source.ended and not reader.broken else PAUSE)

    def _batches(self) -> Iterator[list[Line]]:
        """Yields batches of lines until something has changed."""
        held: list[Line] = []
        end = math.inf
        happened, begun = False, time.monotonic()
        while not happened or held:
            try:
                left = min(LONGEST, max(0.0, end - time.monotonic()))
                item = self._output.get(timeout=left)
            except queue.Empty:
                yield sorted(held, key=TIME)
                held, end = [], math.inf
                happened = happened or self._changed.is_set() or time.monotonic() - begun > LONGEST
                continue
            if isinstance(item, tuple):
                held.append(item)
                self._heard = time.monotonic()
                end = min(end, time.monotonic() + BATCH_WINDOW)
                continue
            happened = True
            if item is not None:
                self._readers[self._sources[item].key].reading = False
