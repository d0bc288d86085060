"""Local jobs, as statuses of the scheduler interface."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.errors import StateError
from torchx.exit_codes import read_error_file
from torchx.jobs import ended, shape
from torchx.jobs.catalog import catalog, paths_of
from torchx.jobs.ended import EndedJob
from torchx.jobs.paths import Home, JobPaths, LogPaths, file_name
from torchx.jobs.reconcile import is_supervised, read, reconcile
from torchx.jobs.record import LARGEST
from torchx.jobs.view import AttemptView, JobView, load
from torchx.machine import files, processes
from torchx.machine import locks as lock
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.query import AppQuery
from torchx.specs.status import NONE, AppState, AttemptStatus, FirstFailure, ReplicaStatus, RoleStatus

if TYPE_CHECKING:
    from torchx.scheduling.logs import LogChunk, LogQuery


DEFAULT_OWNER = "local_cwd"
"""The scheduler that lists jobs whose own scheduler is unknown or not installed."""

_SCHEDULER = re.compile(rb'"scheduler"\s*:\s*"([A-Za-z0-9_.-]{1,100})"')
_OTHERS = (b'"scheduler":"local_cwd"', b'"scheduler":"local_dir"')


class LocalJobs:
    """The jobs of one scheduler in a state home.

    Args:
        home: the state home, which need not exist.
        scheduler: the scheduler; jobs of others are ignored.
    """

    def __init__(self, home: Home, scheduler: str) -> None:
        self._home = home
        self._scheduler = scheduler

    def find(self, app_id: str) -> JobView | None:
        """Returns a job or None; one whose supervisor is dead counts as ended."""
        return self._view(app_id, read)

    def reconcile(self, app_id: str) -> JobView | None:
        """Returns a job or None; finalizes it first if its supervisor is dead.

        Also adds ended jobs to the list of ended jobs if it lacks this one.
        """
        view = self._view(app_id, reconcile)
        if view is not None and view.has_ended:
            name = os.fsencode(paths_of(self._home, app_id).folder.name)
            if name not in catalog(self._home).lines:
                ended.complete(self._home)
        return view

    def _view(self, app_id: str, read_view: Callable[[JobPaths], JobView]) -> JobView | None:
        try:
            view = read_view(paths_of(self._home, app_id))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return view if view.record.scheduler == self._scheduler else None

    def select(self, query: AppQuery) -> Iterator[ListAppResponse]:
        """Yields the recorded jobs that match a query, newest first; parses ended ones lazily."""
        if query.called and self._is_on_record(query.called):
            # an id: no need to read the others
            exact = self._from_record(query.called, paths_of(self._home, query.called), is_listed=True)
            if exact is not None and _matches(query, exact):
                yield exact
                return
        on_record, known = (listed := catalog(self._home)).app_ids, listed.lines
        own_scheduler = f'"scheduler":"{self._scheduler}"'.encode()
        candidates: list[tuple[float, bytes, ListAppResponse | None]] = []
        unlisted_ids = set(on_record - known.keys())
        for app_id, line in known.items():
            if own_scheduler in line and app_id in on_record:
                candidates.append((ended.submitted_at(line), app_id, None))
            elif app_id in on_record and not any(other in line for other in _OTHERS):
                unlisted_ids.add(app_id)  # a damaged line, or a scheduler of a plugin: read the record
        for app_id in unlisted_ids:
            if (app := self._unlisted(app_id)) is not None:
                candidates.append((app.submitted_at.timestamp() if app.submitted_at else 0.0, app_id, app))
        candidates.sort(key=itemgetter(0, 1), reverse=True)
        since = query.since.timestamp() if query.since is not None else None
        for submitted_at, app_id, unlisted in candidates:
            if since is not None and submitted_at < since:
                return
            candidate = unlisted or self._listed(known[app_id], app_id, query)
            if candidate is not None and _matches(query, candidate):
                yield candidate

    def _is_on_record(self, app_id: str) -> bool:
        try:
            return os.path.lexists(paths_of(self._home, app_id).folder)
        except (OSError, ValueError):
            return False  # not a valid file name

    def _listed(self, line: bytes, app_id: bytes, query: AppQuery) -> ListAppResponse | None:
        """Parses a line of the list of ended jobs; returns None early if it does not match the query."""
        if query.states and not any(state.encode() in line for state in query.states):
            return None
        for text in (query.called, query.literal):
            if text and json.dumps(text)[1:-1].encode() not in line:
                return None
        job = ended.parse(line)
        if job is None or os.fsencode(job.app_id) != app_id:
            return self._unlisted(app_id)
        return _line(job)

    def _unlisted(self, name: bytes) -> ListAppResponse | None:
        """Returns the entry of a job that is missing from the list of ended jobs."""
        folder = os.fsdecode(name)
        return self._from_record(file_name(folder), JobPaths(self._home.jobs / folder))

    def _from_record(
        self, app_id: str, paths: JobPaths, *, is_listed: bool = False
    ) -> ListAppResponse | None:
        """Returns the entry of a job from its record.

        Args:
            app_id: the job.
            paths: its record.
            is_listed: whether the job may be in the list of ended jobs.
        """
        try:
            view = read(paths)
        except (FileNotFoundError, NotADirectoryError) as error:
            if not os.path.lexists(paths.folder):
                return None  # removed in the meantime
            return self._unreadable(app_id, paths, f"{paths.folder} has no record: {error.strerror}")
        except StateError as error:
            return self._unreadable(app_id, paths, error.message)
        if view.record.scheduler != self._scheduler:
            if self._claims(paths):
                why = f"its scheduler `{view.record.scheduler}` is not installed"
                return self._unreadable(app_id, paths, why)
            return None
        line = _line(EndedJob.of(view))
        line.needs_reconcile = view.orphaned or (view.has_ended and not is_listed)
        return line

    def _unreadable(self, app_id: str, paths: JobPaths, why: str) -> ListAppResponse | None:
        """Returns the entry of a job whose record cannot be read.

        A job without a supervisor counts as ended, so that it can be deleted, and pruned by its age.
        """
        if not self._claims(paths):
            return None
        try:
            changed = _time(shape.timestamp(paths.folder.lstat().st_mtime, "st_mtime"))
        except FileNotFoundError:
            return None  # removed in the meantime
        except (OSError, ValueError):
            changed = _time(0.0)
        ended_at = None if is_supervised(paths) else changed
        return ListAppResponse(app_id, AppState.UNKNOWN, submitted_at=changed, ended_at=ended_at, msg=why)

    def _claims(self, paths: JobPaths) -> bool:
        """Returns True if this scheduler lists an unreadable job; exactly one scheduler does."""
        from torchx.schedulers import get_scheduler_factories  # on demand: few records are damaged

        head = b""
        with contextlib.suppress(OSError):
            head = files.read_file(paths.record, LARGEST)
        match = _SCHEDULER.search(head)
        name = match[1].decode() if match else DEFAULT_OWNER
        return self._scheduler == (name if name in get_scheduler_factories() else DEFAULT_OWNER)

    def wait(self, app_id: str, timeout: float | None) -> bool:
        """Blocks until a job has ended, for at most `timeout` seconds; returns False if it timed out."""
        paths = paths_of(self._home, app_id)
        if timeout is None:
            return lock.wait_free(paths.lock)
        end = time.monotonic() + timeout
        # waiting for a lock has no timeout, but waiting for the processes that hold it has
        with contextlib.suppress(OSError, StateError):
            view = load(paths)
            for holder in (view.supervisor, view.guard):
                if holder is not None and not view.has_ended:
                    processes.wait_end(holder, end - time.monotonic())
        return lock.wait_free(paths.lock, max(0.0, end - time.monotonic()))

    def request_end(self, app_id: str, *, now: bool = False) -> None:
        """Requests the end of a job that has not ended."""
        view = self.reconcile(app_id)
        if view is not None and not view.has_ended:
            from torchx.jobs import end

            end.request(paths_of(self._home, app_id), now=now)

    def delete(self, app_id: str) -> None:
        """Ends a job and removes its record and its logs; does nothing if it does not exist."""
        from torchx.jobs.pruning import remove_job, remove_unreadable

        paths = paths_of(self._home, app_id)
        try:
            view = self.reconcile(app_id)
        except StateError:
            if not self._claims(paths):
                raise
            view = None
        if view is None:
            if os.path.lexists(paths.folder) and self._claims(paths):
                remove_unreadable(self._home, paths)
            return
        self.request_end(app_id)
        lock.wait_free(paths.lock)
        with contextlib.suppress(FileNotFoundError):  # removed by another command
            remove_job(paths, Path(load(paths).record.log_dir))

    def log(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the log of a job.

        Raises:
            StateError: the job is not on record.
        """
        from torchx.jobs.log_reader import JobLog, Member

        view = self.find(app_id)
        if view is None:
            raise StateError(f"{self._scheduler} knows no application `{app_id}`")
        paths = self._home.job(app_id)
        folder = Path(view.record.log_dir)
        if os.path.lexists(folder) and not files.is_own_folder(folder):
            raise StateError(f"the log folder {folder} is not a folder of this user")
        members = [Member(replica.role, replica.id) for replica in view.replicas]
        log = JobLog(LogPaths(folder), members, lambda: lock.is_held(paths.lock))
        return log.read(query)


