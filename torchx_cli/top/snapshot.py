"""Collect the state, the measurements and the last line of each replica."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from torchx import excerpts
from torchx.errors import StateError, TorchxError
from torchx.machine import threads
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.pace import pause_after, sharing
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import Member, is_terminal
from torchx.stragglers import record, text
from torchx_cli.applications import identity
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.status_text import how_ended

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.scheduling.logs import LogChunk
    from torchx.scheduling.measurement import Sample
    from torchx.specs.status import AttemptStatus

CPU_SHARE = 0.03
"""Maximum share of one core for reading: a round that takes longer is followed by a longer pause."""

LIST_SHARE = 0.01
"""Maximum share of one core for queries for new applications."""

WALL_SHARE = 0.25
"""Maximum share of the time during which an engine is queried."""

LONGEST = 10.0
"""Maximum seconds of the pause for :data:`WALL_SHARE`."""

RELIST = 2.0
"""Minimum seconds between two queries for new applications."""

TAIL = 400
"""Number of lines that are read for the last one of each replica."""

MOST_READS = 4
"""Maximum number of these reads in one round; later rounds of an engine over a network have one."""

_BLANKS = 4
"""Lines in which the last one with text is searched."""

MEASUREMENTS = ("cpu", "memory", "gpu", "gpu_memory", "output")
"""The measurements that are shown, in the order of their columns."""

_FAILED = (TorchxError, NotImplementedError, OSError)


@dataclass
class ReplicaRow:
    """A replica, or a run of a sweep.

    Attributes:
        role: name of its role.
        replica: its id.
        state: its state.
        attempt: the number of its attempt.
        sample: its latest measurement, None if it is not running or not measured.
        last: the last line that it printed.
        ended: its last attempt, which has ended with its exit code or signal.
        is_run: it is a run of a sweep.
    """

    role: str
    replica: int
    state: str
    attempt: int
    sample: Sample | None = None
    last: str = ""
    ended: AttemptStatus | None = None
    is_run: bool = False

    @property
    def name(self) -> str:
        """Its role and its id, or the number of a run."""
        if self.is_run:
            return self.role
        return f"{self.role}/{self.replica}"

    def measured(self, name: str) -> Any:
        """Returns the value of a measurement; None if it is unknown."""
        return getattr(self.sample, name, None)

    def _rounded_cpu(self) -> float | None:
        value: float | None = self.measured("cpu")
        if value is None:
            return None
        return round(value, 3)

    @property
    def end(self) -> str:
        """The nonzero exit code or the signal that ended it, as text; may be empty."""
        if self.ended is None:
            return ""
        return how_ended(self.ended)

    def to_json(self) -> Object:
        """Returns plain data."""
        return {
            "role": self.role,
            "replica": self.replica,
            "state": self.state,
            "attempt": self.attempt,
            "exit_code": getattr(self.ended, "exit_code", None),
            "signal": getattr(self.ended, "signal", None),
            **{name: self.measured(name) for name in MEASUREMENTS},
            "cpu": self._rounded_cpu(),
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
    def steps(self) -> str:
        """The progress of ranks that report steps, as text."""
        return "; ".join(text.lines_of(getattr(self.description, "steps_dir", None)))

    @property
    def has_ended(self) -> bool:
        """True if it has ended."""
        return self.description is not None and is_terminal(self.description.state)

    def to_json(self) -> Object:
        """Returns plain data."""
        return {
            **identity(self.handle),
            "state": self.state,
            "replicas": [replica.to_json() for replica in self.replicas],
            "steps": record.to_json(getattr(self.description, "steps_dir", None)),
        }


class Collector:
    """Reads applications; in threads, as often as its share of the processor and of the time allows.

    Each scheduler has its own thread, and so have queries for new applications: an engine that does not
    answer delays no other.

    Args:
        runner: used to query the engines.
        find: returns the handles of the applications to show; called repeatedly.

    Attributes:
        changed: called in a thread after each round.
        rounds: a number that differs after each round.
        error: the first unexpected error of a thread.
    """

    def __init__(self, runner: Runner, find: Callable[[], Iterable[str]]) -> None:
        self._runner, self._find = runner, find
        self.changed: Callable[[], None] = lambda: None
        self.rounds = 0
        self.error: Exception | None = None
        self._numbers = itertools.count(1)
        self._handles: list[str] = []
        self._apps: dict[str, AppRows] = {}
        self._logs: dict[str, Lines] = {}
        self._wakes: dict[str, threading.Event] = {}  # by scheduler; of queries for new applications: ""
        self._stop = False

    @property
    def apps(self) -> list[AppRows]:
        """The applications that are known, the newest first."""
        return [app for handle in self._handles if (app := self._apps.get(handle)) is not None]

    def start(self) -> None:
        """Starts the threads."""
        self._begin("", self._find_new)

    def stop(self) -> None:
        """Ends each thread after its current query."""
        self._stop = True
        self.refresh()

    def refresh(self) -> None:
        """Begins the next rounds now."""
        for wake in list(self._wakes.values()):
            wake.set()

    def _begin(self, name: str, read: Callable[[], object]) -> None:
        wake = threading.Event()
        if threads.begin(self._repeat, name, read, wake, name=f"top {name}") is not None:
            self._wakes[name] = wake
        elif not name:
            raise StateError("this user may not start another thread", hint="raise the limit: ulimit -u")

    def _repeat(self, name: str, read: Callable[[], object], wake: threading.Event) -> None:
        begun = time.monotonic()
        nearby = not name or self._runner.scheduler(name).on_this_machine
        while not self._stop:
            used, began = time.process_time(), time.monotonic()
            try:
                read()
            except Exception as error:  # raised by the main thread
                if not (self._handles and isinstance(error, _FAILED)):  # an engine may answer again
                    self.error = error
                    self._stop = True
            self.rounds = next(self._numbers)
            self.changed()
            cost, took = time.process_time() - used, time.monotonic() - began
            slow = 0.0
            if took > 1:
                slow = min(took / WALL_SHARE, LONGEST)
            if name:
                share = CPU_SHARE / max(1, len(self._wakes) - 1)
            else:
                share = LIST_SHARE
            pace = pause_after(began - begun, nearby=nearby)
            wake.wait(max(pace if name else RELIST, cost / share, slow))
            wake.clear()

    def _find_new(self) -> None:
        """Finds new applications, and starts the threads of their schedulers."""
        known = set(self._handles)
        with sharing():
            found = [*self._find()]
        self._handles = [*(handle for handle in found if handle not in known), *self._handles]
        for name in dict.fromkeys(map(_scheduler_of, self._handles)):
            if name not in self._wakes:
                self._begin(name, functools.partial(self.read, name))

    def collect(self) -> list[AppRows]:
        """Reads all applications once, and returns them."""
        self._handles = list(self._find())
        for name in dict.fromkeys(map(_scheduler_of, self._handles)):
            self.read(name)
        return self.apps

    def read(self, scheduler: str) -> None:
        """Reads the applications of a scheduler."""
        with sharing():
            for handle in self._handles:
                if _scheduler_of(handle) == scheduler:
                    self._apps[handle] = self._app(handle, self._apps.get(handle))

    def _app(self, handle: str, before: AppRows | None) -> AppRows:
        if before is not None and before.has_ended:
            return before
        try:
            described = self._runner.description(handle, brief=True)
            usage = None
            if described is not None:
                usage = self._runner.usage(handle)
        except _FAILED as error:
            app = before or AppRows(handle)
            app.error = mask_text(str(error).split("\n", 1)[0])
            return app
        if described is None:
            return AppRows(handle, error="it is no longer known to its scheduler")
        samples = {}
        if usage is not None:
            samples = {(r.role, r.replica): r.latest for r in usage.replicas}
        last = self._last_lines(handle, [(replica.role, replica.id) for replica in described.replicas])
        is_run = self._runner.scheduler_of(handle).has_runs
        rows = [
            ReplicaRow(
                replica.role,
                replica.id,
                replica.state.name,
                replica.attempt,
                samples.get((replica.role, replica.id)),
                last.get((replica.role, replica.id), ""),
                next(reversed(replica.attempts), None),
                is_run,
            )
            for replica in described.replicas
        ]
        return AppRows(handle, described.state.name, rows, described)

    def _last_lines(self, handle: str, replicas: list[Member]) -> dict[Member, str]:
        """Returns the last known line of each replica."""
        lines = self._logs.setdefault(handle, Lines())
        with contextlib.suppress(*_FAILED):  # the state is shown without lines
            later = bool(lines.last) and not self._runner.scheduler_of(handle).on_this_machine
            for _ in range(MOST_READS):
                if not lines.read(functools.partial(self._runner.log_chunks, handle), replicas) or later:
                    break
        return lines.last


class Lines:
    """The last line of each replica of an application.

    First the last lines of all replicas are read, then those of the replicas that are not among them: others
    may have printed many lines later.
    """

    def __init__(self) -> None:
        self.last: dict[Member, str] = {}
        self._since = 0.0  # all earlier lines were read
        self._newest = 0.0  # the time of the last line when all replicas were read
        self._rest: set[Member] = set()  # the replicas to read, if it is not all of them

    def read(self, chunks_of: Callable[[LogQuery], Iterable[LogChunk]], replicas: list[Member]) -> bool:
        """Reads the last lines of some replicas; returns True if those of others are left."""
        since = None
        if self._since:
            since = datetime.fromtimestamp(self._since, timezone.utc)
        chosen: dict[str, frozenset[int]] = {}
        for role, replica in self._rest:
            chosen[role] = chosen.get(role, frozenset()) | {replica}
        rest, newest = self._rest or set(replicas), 0.0
        last: dict[Member, str] = {}
        count = 0
        for chunk in chunks_of(LogQuery(chosen, tail=TAIL, since=since)):
            line = next(filter(str.strip, reversed(excerpts.last_lines([chunk], _BLANKS))), "")
            last[chunk.role, chunk.replica] = line or last.get((chunk.role, chunk.replica), "")
            count += chunk.data.count(b"\n") + (not chunk.data.endswith(b"\n"))
            newest = max(newest, chunk.time)
        self.last.update((replica, line) for replica, line in last.items() if line)
        if not self._rest:
            self._newest = max(self._newest, newest)
        if count >= TAIL and last:
            self._rest = rest.difference(last)
        else:
            self._rest = set()
        if not self._rest:
            self._since = self._newest
        return bool(self._rest)


def _scheduler_of(handle: str) -> str:
    return parse_app_handle(handle).scheduler_backend
