"""Sweeps whose runs the engine starts: submitted as one object, without a process of ours.

The engine has the states of the runs. A command that reads such a sweep records them in the journal, so that
all readers are the same as for other sweeps. The lock ``observing`` belongs to the writer of the journal.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchx import settings
from torchx.errors import StateError, TorchxError
from torchx.jobs import hidden
from torchx.machine import locks
from torchx.scheduling.base import DescribeAppResponse, EngineOf, ManyRuns, SubmitsMany
from torchx.scheduling.pace import deadline, pause_after, sharing
from torchx.scheduling.protocols import UnavailableError
from torchx.specs.app import AppDef
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import AppState, is_started, is_terminal
from torchx.sweeps import after, launch, requests, runs, view
from torchx.sweeps.paths import BACKEND, SweepPaths, paths_of, run_id
from torchx.sweeps.plan import Header, Plan, is_free
from torchx.sweeps.progress import PENDING, Entry, Progress, load, record

PATIENCE = 30.0
"""Maximum seconds to wait for the process that acts on the requests of commands."""

CLOCK_STEP = 2.0
"""Seconds by which the clocks of two machines may differ unnoticed; Slurm's times are whole seconds."""

GRACE = 60.0
"""Seconds after a submission in which an engine may not know a run yet."""

MOST_OTHERS = 500
"""Maximum number of runs of another sweep to wait for by the engine."""


def others_of(header: Header, met: Iterable[int]) -> list[tuple[str, str]] | None:
    """Returns the applications to wait for as those of the engine; None if another one runs them."""
    found: list[tuple[str, str]] = []
    for number, (handle, condition) in enumerate(header.after):
        backend, _, app_id = parse_app_handle(handle)
        if number in met:
            continue
        if backend == header.scheduler:
            found.append((app_id, condition))
            continue
        sweep = None
        if backend == BACKEND:
            sweep = view.find(paths_of(app_id))
        if sweep is None or not sweep.header.native or sweep.header.scheduler != header.scheduler:
            return None
        progress = sweep.progress
        if condition == after.FAILED or progress.unsent or len(progress.ids) > MOST_OTHERS:
            return None
        if condition == after.OK and {*progress.counts()} & {"FAILED", "CANCELLED"}:
            return None
        found += [(each, condition) for each in progress.ids.values()]
    return found


def has_met(condition: str, state: str) -> bool:
    """Returns True if an application that has ended meets a condition; a cancelled one counts as failed.

    >>> has_met("failed", "CANCELLED"), has_met("ok", "FAILED")
    (True, False)
    """
    return after.is_met(condition, state) or (condition == after.FAILED and state == "CANCELLED")


