"""The ``gridengine`` scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
from torchx.lazy import lazy_imports
from torchx.schedulers.gridengine import commands, jobs
from torchx.schedulers.gridengine.jobs import ENGINE, GridEngineJob
from torchx.schedulers.shared.batch.outcome import save_outcome
from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.shared.batch.scheduler import BatchScheduler
from torchx.schedulers.shared.batch.status import Reasons, describe, listed
from torchx.schedulers.shared.batch.wait import Watch
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.specs.status import is_terminal

with lazy_imports:
    from torchx.schedulers.gridengine import doctor, options, request, submit
    from torchx.schedulers.gridengine import exec as gridengine_exec
    from torchx.schedulers.shared.batch import folders

if TYPE_CHECKING:
    from socket import socket

    from torchx.schedulers.gridengine.request import GridEngineRequest
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AppDef, AppDryRunInfo
    from torchx.specs.run_options import RunOptions, runopts

_REASONS = Reasons()


class GridEngineScheduler(BatchScheduler["GridEngineRequest"]):
    """Submits jobs with qsub; keeps scripts, records and logs in a folder shared with all hosts.

    Args:
        session_name: the session part of its handles.
    """

    def __init__(self, session_name: str) -> None:
        super().__init__(ENGINE, session_name)

    def _run_opts(self) -> runopts:
        return options.run_options()

    def uses_images(self, described: DescribeAppResponse) -> bool:
        """Returns False: programs run on the hosts."""
        return False

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: RunOptions) -> None:
        options.check_options(cfg)

    def _validate(self, app: AppDef, scheduler: str, cfg: RunOptions = NO_OPTIONS) -> None:
        request.check(app)

    def _submit_dryrun(self, app: AppDef, cfg: RunOptions) -> AppDryRunInfo[GridEngineRequest]:
        return request.dry_run(app, cfg, self.session_name)

    def schedule(self, dryrun_info: AppDryRunInfo[GridEngineRequest]) -> str:
        """Submits a job.

        Raises:
            UsageError: the request was already submitted, or the cluster cannot run it.
            StateError: Grid Engine is missing, does not respond or rejects the job.
        """
        return submit.schedule(dryrun_info, self.session_name)

    def _find(self, app_id: str) -> GridEngineJob | None:
        return jobs.find(app_id)

    def _find_to_read(self, app_id: str, *, by_files: bool) -> GridEngineJob | None:
        return jobs.find(app_id, by_files=by_files)

    def _find_record(self, app_id: str) -> BatchRecord | None:
        return jobs.find_record(app_id)

    def _explained(self, job: GridEngineJob) -> GridEngineJob:
        return jobs.with_reason(job)

    def _status(self, job: GridEngineJob) -> DescribeAppResponse:
        return describe(job.record, job.app_id, job.outcome, _REASONS)

    def _last_known(self, record: BatchRecord, app_id: str) -> DescribeAppResponse:
        return describe(record, app_id, jobs.outcome_without_engine(record), _REASONS)

    def _watch(self, record: BatchRecord) -> Watch:
        return Watch(record, jobs.ANSWERS, jobs.find)

    def describe_native(self, app_id: str) -> Any:
        """Returns the facts of qstat on a job, or None if it is unknown or has left the queue."""
        return self._of_known(app_id, lambda job: job.facts)

    def list(self, cfg: RunOptions | None = None) -> Iterable[ListAppResponse]:
        """Returns the jobs of this state home, newest first."""
        commands.require("qstat")
        return [listed(job.record, job.app_id, job.outcome, _REASONS) for job in jobs.list_jobs()]

    def _cancel_existing(self, app_id: str) -> None:
        self._end(app_id)

    def kill(self, app_id: str) -> None:
        """Kills all processes of a job immediately."""
        self._end(app_id, now=True)

    def _end(self, app_id: str, *, now: bool = False) -> BatchRecord | None:
        """Cancels a job: Grid Engine sends USR2 to its script, and kills it after the time of its queue."""
        job = jobs.find(app_id)
        if job is None:
            return None
        save_outcome(job.record, job.outcome)
        if not is_terminal(job.outcome.state):
            folders.mark_cancelled(job.record)
            if now:
                folders.mark_killed(job.record)
            jobs.delete_from_queue(job)
        return job.record

    def _delete_existing(self, app_id: str) -> None:
        record = self._end(app_id)
        if record is not None:
            folders.wait_until_ended(record.key, lambda: jobs.has_ended(record.full_id))
            Records(ENGINE).remove(record)
            folders.remove_folders(record)

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program on the host of a replica, with its environment and in its working directory."""
        return gridengine_exec.execute(app_id, role_name, k, command, streams)

    def port_connector(self, app_id: str, role_name: str, k: int, port: str) -> Callable[[], socket]:
        """Returns a function that connects to a port of a replica."""
        return gridengine_exec.port_connector(app_id, role_name, k, port)

    def diagnose(self) -> Iterable[Finding]:
        """Checks the cluster."""
        return doctor.diagnose()


def create_scheduler(session_name: str, **kwargs: Any) -> GridEngineScheduler:
    """Returns the scheduler ``gridengine``."""
    return GridEngineScheduler(session_name)
