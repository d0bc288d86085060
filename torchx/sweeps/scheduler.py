"""The scheduler of sweeps: commands and runners treat a sweep as an application whose roles are its runs.

It runs nothing itself. Each run is an application of the scheduler that the sweep was submitted to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NoReturn

from torchx import settings
from torchx.errors import StateError, TorchxError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine import locks
from torchx.schedulers.ids import make_unique
from torchx.scheduling.base import AnyScheduler, DescribeAppResponse, EngineOf, ListAppResponse
from torchx.scheduling.protocols import UnavailableError
from torchx.scheduling.query import AppQuery
from torchx.scheduling.responses import local_time
from torchx.specs.app_metadata import tags_of
from torchx.specs.handles import make_app_handle
from torchx.specs.status import AppState, AttemptStatus, ReplicaStatus, RoleStatus
from torchx.sweeps import launch, view
from torchx.sweeps.paths import BACKEND, is_delayed, known, paths_of
from torchx.sweeps.plan import numbered

with lazy_imports:
    from torchx.specs import serialize
    from torchx.sweeps import logs, native, parts, removal, requests

if TYPE_CHECKING:
    from pathlib import Path
    from socket import socket

    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.query import Pruned
    from torchx.scheduling.stacks import AppStacks
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AnyDryRunInfo, AppDef
    from torchx.specs.run_options import RunOptions
    from torchx.sweeps.records import Run
    from torchx.sweeps.view import Sweep


class SweepScheduler(AnyScheduler):
    """Reads and ends the sweeps of this user.

    Args:
        session_name: the session part of its handles.
        engine_of: returns the scheduler of a name.
    """

    cheap_to_list = on_this_machine = has_runs = True

    def __init__(self, session_name: str, engine_of: EngineOf) -> None:
        super().__init__(BACKEND, session_name)
        self._other_of = engine_of

    def engine_of(self, name: str) -> AnyScheduler:
        """Returns the scheduler of a name; this one for sweeps."""
        if name == BACKEND:
            return self
        return self._other_of(name)

    def _submit_dryrun(self, app: AppDef, cfg: RunOptions) -> AnyDryRunInfo:
        self._reject()

    def schedule(self, dryrun_info: AnyDryRunInfo) -> str:
        """Rejects the request: runs are submitted to the scheduler that runs them."""
        self._reject()

    def _reject(self) -> NoReturn:
        raise UsageError(
            f"`{BACKEND}` runs no applications itself",
            hint="many runs on a scheduler: torchx run -s local_cwd --each NAME=VALUES COMPONENT",
            code="not_supported",
        )

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the description of a sweep, with the roles of run 1, or None."""
        described = self.glance(app_id)
        if described is not None:
            app = numbered(serialize.app_from_dict(self.sweep(app_id).header.template), 1)
            for role in app.roles:
                role.env.pop(settings.TORCHX_JOB_ID, None)  # each run has another one
            described.roles = app.roles
        return described

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of a sweep with its runs, or None."""
        found = view.find(paths_of(app_id))
        if found is None:
            return None
        return _described(found)

    def summary(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of a sweep without its runs, or None."""
        found = view.find(paths_of(app_id))
        if found is None:
            return None
        return described_without_runs(found)

    def uses_images(self, described: DescribeAppResponse) -> bool:
        """Returns the answer of the scheduler of the runs."""
        engine = self.engine_of(self.sweep(described.app_id).header.scheduler)
        return engine.uses_images(described)

    def sweep(self, app_id: str) -> Sweep:
        """Returns a sweep with its runs.

        Raises:
            StateError: it does not exist, or its files are damaged.
        """
        return view.require(app_id)

    def exists(self, app_id: str) -> bool:
        """Returns True if there is such a sweep."""
        return paths_of(app_id).plan.is_file()

    _is_live = exists

    def list(self, cfg: RunOptions | None = None) -> Iterable[ListAppResponse]:
        """Returns the sweeps, newest first."""
        return self.select(AppQuery())

    def select(self, query: AppQuery) -> Iterator[ListAppResponse]:
        """Yields the sweeps that match a query, newest first; without delayed applications."""
        return self._rows(query, [name for name in known() if not is_delayed(name)])

    def _rows(self, query: AppQuery, names: Sequence[str]) -> Iterator[ListAppResponse]:
        if query.called:
            # an id begins with the name
            beginning = make_unique(query.called).rpartition("-")[0]
            names = [name for name in names if name.startswith(beginning)]
        rows = [row for name in names if (row := self._row(name)) is not None]
        for row in sorted(rows, key=attrgetter("order"), reverse=True):
            if row.matches(query):
                yield row

    def _row(self, name: str) -> ListAppResponse | None:
        try:
            found = view.find(paths_of(name))
        except StateError as error:
            # without a conductor it counts as ended, so that it can be deleted
            if locks.is_held(paths_of(name).lock):
                ended = None
            else:
                ended = local_time(0.0)
            return ListAppResponse(name, AppState.UNKNOWN, ended_at=ended, msg=error.message)
        if found is None:
            return None
        header, failed = found.header, found.failed
        code = failed.code if failed is not None else None
        return ListAppResponse(
            app_id=header.sweep,
            state=found.state,
            app_handle=make_app_handle(BACKEND, header.session, header.sweep),
            name=header.name,
            submitted_at=local_time(header.at),
            started_at=local_time(found.started),
            ended_at=local_time(found.progress.done) if found.has_ended else None,
            exit_code=0 if found.state is AppState.SUCCEEDED else code,
            msg=found.summary(),
            needs_reconcile=found.needs_reconcile,
            tags=tags_of(header.template.get("metadata")),
        )

    def is_nearby(self, app_id: str) -> bool:
        """Returns True if a conductor of this machine starts the runs, False if the engine does."""
        found = view.find(paths_of(app_id))
        return found is None or not found.header.native

    def reconcile(self, app_id: str) -> None:
        """Starts the conductor of a sweep that has not ended, unless it is alive.

        If the engine starts the runs, it records their states instead.
        """
        found = view.find(paths_of(app_id))
        if found is None or found.has_ended:
            return
        if found.header.native:
            try:
                native.reconcile(paths_of(app_id), self.engine_of)
            except UnavailableError as error:
                error.last_known = self.glance(app_id)
                raise
        else:
            launch.start(paths_of(app_id), found.header.scheduler)

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until all runs have ended; the kernel wakes the caller if a conductor starts them."""
        paths = paths_of(app_id)
        found = view.find(paths)
        if found is not None and found.header.native:
            return native.wait(paths, self.engine_of, timeout)
        try:
            free = locks.wait_free(paths.lock, timeout)
        except OSError as error:
            raise StateError(f"{paths.lock}: {error.strerror}") from error
        if not free:
            return False
        found = view.find(paths)
        return found is None or found.has_ended

    def _cancel_existing(self, app_id: str) -> None:
        self._end(app_id, now=False)

    def kill(self, app_id: str) -> None:
        """Kills the running runs, and starts no others."""
        self._end(app_id, now=True)

    def _end(self, app_id: str, *, now: bool) -> None:
        requests.end(paths_of(app_id), now=now)

    def delete(self, app_id: str) -> None:
        """Cancels a sweep and removes it with all of its runs."""
        removal.delete(self.engine_of, app_id)

    def prune(self, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended sweeps with their runs."""
        return removal.prune(self.engine_of, app_ids, dryrun=dryrun)

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Yields the logs of the runs, one run after the other; those that run now at the same time."""
        return logs.read_logs(self.engine_of, app_id, query)

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Raises an error: a run is an application of its own."""
        raise self._error_about(app_id, role_name)

    def port_connector(self, app_id: str, role_name: str, k: int, port: str) -> Callable[[], socket]:
        """Raises an error: a run is an application of its own."""
        raise self._error_about(app_id, role_name)

    def stacks(
        self,
        app_id: str,
        replicas: Collection[str] | None = None,
        ranks: Collection[int] | None = None,
        native: bool = False,
    ) -> AppStacks:
        """Raises an error: a run is an application of its own."""
        raise self._error_about(app_id, min(replicas or [""]).partition("/")[0])

    def _error_about(self, app_id: str, part: str) -> TorchxError:
        return parts.part_error(app_id, part)

    def provenance_folder(self, app_id: str) -> Path | None:
        """Returns the folder for the source of a sweep."""
        paths = paths_of(app_id)
        if paths.folder.is_dir():
            return paths.provenance
        return None


def _described(found: Sweep) -> DescribeAppResponse:
    described = described_without_runs(found)
    described.roles_statuses = [_role(run) for run in found.runs]
    return described


def described_without_runs(found: Sweep) -> DescribeAppResponse:
    """Returns the description of a sweep without its runs."""
    header = found.header
    return DescribeAppResponse(
        app_id=header.sweep,
        state=found.state,
        num_restarts=0,
        msg=found.summary(),
        name=header.name,
        submitted_at=local_time(header.at),
        started_at=local_time(found.started),
        ended_at=local_time(found.progress.done) if found.has_ended else None,
        first_failure=found.first_failure,
        metadata=dict(header.template.get("metadata") or {}),
        cfg=dict(header.cfg),
        needs_reconcile=found.needs_reconcile,
    )


def _role(run: Run) -> RoleStatus:
    name, state = str(run.number), AppState[run.state]
    attempts = []
    if run.app_id:
        attempts = [
            AttemptStatus(
                1, state, run.code, None, local_time(run.started), local_time(run.ended), None, run.message
            )
        ]
    return RoleStatus(name, [ReplicaStatus(0, state, name, "", attempts=attempts)])
