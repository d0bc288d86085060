"""Reads and ends single applications that wait for others, see :mod:`torchx.sweeps.delayed`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx.specs.handles import make_app_handle
from torchx.specs.status import AppState, ReplicaStatus, RoleStatus
from torchx.sweeps import delayed, view
from torchx.sweeps.paths import is_delayed, known, paths_of
from torchx.sweeps.scheduler import SweepScheduler, described_without_runs

with lazy_imports:
    from torchx.specs import serialize
    from torchx.sweeps import logs

if TYPE_CHECKING:
    from torchx.scheduling.base import AnyScheduler, DescribeAppResponse, EngineOf, ListAppResponse
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.query import AppQuery
    from torchx.sweeps.view import Sweep

PAUSE = 0.2
"""Seconds between two searches for the start, while the log is followed."""


def reason(sweep: Sweep) -> str:
    """Returns the reason for the state of an application that has not started."""
    if sweep.blocked and not sweep.has_ended:
        return sweep.blocked
    return sweep.runs[0].message or sweep.progress.reason


class DelayedScheduler(SweepScheduler):
    """Reads and ends single applications that wait."""

    has_runs = False
    waits_in_queue = True

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the description of an application that has not started."""
        found = view.find(paths_of(app_id))
        if found is None:
            return None
        described = described_without_runs(found)
        described.msg = reason(found)
        described.first_failure = None
        described.cfg = self.engine_of(found.header.scheduler).run_opts().resolve(found.header.cfg)
        described.roles = serialize.app_from_dict(found.header.template).roles
        state = described.state
        if state is AppState.SUBMITTED:
            state = AppState.PENDING
        described.roles_statuses = [
            RoleStatus(role.name, [ReplicaStatus(k, state, role.name, "") for k in range(role.num_replicas)])
            for role in described.roles
        ]
        return described

    glance = summary = describe

    def waiting(self, query: AppQuery, scheduler: str) -> Iterator[ListAppResponse]:
        """Yields the matching applications of a scheduler that wait for others, newest first."""
        names = [name for name in known() if is_delayed(name)]
        for row in self._rows(query, names):
            handle = make_app_handle(scheduler, self.session_name, row.app_id)
            found = delayed.find(handle, self.engine_of)
            if found is not None and not found.app_id:
                yield replace(row, app_handle=found.handle, msg=reason(found.sweep))

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Yields the log of the application, once it has started."""
        found = view.require(app_id)
        while query.follow and not found.has_ended and not delayed.started(found, self.engine_of):
            time.sleep(PAUSE)
            found = view.require(app_id)
        run_id = delayed.started(found, self.engine_of)
        if run_id:
            yield from logs.chunks_of(self.engine_of(found.header.scheduler), run_id, query)

    def _error_about(self, app_id: str, part: str) -> StateError:
        found = view.require(app_id)
        return StateError(f"{app_id} has not started: {reason(found)}", code="not_running")


def scheduler_of(app: delayed.Delayed, engine_of: EngineOf) -> tuple[AnyScheduler, str]:
    """Returns the scheduler that has an application, and its id there."""
    header = app.sweep.header
    if app.app_id:
        return engine_of(header.scheduler), app.app_id
    return DelayedScheduler(header.session, engine_of), header.sweep
