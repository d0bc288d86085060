"""Local jobs, as statuses of the scheduler interface."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from torchx import json_shape
from torchx.errors import StateError
from torchx.jobs.catalog import Catalog, catalog, find, paths_of
from torchx.jobs.paths import Home, JobPaths, LogPaths, file_name, user_home
from torchx.jobs.reconcile import is_supervised, read, reconcile
from torchx.jobs.record import register_secrets, scheduler_in
from torchx.jobs.view import JobView
from torchx.lazy import lazy_imports
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.shared import job_status
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.observation import describe
from torchx.scheduling.responses import local_time
from torchx.specs.status import AppState

with lazy_imports:
    from torchx.jobs import ended
    from torchx.scheduling import checks
    from torchx.scheduling import query as app_query

if TYPE_CHECKING:
    from torchx.scheduling.query import AppQuery

DEFAULT_OWNER = "local_cwd"
"""The scheduler that lists jobs whose own scheduler is unknown or not installed."""

_OTHERS = (b'"scheduler":"local_cwd"', b'"scheduler":"local_dir"', b'"scheduler":"local_docker"')


class LocalJobs:
    """The jobs of one scheduler in a state home.

    Attributes:
        home: the state home, which need not exist.
        scheduler: the scheduler; jobs of others are ignored.
    """

    def __init__(self, home: Home, scheduler: str) -> None:
        self.home = home
        self.scheduler = scheduler

    @classmethod
    def of_user(cls, scheduler: str) -> LocalJobs:
        """Returns the jobs of a scheduler in the state home of this user."""
        return cls(Home(user_home()), scheduler)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the full description of a job, running or ended, or None.

        Raises:
            StateError: its record has no application.
        """
        found = self._find(app_id)
        if found is None:
            return None
        paths, view = found
        return job_status.with_application(describe_job(view, paths), view, paths)

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of a job without its roles, or None."""
        found = self._find(app_id)
        if found is None:
            return None
        paths, view = found
        return describe_job(view, paths)

    def exists(self, app_id: str) -> bool:
        """Returns True if a job is on record."""
        return self.find(app_id) is not None

    def find(self, app_id: str) -> JobView | None:
        """Returns a job or None; one whose supervisor is dead counts as ended."""
        found = self._find(app_id)
        if found is None:
            return None
        return found[1]

    def require(self, app_id: str) -> JobView:
        """Returns the state of a job.

        Raises:
            StateError: the job is not on record.
        """
        view = self.find(app_id)
        if view is None:
            raise checks.unknown_application(self.scheduler, app_id)
        return view

    def provenance_folder(self, app_id: str) -> Path | None:
        """Returns the folder for the source of a job, None without such a job."""
        paths = paths_of(self.home, app_id)
        if paths.folder.is_dir():
            return paths.provenance
        return None

    def reconcile(self, app_id: str) -> JobView | None:
        """Returns a job or None; finalizes it first if its supervisor is dead.

        Also adds ended jobs to the list of ended jobs if it lacks this one.
        """
        found = self._find(app_id, reconcile)
        if found is None:
            return None
        paths, view = found
        if view.has_ended and os.fsencode(paths.folder.name) not in catalog(self.home).lines:
            ended.complete(self.home)
        return view

    def _find(
        self, app_id: str, read_view: Callable[[JobPaths], JobView] = read
    ) -> tuple[JobPaths, JobView] | None:
        found = find(self.home, app_id, read_view)
        if found is None:
            return None
        paths, view = found
        if view.record.scheduler == self.scheduler:
            return found
        if self.claims(paths):
            raise StateError(_not_installed(view))
        return None

    def select(self, query: AppQuery) -> Iterator[ListAppResponse]:
        """Yields the recorded jobs that match a query, newest first; parses ended ones lazily."""
        if query.called and self._is_on_record(query.called):
            # an id: no need to read the others
            exact = self._from_record(query.called, paths_of(self.home, query.called), is_listed=True)
            if exact is not None and exact.matches(query):
                yield exact
                return
        listed = catalog(self.home)
        since = -math.inf
        if query.since is not None:
            since = query.since.timestamp()
        for submitted_at, app_id, unlisted in self._candidates(listed):
            if submitted_at < since:
                return
            candidate = unlisted or self._listed(listed.lines[app_id], app_id, query)
            if candidate is not None and candidate.matches(query):
                yield candidate

    def _candidates(self, listed: Catalog) -> list[tuple[float, bytes, ListAppResponse | None]]:
        """Returns the times and ids of the jobs on record, newest first, and the jobs that are not listed."""
        own_scheduler = f'"scheduler":"{self.scheduler}"'.encode()
        candidates: list[tuple[float, bytes, ListAppResponse | None]] = []
        unlisted_ids = set(listed.app_ids - listed.lines.keys())
        for app_id, line in listed.lines.items():
            if own_scheduler in line and app_id in listed.app_ids:
                candidates.append((ended.submitted_at(line), app_id, None))
            elif app_id in listed.app_ids and not any(other in line for other in _OTHERS):
                unlisted_ids.add(app_id)  # a damaged line, or a scheduler of a plugin: read the record
        for app_id in unlisted_ids:
            if (app := self._unlisted(app_id)) is not None:
                candidates.append((app.order[0], app_id, app))
        return sorted(candidates, key=itemgetter(0, 1), reverse=True)

    def _is_on_record(self, app_id: str) -> bool:
        try:
            return os.path.lexists(paths_of(self.home, app_id).folder)
        except (OSError, ValueError):
            return False  # not a valid file name

    def _listed(self, line: bytes, app_id: bytes, query: AppQuery) -> ListAppResponse | None:
        """Parses a line of the list of ended jobs; returns None early if it does not match the query."""
        if query.states and not any(state.encode() in line for state in query.states):
            return None
        for text in (query.called, query.literal):
            if text and json.dumps(text)[1:-1].encode() not in line:
                return None
        for name, pattern in query.tags:
            begin = json.dumps(app_query.literal_of(pattern or ""))[:-1]  # as in the line
            if f"{json.dumps(name)}:{begin}".encode() not in line:
                return None
        job = ended.parse(line)
        if job is None or os.fsencode(job.app_id) != app_id:
            return self._unlisted(app_id)
        return job_status.row_of_ended(job)

    def _unlisted(self, name: bytes) -> ListAppResponse | None:
        """Returns the entry of a job that is missing from the list of ended jobs."""
        folder = os.fsdecode(name)
        return self._from_record(file_name(folder), JobPaths(self.home.jobs / folder))

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
        if view.record.scheduler != self.scheduler:
            if self.claims(paths):
                return self._unreadable(app_id, paths, _not_installed(view))
            return None
        line = job_status.row_of_ended(ended.EndedJob.of(view), view.clock_step)
        line.msg = line.msg or job_status.waiting(view, paths)
        line.needs_reconcile = view.orphaned or (view.has_ended and not is_listed)
        return line

    def _unreadable(self, app_id: str, paths: JobPaths, why: str) -> ListAppResponse | None:
        """Returns the entry of a job whose record cannot be read.

        A job without a supervisor counts as ended, so that it can be deleted, and pruned by its age.
        """
        if not self.claims(paths):
            return None
        try:
            changed = local_time(json_shape.timestamp(paths.folder.lstat().st_mtime, "st_mtime"))
        except FileNotFoundError:
            return None  # removed in the meantime
        except (OSError, ValueError):
            changed = local_time(0.0)
        ended_at = None if is_supervised(paths) else changed
        return ListAppResponse(app_id, AppState.UNKNOWN, submitted_at=changed, ended_at=ended_at, msg=why)

    def claims(self, paths: JobPaths) -> bool:
        """Returns True if this scheduler lists an unreadable job; exactly one scheduler does."""
        name = scheduler_in(paths.record) or DEFAULT_OWNER
        return self.scheduler == (name if name in get_scheduler_factories() else DEFAULT_OWNER)


def _not_installed(view: JobView) -> str:
    return f"its scheduler `{view.record.scheduler}` is not installed"


def describe_job(view: JobView, paths: JobPaths) -> DescribeAppResponse:
    """Returns the status of a job, without its roles and metadata."""
    record = view.record
    register_secrets(record)  # of a job of 0.1.0, which has no file of its secrets
    described = describe(job_status.observe(view, paths, "localhost"), LogPaths(Path(record.log_dir)).replica)
    described.log_dir = described.report_dir = record.log_dir
    if record.cfg.get("stall") or record.cfg.get("straggler"):  # others record no steps
        described.steps_dir = paths.folder
    described.workspaces = {role.name: role.workspace for role in record.roles if role.workspace}
    described.needs_reconcile = view.orphaned
    return described