class NativeRuns:
    """Submits and observes the runs of a sweep; the caller holds the lock ``observing``.

    Args:
        paths: the files of the sweep.
        engine_of: returns the scheduler of a name.

    Attributes:
        progress: the states of the runs.

    Raises:
        FileNotFoundError: the sweep does not exist.
        StateError: its files are damaged.
    """

    def __init__(self, paths: SweepPaths, engine_of: EngineOf) -> None:
        self._paths, self._engine_of = paths, engine_of
        self._plan = Plan(paths)
        self.progress: Progress = load(paths, self._plan.extend())
        self.header = self._plan.header
        engine = engine_of(self.header.scheduler)
        assert isinstance(engine, SubmitsMany)
        self._engine: SubmitsMany = engine

    def _note(self, *entries: Entry) -> None:
        record(self._paths, self.progress, *entries)

    # --- submissions ------------------------------------------------------------------------------------

    def submit(self, *, trouble: str = "", first: bool = False) -> bool:
        """Submits the runs that wait.

        Args:
            trouble: why no run can be submitted; they fail with it.
            first: raise an error of the engine, instead of recording it as the end of the runs.

        Returns:
            False if runs were left, which have to wait for the end of others.

        Raises:
            UnavailableError: the engine does not answer; a later call repeats the submission.
            TorchxError: the engine rejects the runs, and `first` is set.
        """
        self._check_others()
        if trouble:
            self._fail(self.progress.unsent, trouble)
        for numbers in self._groups():
            behind = []
            if self.progress.limit(self.header.at_once):
                behind = [*self.progress.ids.values()]
            if behind and self._engine.rejects_many(self._many("", numbers[:1], behind)):
                return False
            key = f"{self.header.sweep}-s{self.progress.sent + 1}"
            self._note({"e": "send", "key": key, "runs": numbers, "t": time.time()})
            self._send(key, numbers, behind, first=first)
        return True

    def recover(self) -> None:
        """Completes submissions whose process was killed.

        Raises:
            UnavailableError: the engine does not answer.
        """
        for key, numbers in [*self.progress.sending.items()]:
            self._send(key, numbers, (), first=False)

    def _groups(self) -> list[list[int]]:
        """Returns the runs that wait, those that are alike together."""
        found: dict[str, list[int]] = {}
        for number in self.progress.unsent:
            changes = self._plan.run(number).changes
            key = json.dumps([change for change in changes if not is_free(change[0])])
            found.setdefault(key, []).append(number)
        return [*found.values()]

    def _app(self, number: int) -> AppDef:
        app = self._plan.app(self._plan.run(number))
        attempt = self.progress.tries.get(number, 0) + 1
        app.metadata = {**app.metadata, settings.RUN: run_id(self.header.sweep, number, attempt)}
        return app

    def _many(self, key: str, numbers: Sequence[int], behind: Sequence[str]) -> ManyRuns:
        apps = {number: self._app(number) for number in numbers}
        others = others_of(self.header, self.progress.met) or ()
        return ManyRuns(key, apps, self.header.cfg, self.progress.limit(self.header.at_once), others, behind)

    def _send(self, key: str, numbers: Sequence[int], behind: Sequence[str], *, first: bool) -> None:
        """Submits runs, and records their ids."""
        try:
            ids = self._engine.submit_many(self._many(key, numbers, behind))
        except UnavailableError:
            raise
        except (TorchxError, OSError) as error:
            if first:
                raise
            self._note({"e": "queue", "key": key, "ids": [], "t": time.time()})
            self._fail(numbers, runs.message_of(error))
            return
        try:
            self._note({"e": "queue", "key": key, "ids": [[n, ids[n]] for n in numbers], "t": time.time()})
        except OSError:
            if first:  # the caller removes the sweep
                self._engine.cancel_many([*ids.values()], now=True)
            raise
        with contextlib.suppress(StateError):  # the runs are submitted
            for number in numbers:
                hidden.share((BACKEND, self.header.sweep), self.header.scheduler, ids[number])

    def _fail(self, numbers: Sequence[int], message: str) -> None:
        at = time.time()
        self._note(*({"e": "end", "n": number, "s": "FAILED", "t": at, "m": message} for number in numbers))

    # --- requests ---------------------------------------------------------------------------------------

    def act(self) -> None:
        """Acts on the requests of commands.

        Raises:
            TorchxError: the engine does not answer or rejects a change.
        """
        for request in requests.read(self._paths, self.progress.handled):
            self._act(request)

    def _act(self, request: requests.Request) -> None:
        kind, position, count = request.kind, request.position, len(self.progress.states)
        if kind in ("cancel", "kill"):
            self._engine.cancel_many([*self.progress.ids.values()], now=kind == "kill")
            self._note({"e": "cancel", "runs": count, "upto": position})
        elif kind == "again":
            chosen = [number for number in request.runs if self.progress.has_ended(number)]
            self._note({"e": "again", "runs": chosen, "upto": position})
        elif kind == "at_once" and request.to is not None:
            self._engine.limit_many([*self.progress.ids.values()], request.to)
            self._note({"e": "at_once", "to": request.to, "upto": position})
        else:
            self._note({"e": "seen", "upto": position})

    # --- states -----------------------------------------------------------------------------------------

    def observe(self) -> None:
        """Records the states of the runs that have changed.

        Raises:
            UnavailableError: the engine does not answer.
        """
        known = {app_id: number for number, app_id in self.progress.ids.items()}
        found = self._engine.glance_many([*known]) if known else {}
        if any(one.started_at is not None for one in found.values()):
            self._note_all_met()
        else:
            self._check_others()
        entries, ended = [], []
        for app_id, number in known.items():
            described = found.get(app_id)
            if number not in self.progress.ids:
                continue  # cancelled just now
            if described is not None and is_terminal(described.state):
                ended.append((number, described))
            elif described is None or described.state is AppState.UNKNOWN:
                entries += self._lost(number, described)
            elif is_started(described.state) and self.progress.states[number - 1] == PENDING:
                at = self._begun_at(number, described)
                entries.append({"e": "begin", "n": number, "id": app_id, "t": at})
        if ended:
            entries += self._ends(ended)
        self._note(*entries)
        self._finish()

    def _begun_at(self, number: int, described: DescribeAppResponse) -> float:
        """Returns the start of a run by the clock of this machine, by which the end of the sweep is noted.

        A start before its submission or in the future is by another clock, such as that of a cluster: it was
        since the last query then.
        """
        now = time.time()
        if described.started_at is None:
            return now
        at = described.started_at.timestamp()
        sent = self.progress.begun.get(number, at)
        if sent - CLOCK_STEP <= at <= now + CLOCK_STEP:
            return at
        return now

    def _ends(self, ended: Sequence[tuple[int, DescribeAppResponse]]) -> Iterator[Entry]:
        """Yields the ends of runs with their measurements."""
        usage = self._engine.usage_many([described.app_id for _, described in ended])
        for number, described in ended:
            end = runs.ended(described)
            if described.app_id in usage:
                end = end._replace(usage=runs.usage_of(usage[described.app_id]))
            yield runs.end_entry(number, end)

    def _lost(self, number: int, described: DescribeAppResponse | None) -> list[Entry]:
        """Returns the end of a run that the engine no longer knows."""
        if time.time() - self.progress.begun.get(number, 0.0) < GRACE:
            return []
        message = "its scheduler no longer knows it"
        if described is not None:
            message = described.msg
        return [{"e": "end", "n": number, "s": "FAILED", "t": time.time(), "m": message}]

    def _note_all_met(self) -> None:
        """Records that the applications have ended that the runs come after, as a run has started."""
        waited = range(len(self.header.after))
        self._note(*({"e": "met", "i": at} for at in waited if at not in self.progress.met))

    def _check_others(self) -> None:
        """Records the ends of the applications that the runs come after."""
        for number, (handle, condition) in enumerate(self.header.after):
            if number in self.progress.met or self.progress.reason:
                continue
            state = self._state_of(handle)
            if state is None:
                continue
            if has_met(condition, state):
                self._note({"e": "met", "i": number})
                continue
            reason = after.unmet(handle, condition, state)
            waiting = [*self.progress.ids.values()]
            if waiting:
                self._engine.cancel_many(waiting)
            at = time.time()
            ends = [{"e": "end", "n": n, "s": "CANCELLED", "t": at, "m": reason} for n in self.progress.ids]
            self._note(*ends, {"e": "cancel", "runs": len(self.progress.states), "m": reason})

    def _state_of(self, handle: str) -> str | None:
        """Returns the state of an application that has ended; None for others."""
        backend, _, app_id = parse_app_handle(handle)
        described = runs.glance(self._engine_of(backend), app_id)
        if described is None:
            return AppState.UNKNOWN.name
        if is_terminal(described.state):
            return described.state.name
        return None

    def _finish(self) -> None:
        """Records the end of the sweep if all runs have ended, and nothing was added."""
        progress = self.progress
        if progress.active or progress.sending or progress.done is not None:
            return
        with locks.exclusive(self._paths.edit):
            if self._plan.extend() == len(progress.states) and not requests.has_unread(self._paths, progress):
                self._note({"e": "done", "t": time.time()})


