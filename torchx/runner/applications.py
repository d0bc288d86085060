"""Operations of a runner on submitted applications: status, wait, logs, cancel."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext
from datetime import datetime
from typing import TYPE_CHECKING

from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx.runner.engines import Engines
from torchx.runner.status import status_of
from torchx.scheduling.base import (
    DescribeAppResponse,
    Glances,
    Kills,
    LogChunks,
    Measures,
    Outlines,
    Summarizes,
    Waits,
)
from torchx.scheduling.pace import LONGEST, pause_after, sharing
from torchx.scheduling.query import AppQuery
from torchx.scheduling.responses import AppList
from torchx.specs.handles import UnknownAppException

with lazy_imports:
    from torchx.provenance import store
    from torchx.runner import logs, notifications, reports
    from torchx.runner import provenance as runner_provenance
    from torchx.runner import stacks as runner_stacks
    from torchx.scheduling import checks
    from torchx.specs import app

if TYPE_CHECKING:
    from torchx.notifications.store import Delivery
    from torchx.provenance.model import File, Provenance
    from torchx.scheduling.events import AppEvent
    from torchx.scheduling.logs import LogChunk, LogQuery, Stream
    from torchx.scheduling.stacks import AppStacks
    from torchx.scheduling.usage import AppUsage
    from torchx.specs.run_options import RunOptions
    from torchx.specs.status import AppStatus

Deliveries = list["Delivery"]
# named here, since within the class `list` is a method
_FIRST_LOOK = 0.05
"""Seconds before the second poll of a scheduler without wake-up."""


class Applications(Engines):
    """The half of a runner that manages applications by handle; see :class:`torchx.runner.Runner`."""

    def description(
        self, app_handle: str, *, brief: bool = False, replicas: bool = True
    ) -> DescribeAppResponse | None:
        """Returns the scheduler's description of an application, None if it is unknown.

        Reconciles the application first if its scheduler requires that.

        Args:
            app_handle: the application.
            brief: only the status is needed; roles and metadata may be omitted.
            replicas: the status of the replicas is needed; otherwise it may be omitted from a brief one.
        """
        scheduler, app_id = self._of(app_handle)
        query = scheduler.describe
        if brief and not replicas and isinstance(scheduler, Summarizes):
            query = scheduler.summary
        elif brief and isinstance(scheduler, Glances):
            query = scheduler.glance
        # a brief query is not an event
        with nullcontext() if brief else self._event("describe", scheduler.backend, app_id):
            described = query(app_id)
            if described is not None and described.needs_reconcile:
                scheduler.reconcile(app_id)
                described = query(app_id)
            return described

    def poll(self, app_handle: str) -> DescribeAppResponse | None:
        """Returns the brief description of an application, None if it is unknown, for a part that waits.

        The parts of a process share the answers of an engine that is reached over a network, if it supports
        that: they may be as old as the pauses of :meth:`pause_after`.
        """
        with sharing():
            return self.description(app_handle, brief=True)

    def outline(self, app_handle: str) -> DescribeAppResponse | None:
        """Returns the application id, the roles and the replicas of an application, None if it is unknown.

        The status may be omitted: with thousands of replicas, reading it takes seconds on some schedulers.
        """
        scheduler, app_id = self._of(app_handle)
        if isinstance(scheduler, Outlines):
            return scheduler.outline(app_id)
        return self.description(app_handle, brief=True)

    def status(self, app_handle: str) -> AppStatus | None:
        """Returns the status of an application, None if it is unknown."""
        described = self.description(app_handle, brief=True)
        return None if described is None else status_of(described)

    def usage(self, app_handle: str) -> AppUsage | None:
        """Returns the measurements of an application, None if there are none.

        Raises:
            StateError: the engine cannot be queried.
        """
        scheduler, app_id = self._of(app_handle)
        return scheduler.usage(app_id) if isinstance(scheduler, Measures) else None

    def stacks(
        self,
        app_handle: str,
        replicas: Collection[str] | None = None,
        ranks: Collection[int] | None = None,
        native: bool = False,
    ) -> AppStacks:
        """Returns the stacks of the processes of a running application.

        Args:
            app_handle: the application.
            replicas: only these replicas (``role/id``) and roles (default: all).
            ranks: only the processes of these ranks (default: all).
            native: include frames of compiled code; pauses each process while it is read.

        Raises:
            UnknownAppException: the scheduler does not know the application.
            StateError: it is not running, or its processes cannot be read.
            UsageError: the scheduler cannot run programs in replicas.
        """
        scheduler, app_id = self._of(app_handle)
        described = self.description(app_handle, brief=True)
        if described is None:
            raise UnknownAppException(app_handle)
        with self._event("stacks", scheduler.backend, app_id):
            return runner_stacks.take(scheduler, described, replicas, ranks, native)

    def wait(
        self, app_handle: str, wait_interval: float = LONGEST, timeout: float | None = None
    ) -> AppStatus | None:
        """Blocks until an application has ended.

        Args:
            app_handle: the application.
            wait_interval: maximum seconds between two polls, for schedulers without wake-up.
            timeout: maximum seconds to wait; None for no limit.

        Returns:
            Its status at the end or after the timeout; None if it is unknown.
        """
        scheduler, app_id = self._of(app_handle)
        interval = min(_FIRST_LOOK, wait_interval)
        end = None if timeout is None else time.monotonic() + timeout
        with self._event("wait", scheduler.backend, app_id):
            while True:
                status = self.status(app_handle)
                left = None if end is None else end - time.monotonic()
                if status is None or status.is_terminal() or (left is not None and left <= 0):
                    return status
                if not isinstance(scheduler, Waits):
                    scheduler.reconcile(app_id)
                elif not scheduler.wait(app_id, left):
                    continue
                else:  # it has ended, or was started again meanwhile
                    status = self.status(app_handle)
                    if status is None or status.is_terminal():
                        return status
                time.sleep(interval if left is None else min(interval, left))
                interval = min(interval * 1.5, wait_interval)

    def events(
        self,
        app_handle: str | None = None,
        follow: bool = False,
        *,
        scheduler: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        tail: int | None = None,
    ) -> Iterator[AppEvent]:
        """Yields the events of an application in order, or those of all applications, merged by time.

        Args:
            app_handle: the application (default: all of the caller's).
            follow: continue with new events until the application has ended; without an application, also
                with new applications, until the iterator is closed.
            scheduler: without an application: only those of this scheduler (default: those whose listing is
                cheap, such as the local ones).
            since, until: only events of this time.
            tail: only the last N recorded events, and those that follow.

        Raises:
            UnknownAppException: the scheduler does not know the application.
        """
        query = reports.EventQuery(follow, since, until, tail)
        if app_handle is not None:
            if self.description(app_handle, brief=True) is None:
                raise UnknownAppException(app_handle)
            return reports.of_application(self, app_handle, query)
        return reports.of_schedulers(self, [scheduler] if scheduler else self.cheap_schedulers(), query)

    def notifications(self, app_handle: str) -> Deliveries:
        """Returns the state of each notification about an application, without secrets."""
        try:
            if not self._notifications_folder(app_handle).exists():
                return []
        except StateError:  # without a state home there are no notifications
            return []
        status = self.status(app_handle)
        return [] if status is None else notifications.left(self, app_handle, status.state)

    def provenance(self, app_handle: str) -> Provenance | None:
        """Returns the source, the Python and the machine that an application was submitted from.

        If this machine cannot read them, only the commit and the branch are known. Returns None if
        nothing was recorded.

        Raises:
            StateError: the record cannot be read.
        """
        folder = self._provenance_folder(app_handle)
        found = None if folder is None else store.Store(folder).read()
        return found or runner_provenance.from_metadata(self.description(app_handle))

    def source_diff(self, app_handle: str) -> bytes | None:
        """Returns the diff of the tracked files against the commit of :meth:`provenance`, None without one.

        Raises:
            StateError: it cannot be read.
        """
        folder = self._provenance_folder(app_handle)
        return None if folder is None else store.Store(folder).diff()

    def source_file(self, app_handle: str, file: File) -> bytes:
        """Returns the recorded content of a changed or untracked file of :meth:`provenance`.

        Raises:
            StateError: it was not kept, or cannot be read.
        """
        folder = self._provenance_folder(app_handle)
        if folder is None:
            raise UnknownAppException(app_handle)
        return store.Store(folder).content(file)

    def wakes(self, app_handle: str) -> bool:
        """Returns True if :meth:`wait` is woken at the end of an application, False if it polls."""
        scheduler, app_id = self._of(app_handle)
        return isinstance(scheduler, Waits) and scheduler.wakes(app_id)

    def pause_after(self, app_handle: str, waited: float) -> float:
        """Returns the seconds until the next query of an application; see :mod:`torchx.scheduling.pace`."""
        scheduler, app_id = self._of(app_handle)
        return pause_after(waited, nearby=scheduler.is_nearby(app_id))

    def pause(self, app_handle: str, seconds: float) -> None:
        """Sleeps, until the end of an application at most, if its scheduler sees that without polling."""
        scheduler, app_id = self._of(app_handle)
        if isinstance(scheduler, Waits) and scheduler.wakes(app_id):
            scheduler.wait(app_id, seconds)
        else:
            time.sleep(seconds)

    def cancel(self, app_handle: str) -> None:
        """Cancels an application; does nothing if it has ended or is unknown."""
        scheduler, app_id = self._of(app_handle)
        with self._event("cancel", scheduler.backend, app_id):
            scheduler.cancel(app_id)

    def kill(self, app_handle: str) -> None:
        """Kills an application without a grace period, if the scheduler can."""
        scheduler, app_id = self._of(app_handle)
        with self._event("kill", scheduler.backend, app_id):
            scheduler.kill(app_id) if isinstance(scheduler, Kills) else scheduler.cancel(app_id)

    def stop(self, app_handle: str) -> None:
        """The older name of :meth:`cancel`."""
        warnings.warn("Runner.stop is now Runner.cancel", DeprecationWarning, stacklevel=2)
        self.cancel(app_handle)

    def delete(self, app_handle: str) -> None:
        """Removes an application with its record and logs; cancels it first."""
        scheduler, app_id = self._of(app_handle)
        with self._event("delete", scheduler.backend, app_id):
            scheduler.delete(app_id)
        self._apps.pop(app_handle, None)
        notifications.forget(self, app_handle)
        runner_provenance.forget(self, app_handle)

    def describe(self, app_handle: str) -> app.AppDef | None:
        """Returns an application as this runner has submitted it, or as recorded by its scheduler.

        None if it is unknown.
        """
        if (known := self._apps.get(app_handle)) is not None:
            return copy.deepcopy(known)
        found = self.description(app_handle)
        return None if found is None else app.AppDef(found.name or found.app_id, found.roles, found.metadata)

    def list(self, scheduler: str, cfg: RunOptions | None = None) -> AppList:
        """Returns the applications that a scheduler knows, newest first.

        Args:
            scheduler: the scheduler.
            cfg: its run options, if it needs some to connect.
        """
        with self._event("list", scheduler):
            return AppList(self.select(scheduler, AppQuery(), cfg))

    def log_lines(
        self,
        app_handle: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Returns the log lines of one replica, each with its line end.

        Args:
            app_handle: the application.
            role_name: name of the role.
            k: id of the replica within the role.
            regex: only lines in which this pattern is found.
            since, until: only lines of this time.
            should_tail: follow until the application has ended.
            streams: the output stream (default: the scheduler's choice).

        Raises:
            UnknownAppException: the scheduler does not know the application.
            StateError: it has no such role, or no such replica.
            UsageError: ``regex`` is invalid.
            NotImplementedError: the scheduler has no logs, or none of this stream.
        """
        scheduler, app_id = self._of(app_handle)
        described = self.description(app_handle, brief=True)
        if described is None:
            raise UnknownAppException(app_handle)
        if described.roles_statuses:  # else not known yet
            checks.require_replicas(
                described.app_id, checks.replicas_in(described.roles_statuses), role_name, [k]
            )
        if regex is not None:
            logs.check_regex(regex)
        with self._event("log_lines", scheduler.backend, app_id):
            return scheduler.log_iter(app_id, role_name, k, regex, since, until, should_tail, streams)

    def log_chunks(self, app_handle: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the log lines of several replicas as one stream, ordered by time if known.

        Raises:
            UnknownAppException: the scheduler does not know it.
        """
        scheduler, app_id = self._of(app_handle)
        if isinstance(scheduler, LogChunks):
            return scheduler.log_chunks(app_id, query)
        described = scheduler.describe(app_id)
        if described is None:
            raise UnknownAppException(app_handle)
        return logs.merged(scheduler, app_id, described.roles, query)