def _matches(query: AppQuery, app: ListAppResponse) -> bool:
    return query.takes(app.app_id, app.name, app.state.name, app.submitted_at)


def describe_job(view: JobView) -> DescribeAppResponse:
    """Returns the status of a job, without its roles and metadata."""
    record = view.record
    roles: dict[str, RoleStatus] = {role.name: RoleStatus(role.name, []) for role in record.roles}
    for replica in view.replicas:
        attempts = [_attempt(attempt) for attempt in replica.attempts]
        folder = LogPaths(Path(record.log_dir)).replica(replica.role, replica.id)
        failed = bool(attempts) and attempts[-1].state is AppState.FAILED
        roles[replica.role].replicas.append(
            ReplicaStatus(
                id=replica.id,
                state=attempts[-1].state if attempts else _unstarted(view),
                role=replica.role,
                hostname="localhost",
                structured_error_msg=read_error_file(folder) or NONE if failed else NONE,
                attempts=attempts,
                max_attempts=replica.max_retries + 1,
            )
        )
    first = _first_failure(view)
    error = NONE
    if first is not None:
        error = roles[first.role].replicas[first.replica].structured_error_msg
    return DescribeAppResponse(
        app_id=record.app_id,
        state=AppState[view.state],
        num_restarts=view.restarts,
        msg=view.msg,
        structured_error_msg=error,
        roles_statuses=list(roles.values()),
        name=record.name,
        submitted_at=_time(record.submitted_at),
        started_at=_time(view.started_at),
        ended_at=_time(view.ended_at),
        first_failure=first,
        log_dir=record.log_dir,
        workspaces={role.name: role.workspace for role in record.roles if role.workspace},
        cfg=record.cfg,
        needs_reconcile=view.orphaned,
    )