def suits(header: Header, apps: Mapping[int, AppDef], engine_of: EngineOf) -> bool:
    """Returns True if the engine can start all runs of a new sweep, which are alike.

    Args:
        header: the header of its plan.
        apps: the application of each run.
        engine_of: returns the scheduler of a name.
    """
    engine = engine_of(header.scheduler)
    if not isinstance(engine, SubmitsMany):
        return False
    others = others_of(header, ())
    many = ManyRuns(header.sweep, apps, header.cfg, header.at_once, others or ())
    return others is not None and not engine.rejects_many(many)


def _has_work(paths: SweepPaths, progress: Progress) -> bool:
    """Returns True if a process has to submit runs, or to act on requests."""
    return bool(
        progress.sending or requests.has_unread(paths, progress) or (progress.unsent and not progress.ids)
    )


def begin(paths: SweepPaths, engine_of: EngineOf) -> None:
    """Submits the runs of a new sweep, in the environment of this process.

    Raises:
        UnavailableError: the engine does not answer; the next command that reads the sweep repeats it.
        TorchxError: the engine rejects the runs; none of them was submitted.
        OSError: the journal cannot be written.
    """
    with locks.exclusive(paths.observing):
        NativeRuns(paths, engine_of).submit(first=True)


def reconcile(paths: SweepPaths, engine_of: EngineOf) -> None:
    """Records the states of the runs of a sweep; starts a process that submits those that are left.

    Raises:
        UnavailableError: the engine does not answer.
        StateError: the files of the sweep are damaged.
    """
    found = view.find(paths)
    if found is None or not found.header.native or found.has_ended:
        return
    if found.progress.unsent or _has_work(paths, found.progress):
        launch.start(paths, found.header.scheduler)
        end = time.monotonic() + PATIENCE
        while locks.is_held(paths.lock) and time.monotonic() < end:
            found = view.find(paths)
            if found is None or not _has_work(paths, found.progress):
                break
            time.sleep(0.02)
    try:
        with locks.exclusive(paths.observing):
            NativeRuns(paths, engine_of).observe()
    except FileNotFoundError:
        pass  # deleted meanwhile


def wait(paths: SweepPaths, engine_of: EngineOf, timeout: float | None) -> bool:
    """Blocks until all runs of a sweep have ended, bridging outages; returns False on timeout."""
    begun, end = time.monotonic(), deadline(timeout)
    while True:
        with contextlib.suppress(UnavailableError), sharing(begun):
            reconcile(paths, engine_of)
        found = view.find(paths)
        if found is None or found.has_ended:
            return True
        now = time.monotonic()
        left = min(pause_after(now - begun), end - now)
        if left <= 0:
            return False
        time.sleep(left)
