"""Collect the state, the measurements and the last line of each replica."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from torchx import excerpts
from torchx.errors import TorchxError
from torchx.scheduling.logs import LogQuery
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import is_terminal
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.status_text import how_ended

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.scheduling.usage import Sample

SHORTEST = 0.5
"""Minimum seconds between two rounds."""

CPU_SHARE = 0.03
"""Maximum share of one core for reading: a round that takes longer is followed by a longer pause."""

WALL_SHARE = 0.25
"""Maximum share of the time during which an engine is queried."""

RELIST = 2.0
"""Minimum seconds between two queries for new applications."""

TAIL = 400
"""Maximum number of lines that are read in one round, for the last one of each replica."""

_FAILED = (TorchxError, NotImplementedError, OSError)


@dataclass
class ReplicaRow:
    """A replica.

    Attributes:
        role: name of its role.
        replica: its id.
        state: its state, or how it ended.
        attempt: the number of its attempt.
        sample: its latest measurement, None if it is not running or not measured.
        last: the last line that it printed.
    """

    role: str
    replica: int
    state: str
    attempt: int
    sample: Sample | None = None
    last: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns plain data."""
        sample = self.sample
        return {
            "role": self.role,
            "replica": self.replica,
            "state": self.state,
            "attempt": self.attempt,
            "cpu": sample.cpu if sample else None,
            "memory": sample.memory if sample else None,
            "gpu": sample.gpu if sample else None,
            "gpu_memory": sample.gpu_memory if sample else None,
            "output": sample.output if sample else None,
            "last_line": mask_text(self.last),
        }


@dataclass
class AppRows:
    """An application.

    Attributes:
        handle: its handle.
        state: its state.
        replicas: its replicas.
        description: the description by its engine; None before the first round.
        error: the reason if the engine cannot be queried.
    """

    handle: str
    state: str = "UNKNOWN"
    replicas: list[ReplicaRow] = field(default_factory=list)
    description: DescribeAppResponse | None = None
    error: str = ""

    @property
    def app_id(self) -> str:
        """Its id."""
        return parse_app_handle(self.handle).app_id

    @property
    def has_ended(self) -> bool:
        """True if it has ended."""
        return self.description is not None and is_terminal(self.description.state)

    def to_json(self) -> dict[str, Any]:
        """Returns plain data."""
        return {
            "handle": self.handle,
            "app_id": self.app_id,
            "scheduler": parse_app_handle(self.handle).scheduler_backend,
            "state": self.state,
            "replicas": [replica.to_json() for replica in self.replicas],
        }


class Collector:
    """Reads applications; in a thread, as often as its share of the processor and of the time allows.

    Args:
        runner: used to query the engines.
        find: returns the handles of the applications to show; called repeatedly.

    Attributes:
        changed: called in the thread after each round.
        apps: the applications, replaced after each round.
        rounds: the number of rounds.
        error: the first unexpected error of the thread.
    """

    def __init__(self, runner: Runner, find: Callable[[], Iterable[str]]) -> None:
        self._runner, self._find = runner, find
        self.changed: Callable[[], None] = lambda: None
        self.apps: list[AppRows] = []
        self.rounds = 0
        self.error: Exception | None = None
        self._handles: list[str] = []
        self._listed = -RELIST
        self._last: dict[str, dict[tuple[str, int], str]] = {}
        self._read: dict[str, float] = {}  # the time of the last line that was read
        self._wake = threading.Event()
        self._stop = False

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="top", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread after its current query."""
        self._stop = True
        self._wake.set()

    def refresh(self) -> None:
        """Begins the next round now."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stop:
            used, began = time.process_time(), time.monotonic()
            try:
                self.collect()
            except Exception as error:  # raised by the main thread
                self.error = error
                self._stop = True
            self.changed()
            cost, took = time.process_time() - used, time.monotonic() - began
            self._wake.wait(max(SHORTEST, cost / CPU_SHARE, took / WALL_SHARE if took > 1 else 0.0))
            self._wake.clear()

    def collect(self) -> list[AppRows]:
        """Reads all applications once, and returns them."""
        now = time.monotonic()
        if now - self._listed >= RELIST:
            known = set(self._handles)
            new = [handle for handle in self._find() if handle not in known]
            self._handles = new + self._handles
            took = time.monotonic() - now
            self._listed = time.monotonic() + (took / WALL_SHARE if took > 1 else 0.0)
        before = {app.handle: app for app in self.apps}
        self.apps = [self._app(handle, before.get(handle)) for handle in self._handles]
        self.rounds += 1
        return self.apps

    def _app(self, handle: str, before: AppRows | None) -> AppRows:
        if before is not None and before.has_ended:
            return before
        try:
            described = self._runner.description(handle, brief=True)
            usage = self._runner.usage(handle) if described is not None else None
        except _FAILED as error:
            app = before or AppRows(handle)
            app.error = mask_text(str(error).split("\n", 1)[0])
            return app
        if described is None:
            return AppRows(handle, error="it is no longer known to its scheduler")
        samples = {(r.role, r.replica): r.latest for r in usage.replicas} if usage is not None else {}
        last = self._last_lines(handle, described)
        rows = [
            ReplicaRow(
                role.role,
                replica.id,
                (how_ended(replica.attempts[-1]) if replica.attempts else "") or replica.state.name,
                replica.attempt,
                samples.get((role.role, replica.id)),
                last.get((role.role, replica.id), ""),
            )
            for role in described.roles_statuses
            for replica in role.replicas
        ]
        return AppRows(handle, described.state.name, rows, described)

    def _last_lines(self, handle: str, described: DescribeAppResponse) -> dict[tuple[str, int], str]:
        """Returns the last known line of each replica."""
        last = self._last.setdefault(handle, {})
        newest = self._read.get(handle, 0.0)
        since = datetime.fromtimestamp(newest, timezone.utc) if newest else None
        try:
            for chunk in self._runner.log_chunks(handle, LogQuery(tail=TAIL, since=since)):
                lines = excerpts.last_lines([chunk], 1)
                if lines and lines[0].strip():
                    last[chunk.role, chunk.replica] = lines[0]
                newest = max(newest, chunk.time)
        except _FAILED:
            return last  # the state is shown without lines
        self._read[handle] = newest
        return last
