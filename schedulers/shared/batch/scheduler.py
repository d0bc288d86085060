"""A scheduler of a batch system: the methods that need its records, its answers and the files of its jobs."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.schedulers.shared.batch.paths import BatchPaths
from torchx.scheduling.base import DescribeAppResponse, Scheduler
from torchx.scheduling.checks import require_replicas, unknown_application
from torchx.scheduling.protocols import UnavailableError
from torchx.specs.handles import make_app_handle
from torchx.specs.status import is_terminal

with lazy_imports:
    from torchx.schedulers.shared.batch import attempts, logs
    from torchx.schedulers.shared.batch.measurement import reader
    from torchx.specs import serialize

if TYPE_CHECKING:
    from torchx.schedulers.shared.batch.outcome import Outcome
    from torchx.schedulers.shared.batch.record import BatchRecord
    from torchx.schedulers.shared.batch.wait import Watch
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.measurement import AppUsage

A = TypeVar("A")
R = TypeVar("R")


class BatchJob(Protocol):
    """A job of torchx, as an engine finds it."""

    @property
    def app_id(self) -> str:
        """The id in handles."""

    @property
    def record(self) -> BatchRecord:
        """The record of the job."""

    @property
    def outcome(self) -> Outcome:
        """Its state."""


class BatchScheduler(Scheduler[R]):
    """Submits applications as jobs of a batch system; keeps their files in a folder shared with all nodes."""

    shared_by = "a cluster"
    plans_workspaces = runs_services = knows_hosts = records_attempts = True

    @abc.abstractmethod
    def _find(self, app_id: str) -> Any:
        """Returns a job, or None if it is unknown.

        Raises:
            UnavailableError: the batch system does not respond, and the files of the job show no end.
        """

    @abc.abstractmethod
    def _find_to_read(self, app_id: str, *, by_files: bool) -> BatchJob | None:
        """Returns a job of the caller, whose files are read.

        Args:
            app_id: the id of the job.
            by_files: if the batch system does not respond, use the files of the job.

        Raises:
            OwnershipError: it belongs to another user.
        """

    @abc.abstractmethod
    def _find_record(self, app_id: str) -> BatchRecord | None:
        """Returns the record of a job, without a query; None without one."""

    @abc.abstractmethod
    def _status(self, job: Any) -> DescribeAppResponse:
        """Returns the status of a job, without its roles."""

    @abc.abstractmethod
    def _last_known(self, record: BatchRecord, app_id: str) -> DescribeAppResponse:
        """Returns the status of a job by its files alone."""

    @abc.abstractmethod
    def _watch(self, record: BatchRecord) -> Watch:
        """Returns a watch for the end of a job."""

    def _explained(self, job: Any) -> Any:
        """Returns a job, perhaps after a further query about its state."""
        return job

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the description of a job, or None if unknown."""

        def describe(job: Any) -> DescribeAppResponse:
            job = self._explained(job)
            status = self._status(job)
            try:
                app = serialize.app_from_dict(job.record.app)
            except UsageError as error:
                return replace(status, msg=status.msg or f"its record is damaged: {error.message}")
            return replace(status, roles=app.roles, metadata=app.metadata)

        return self._of_known(app_id, describe)

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of a job, without its roles."""
        return self._of_known(app_id, self._status)

    def _of_known(self, app_id: str, answer: Callable[[Any], A]) -> A | None:
        """Returns an answer about a job, or None if it is unknown.

        If the batch system does not respond, its error has the status by the record.
        """
        try:
            job = self._find(app_id)
        except UnavailableError as error:
            record = self._find_record(app_id)
            if record is not None:
                error.last_known = self._last_known(record, app_id)
            raise
        if job is None:
            return None
        return answer(job)

    def recorded(self, app_id: str) -> str:
        """Returns the handle of a job with a record on this machine; empty for others."""
        record = self._find_record(app_id)
        if record is None or record.damage:
            return ""
        return make_app_handle(record.engine, record.session, app_id)

    def exists(self, app_id: str) -> bool:
        """Returns True if a job is known; queries the batch system only if it has no record."""
        if self._find_record(app_id) is not None:
            return True
        return bool(self._of_known(app_id, lambda job: True))

    _is_live = exists

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until a job has ended; checks its files, and at intervals the queue."""
        record = self._find_record(app_id)
        if record is None:
            job = self._find(app_id)
            if job is None:
                return True
            record = job.record
        return self._watch(record).wait(timeout)

    def usage(self, app_id: str) -> AppUsage | None:
        """Returns the measurements of an application; None without any."""
        record = self._find_record(app_id) or getattr(self._find(app_id), "record", None)
        if record is None or record.damage:
            return None
        return reader.usage_of(record)

    def provenance_folder(self, app_id: str) -> Path | None:
        """Returns the folder for the source of a job, within that of its logs."""
        record = self._find_record(app_id)
        if record is None:
            return None
        return next((BatchPaths(folder).provenance for folder in record.folders if folder.is_dir()), None)

    def replica_folder(self, app_id: str, role_name: str, k: int) -> Path | None:
        """Returns the working directory of the newest attempt of a replica; None if it is not known.

        Raises:
            StateError: the job is unknown, or the replica does not exist.
        """
        record = self._find_record(app_id)
        if record is None:
            raise unknown_application(self.backend, app_id)
        known = {
            each["name"]: list(range(each.get("num_replicas", 1))) for each in record.app.get("roles", ())
        }
        require_replicas(app_id, known, role_name, [k])
        for _, attempt in reversed(record.paths.attempts(role_name, k)):
            facts = attempts.read_facts(attempt / "start.json") or {}
            if facts.get("cwd"):
                return Path(facts["cwd"])
        return None

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the log of all replicas, ordered by time.

        Raises:
            StateError: the job is unknown, or its logs cannot be read.
        """
        job = self._find_to_read(app_id, by_files=not query.follow)
        if job is None:
            raise unknown_application(self.backend, app_id)
        over = is_terminal(job.outcome.state)
        return logs.log_chunks(job.record, over=over, watch=self._watch(job.record), query=query)