def _unstarted(view: JobView) -> AppState:
    """Returns the state of a replica that was never started."""
    return AppState.CANCELLED if view.has_ended else AppState.PENDING


def _attempt(attempt: AttemptView) -> AttemptStatus:
    return AttemptStatus(
        number=attempt.number,
        state=AppState[attempt.state],
        exit_code=attempt.exit_code,
        signal=attempt.signal,
        started_at=_time(attempt.started_at),
        ended_at=_time(attempt.ended_at),
        pid=attempt.process.pid if attempt.process else None,
        msg="; ".join(part for part in (attempt.msg, attempt.stopped) if part),
    )


def _first_failure(view: JobView) -> FirstFailure | None:
    if view.first_failure is None:
        return None
    ordinal, number = view.first_failure
    replica = view.replicas[ordinal]
    attempt = next((a for a in replica.attempts if a.number == number), AttemptView(number))
    msg = attempt.msg
    if attempt.signal == "SIGKILL" and not msg:
        peak = f"; peak memory {attempt.peak_kib / 1024:,.0f} MB" if attempt.peak_kib else ""
        msg = f"the kernel's out-of-memory killer is the usual reason{peak}"
    return FirstFailure(replica.role, replica.id, number, attempt.exit_code, attempt.signal, msg)


def _line(job: EndedJob) -> ListAppResponse:
    return ListAppResponse(
        app_id=job.app_id,
        state=AppState.__members__.get(job.state, AppState.UNKNOWN),
        app_handle=f"{job.scheduler}://{job.session}/{job.app_id}",
        name=job.name,
        submitted_at=_time(job.submitted_at),
        started_at=_time(job.started_at),
        ended_at=_time(job.ended_at),
        exit_code=job.exit_code,
        msg=job.msg,
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).astimezone()
