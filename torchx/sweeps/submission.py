"""Submits sweeps: writes the plan, or adds the runs that an earlier submission lacks."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torchx.errors import StateError
from torchx.jobs import hidden
from torchx.jobs.paths import state_home
from torchx.json_limits import Data, Object
from torchx.json_shape import handle_text
from torchx.lazy import lazy_imports
from torchx.machine import files, locks
from torchx.machine.files import append_lines
from torchx.schedulers import create_scheduler
from torchx.schedulers.ids import make_unique
from torchx.scheduling.base import AnyScheduler, EngineOf, SubmitsMany
from torchx.scheduling.notes import as_note
from torchx.scheduling.protocols import UnavailableError
from torchx.specs.app import AppDef
from torchx.sweeps import environment, launch, requests, view
from torchx.sweeps.after import After
from torchx.sweeps.parameters import Row, key_of
from torchx.sweeps.paths import BACKEND, INDEX, SweepPaths, paths_of, sweeps_folder
from torchx.sweeps.plan import Header, Plan, app_data, app_of, changes, header_line, is_free, run_line
from torchx.sweeps.view import Sweep

with lazy_imports:
    from torchx.sweeps import native
    from torchx.sweeps import scheduler as sweep_scheduler

BEGINS_WITHIN = 10.0
"""Maximum seconds until the process of a sweep begins runs again."""

PlannedApp = tuple[Row, AppDef]


@dataclass
class Request:
    """A sweep to submit.

    Attributes:
        runs: the parameters and the application of each run, ready to be submitted.
        scheduler: the scheduler of the runs.
        session: the session part of handles.
        cfg: the run options.
        component: the name of the component.
        identity: what two submissions of the same sweep have in common.
        at_once: maximum number of runs at the same time; 0 for no limit, None for that of an earlier
            submission, else `default_at_once`.
        default_at_once: see `at_once`.
        after: the applications to wait for, each with a condition.
        fresh: make a new sweep even if this one exists.
        delayed: it is a single application that waits for others.
        engine_of: returns the scheduler of a name (default: a new one).
    """

    runs: Sequence[PlannedApp]
    scheduler: str
    session: str
    cfg: Data
    component: str
    identity: Any
    at_once: int | None = None
    default_at_once: int = 0
    after: Sequence[Sequence[str]] = ()
    fresh: bool = False
    delayed: bool = False
    engine_of: EngineOf | None = None

    def engine(self, name: str) -> AnyScheduler:
        """Returns the scheduler of a name."""
        if name == BACKEND:
            return sweep_scheduler.SweepScheduler(self.session, self.engine)
        if self.engine_of is None:
            return create_scheduler(name, self.session)
        return self.engine_of(name)


class Submitted(NamedTuple):
    """The result of a submission.

    Attributes:
        sweep: the id of the sweep.
        session: the session part of its handle.
        total: the number of its runs.
        added: the number of runs that were submitted now.
        again: the number of those that have failed or were cancelled before.
        existed: whether the sweep existed.
        at_once: the maximum number of runs at the same time; 0 for no limit.
        position: the bytes of its journal before the submission.
        notes: notes for the user, a line each.
        at: the time of its first submission, in seconds since 1970.
        numbers: the numbers of the runs that were requested.
    """

    sweep: str
    session: str
    total: int
    added: int
    again: int
    existed: bool
    at_once: int
    position: int = 0
    notes: tuple[str, ...] = ()
    at: float = 0.0
    numbers: Sequence[int] = ()


def submit(request: Request) -> Submitted:
    """Submits a sweep, or the missing runs of one that was submitted before.

    Runs with equal parameters are submitted once. Of a sweep with the same identity, runs that have
    succeeded, wait or run are left as they are.

    Raises:
        StateError: the state home cannot be used, or an engine that starts the runs itself rejects them.
    """
    digest = hashlib.sha256(json.dumps(request.identity, sort_keys=True, default=str).encode()).hexdigest()
    request.runs = [*{key_of(row): (row, app) for row, app in request.runs}.values()]
    state_home()
    index = sweeps_folder() / INDEX / digest
    try:
        with locks.exclusive(index.with_name("lock")):
            earlier = None
            if not request.fresh:
                earlier = _find(index, digest)
            header = earlier.header if earlier is not None else _header(request, digest)
            rows, apps = zip(*request.runs, strict=True)
            hidden.keep(BACKEND, header.sweep, apps, rows)
            if earlier is not None:
                return _extend(request, earlier)
            try:
                header = _create(request, header, index)
            except BaseException:
                hidden.forget(BACKEND, header.sweep)
                raise
    except OSError as error:
        where = error.filename or "the state home"
        raise StateError(f"the sweep cannot be recorded at {where}: {error.strerror}") from error
    paths = paths_of(header.sweep)
    notes: list[str] = []
    if header.native:
        _submit_natively(request, paths)
    else:
        with as_note(notes, f"its runs start with torchx wait {header.sweep}"):
            launch.start(paths, request.scheduler)
    count = len(request.runs)
    return Submitted(
        header.sweep,
        header.session,
        count,
        count,
        0,
        False,
        header.at_once,
        notes=tuple(notes),
        numbers=range(1, count + 1),
    )


def _find(index: Path, digest: str) -> Sweep | None:
    try:
        name = handle_text(files.read_file(index, 1 << 12).decode(), "sweep")
        found = view.find(paths_of(name))
    except (OSError, ValueError):
        return None
    if found is not None and found.header.identity == digest:
        return found
    return None


def _header(request: Request, digest: str) -> Header:
    first = request.runs[0][1]
    return Header(
        sweep=make_unique(first.name),
        name=first.name,
        session=request.session,
        scheduler=request.scheduler,
        cfg=dict(request.cfg),
        component=request.component,
        at=time.time(),
        identity=digest,
        at_once=request.default_at_once if request.at_once is None else request.at_once,
        template=app_data(first),
        after=request.after,
    )


def _create(request: Request, header: Header, index: Path) -> Header:
    """Writes the files of a new sweep under a hidden name, and renames them; an error leaves none of them.

    Returns:
        The written header, in which it is known whether the engine starts the runs.

    Raises:
        OSError: they cannot be written.
    """
    paths = paths_of(header.sweep)
    making = SweepPaths(paths.folder.with_name(f".{paths.folder.name}"))
    files.make_folder(making.folder, exist_ok=False)
    try:
        environment.write(making)
        if request.delayed:
            files.write_file(making.delayed, b"")
        lines, alike = [], True
        for number, (row, app) in enumerate(request.runs, 1):
            differences = changes(header.template, app_data(app))
            alike = alike and all(is_free(path) for path, _ in differences)
            lines.append(run_line(number, row, differences))
        header = header._replace(native=alike and _is_native(request, header))
        append_lines(making.plan, [header_line(header), *lines])
        files.write_file(index, header.sweep.encode())
        making.folder.rename(paths.folder)
        return header
    except BaseException:
        shutil.rmtree(making.folder, ignore_errors=True)
        raise


def _is_native(request: Request, header: Header) -> bool:
    """Returns True if the engine can start the runs, which are alike."""
    if not isinstance(request.engine(header.scheduler), SubmitsMany):
        return False
    return native.suits(header, {n: app for n, (_, app) in enumerate(request.runs, 1)}, request.engine)


def _submit_natively(request: Request, paths: SweepPaths) -> None:
    """Submits the runs of a new sweep as one object; removes a sweep whose runs the engine rejects."""
    try:
        native.begin(paths, request.engine)
    except UnavailableError as error:
        error.hint = error.hint or f"to try again: torchx status {paths.folder.name}"
        raise
    except Exception as error:
        shutil.rmtree(paths.folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise StateError(f"the sweep cannot be recorded at {paths.folder}: {error.strerror}") from error
        raise


def _extend(request: Request, earlier: Sweep) -> Submitted:
    """Adds the runs that a sweep lacks, and starts those again that have failed or were cancelled."""
    header, paths = earlier.header, paths_of(earlier.header.sweep)
    known = {key_of(run.parameters): run for run in earlier.runs}
    total = max((run.number for run in earlier.runs), default=0)
    lines, again, added, numbers = [], [], 0, []
    for row, app in request.runs:
        run = known.get(key_of(row))
        if run is None:
            total += 1
            numbers.append(total)
        else:
            numbers.append(run.number)
            if run.state not in ("FAILED", "CANCELLED"):
                continue
            again.append(run.number)
        added += 1
        lines.append(run_line(numbers[-1], row, changes(header.template, app_data(app))))
    position = _position(paths)
    messages: list[Object] = []
    if again:
        messages = [{"r": "again", "runs": again}]
    at_once = earlier.progress.limit(header.at_once)
    if request.at_once is not None and request.at_once != at_once:
        at_once = request.at_once
        messages.append({"r": "at_once", "to": at_once})
    if lines or messages:
        requests.send(paths, header.scheduler, *messages, {"r": "look"}, runs=lines)
        if lines:
            _await_begin(earlier)
    return Submitted(
        header.sweep,
        header.session,
        total,
        added,
        len(again),
        True,
        at_once,
        position,
        at=header.at,
        numbers=numbers,
    )


def _position(paths: SweepPaths) -> int:
    """Returns the bytes of a journal."""
    if paths.journal.exists():
        return paths.journal.stat().st_size
    return 0


def again(sweep: Sweep, numbers: Sequence[int]) -> int:
    """Starts runs of a sweep again that have ended; returns the bytes of its journal before.

    Raises:
        StateError: the request cannot be written, or the conductor cannot be started.
    """
    paths = paths_of(sweep.header.sweep)
    position = _position(paths)
    requests.send(paths, sweep.header.scheduler, {"r": "again", "runs": [*numbers]})
    _await_begin(sweep)
    return position


def _await_begin(sweep: Sweep) -> None:
    """Waits until a sweep that had ended runs again: until then, it has the state of its last end."""
    done = sweep.progress.done
    if done:
        requests.await_effect(
            paths_of(sweep.header.sweep), lambda progress: progress.done != done, BEGINS_WITHIN
        )


def repeat(sweep: Sweep, others: list[After]) -> Submitted:
    """Submits all runs of a sweep as a new one, in the environment of this process.

    Args:
        sweep: the sweep.
        others: the applications that the runs wait for.

    Raises:
        StateError: the plan is damaged, or the new sweep cannot be recorded.
    """
    header, paths = sweep.header, paths_of(sweep.header.sweep)
    plan = Plan(paths)
    plan.extend()
    runs = [(run.parameters, app_of(plan.data(run))) for run in map(plan.run, sorted(plan.lines))]
    request = Request(
        runs=runs,
        scheduler=header.scheduler,
        session=header.session,
        cfg=header.cfg,
        component=header.component,
        identity=[header.identity, "again"],
        at_once=sweep.progress.limit(header.at_once),
        after=others,
        fresh=True,
    )
    return submit(request)
