"""A sweep as its files describe it: its runs with their parameters, states and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torchx import settings
from torchx.errors import StateError
from torchx.jobs.record import damaged
from torchx.lazy import lazy_imports
from torchx.machine import locks
from torchx.printable import counted
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.handles import make_app_handle
from torchx.specs.status import AppState, FirstFailure
from torchx.sweeps import after, progress
from torchx.sweeps.paths import SweepPaths, paths_of, sweep_of_run
from torchx.sweeps.plan import Header, Plan
from torchx.sweeps.progress import STATES, Entry, Progress
from torchx.sweeps.records import Run, Runs
from torchx.sweeps.runs import ended

with lazy_imports:
    from torchx.queue import reasons


@dataclass
class Sweep:
    """A sweep.

    Attributes:
        header: the first line of its plan.
        progress: the states of its runs.
        runs: its runs.
        supervised: whether a conductor starts its runs.
        failed: the end of the run that failed first.
    """

    header: Header
    progress: Progress
    runs: Sequence[Run]
    supervised: bool
    failed: Run | None = None

    @property
    def has_ended(self) -> bool:
        """True if all runs have ended."""
        return self.progress.done is not None and not self.progress.active

    @property
    def needs_reconcile(self) -> bool:
        """True if a command has to start the conductor, or to record the states that the engine has."""
        return not self.has_ended and (self.header.native or not self.supervised)

    @property
    def state(self) -> AppState:
        """The state of all runs together."""
        counts = self.progress.counts()
        if not self.has_ended:
            if self.blocked:
                return AppState.SUBMITTED
            if set(counts) == {"PENDING"} or (self.progress.held and "RUNNING" not in counts):
                return AppState.PENDING
            return AppState.RUNNING
        if counts.get("FAILED"):
            return AppState.FAILED
        if counts.get("CANCELLED"):
            return AppState.CANCELLED
        return AppState.SUCCEEDED

    @property
    def started(self) -> float | None:
        """The start of the first run since all had ended last, by the clock of now; None before."""
        started = self.progress.started
        if started is not None and self.progress.done is None:
            started += self.progress.clock_step
        return started

    @property
    def queued(self) -> dict[str, int]:
        """The numbers of the submitted runs that wait in the queue of this machine, by their ids."""
        if self.header.native:
            return {}
        states = self.progress.states
        return {app_id: n for n, app_id in self.progress.ids.items() if states[n - 1] == progress.PENDING}

    @property
    def blocked(self) -> str:
        """The applications that the runs wait for; empty if none."""
        return after.waiting(self.header.after, self.progress.met)

    @property
    def first_failure(self) -> FirstFailure | None:
        """The run that failed first, as a replica."""
        return failure_of(self.header, self.failed if self.progress.first_failed else None)

    def numbered(self, number: int) -> Run | None:
        """Returns a run by its number; None without such a run, or for an application of one run.

        Raises:
            StateError: the plan is damaged.
        """
        if isinstance(self.runs, Runs):
            return self.runs.numbered(number)
        return None

    def in_state(self, state: str) -> Iterator[Run]:
        """Yields the runs in a state, in order.

        Args:
            state: the name of the state.

        Raises:
            StateError: the plan is damaged.
        """
        if isinstance(self.runs, Runs):
            return self.runs.in_state(state)
        return (run for run in self.runs if run.state == state)

    def summary(self) -> str:
        """Returns the number of runs in each state, as text."""
        counts = self.progress.counts()
        if self.blocked and not self.has_ended:
            return self.blocked
        if self.progress.reason and "RUNNING" not in counts and "FAILED" not in counts:
            return self.progress.reason
        parts = [f"{count:,} {NAMES.get(name, name.lower())}" for name, count in counts.items()]
        text = f"{counted(len(self.progress.states), 'run')}: {', '.join(parts)}"
        if self.progress.held and "PENDING" in counts:
            text += reasons.held(self.header.sweep)
        elif self.queued:
            text += reasons.of_runs(self.queued, self.header.sweep)
        return text


def failure_of(header: Header, run: Run | None) -> FirstFailure | None:
    """Returns a failed run as a replica."""
    if run is None:
        return None
    handle = handle_of(header, run)
    return FirstFailure(str(run.number), 0, 1, run.code, None, run.message, handle=handle)


def handle_of(header: Header, run: Run) -> str:
    """Returns the handle of a run; an empty text before it has started."""
    if not run.app_id:
        return ""
    return make_app_handle(header.scheduler, header.session, run.app_id)


NAMES = {"PENDING": "waiting"}
"""The names of states in summaries that differ from those of applications."""


def load(paths: SweepPaths) -> Sweep:
    """Reads a sweep; changes nothing.

    Args:
        paths: its files.

    Raises:
        FileNotFoundError: the sweep does not exist.
        StateError: its files are damaged, or cannot be read.
    """
    global _last  # a cache of this process
    read = (paths, *(_size(path) for path in (paths.plan, paths.journal)))
    known = _last
    if known is not None and known[0] == read:
        found = known[1]
        found.supervised = locks.is_held(paths.lock)
        if _size(paths.journal) == read[-1]:
            return found
    found = _load(paths)
    _last = (read, found)
    return found


_last: tuple[object, Sweep] | None = None
"""The sweep that was read last, and the sizes of its files, which are only appended to."""


def _size(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_ino


def _load(paths: SweepPaths) -> Sweep:
    plan, state = Plan(paths), Progress()
    state.grow(plan.extend())
    runs = Runs(plan, state.states)
    try:
        supervised = locks.is_held(paths.lock)  # first: it ends after its last entry

        def apply(entry: Entry) -> None:
            state.apply(entry)
            runs.note(entry)

        progress.read(paths, apply)
        runs.clock_step = state.clock_step
    except OSError as error:
        raise damaged(paths.journal, error.strerror) from error
    return Sweep(plan.header, state, runs, supervised, runs.numbered(state.first_failed))


def of_application(described: DescribeAppResponse, scheduler: str, session: str) -> Sweep:
    """Returns an application as a sweep of one run; a run of a sweep keeps its number and parameters.

    Args:
        described: its description.
        scheduler: its scheduler.
        session: the session part of its handle.
    """
    end = ended(described)
    state = "PENDING"
    if described.state.name in STATES:
        state = described.state.name
    _, run = planned(str(described.metadata.get(settings.RUN))) or (None, Run(1))
    facts = (described.app_id, end.started, end.ended, end.code, end.message)
    run = Run(run.number, run.parameters, state, *facts)
    header = Header(described.app_id, described.name, session, scheduler, {}, "", 0.0, "", 0, {})
    return Sweep(header, Progress(), [run], True)


def find(paths: SweepPaths) -> Sweep | None:
    """Returns a sweep, or None if it does not exist.

    Raises:
        StateError: its files are damaged, or cannot be read.
    """
    try:
        return load(paths)
    except (FileNotFoundError, NotADirectoryError):
        return None


def planned(app_id: str) -> tuple[Sweep, Run] | None:
    """Returns the sweep and the run that an id of a run names; None if they are not on record here."""
    sweep, number = sweep_of_run(app_id)
    with suppress(StateError):
        found = find(paths_of(sweep)) if sweep else None
        if found is not None and (run := found.numbered(number)) is not None:
            return found, run
    return None


def require(app_id: str) -> Sweep:
    """Returns a sweep.

    Raises:
        StateError: it does not exist, is damaged, or cannot be read.
    """
    found = find(paths_of(app_id))
    if found is None:
        raise StateError(
            f"the sweep `{app_id}` does not exist",
            hint="all sweeps: torchx list -s sweep",
            code="unknown_application",
        )
    return found
