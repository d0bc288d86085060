"""The ``slurm`` scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
from torchx.errors import StateError, UsageError
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse, Scheduler

if TYPE_CHECKING:
    from torchx.schedulers.slurm.options import SlurmOptions
    from torchx.schedulers.slurm.queue import SlurmJob
    from torchx.schedulers.slurm.request import SlurmRequest as SlurmRequest
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.specs.app import AppDef
    from torchx.specs.dryrun import AppDryRunInfo
    from torchx.specs.run_options import CfgVal


def __getattr__(name: str) -> Any:
    if name == "SlurmRequest":
        from torchx.schedulers.slurm import request as slurm_request

        return slurm_request.SlurmRequest
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


class SlurmScheduler(Scheduler["SlurmRequest"]):
    """Submits jobs with sbatch; keeps scripts, records and logs in a folder shared with all nodes.

    Args:
        session_name: the session part of its handles.
    """

    shared_by = "a cluster"
    plans_workspaces = True

    def __init__(self, session_name: str) -> None:
        super().__init__("slurm", session_name)

    def _run_opts(self) -> SlurmOptions:
        from torchx.schedulers.slurm.options import run_opts

        return run_opts()

    # --- submit ----------------------------------------------------------------------------------

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal] = NO_OPTIONS) -> None:
        """Checks an application and its run options; resources are optional."""
        from torchx.schedulers.slurm.request import check

        check(app, cfg)

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[SlurmRequest]:
        from torchx.schedulers.slurm.request import as_text, notes_of, to_request
        from torchx.schedulers.slurm.workspaces import plan_workspaces
        from torchx.specs.dryrun import AppDryRunInfo

        copies, builds, notes = plan_workspaces(app, cfg)
        info = AppDryRunInfo(to_request(app, cfg, self.session_name, copies, builds), as_text)
        info.notes += notes
        info.notes += notes_of(app, cfg)
        return info

    def schedule(self, dryrun_info: AppDryRunInfo[SlurmRequest]) -> str:
        """Submits a job.

        Raises:
            UsageError: sbatch does not support an option, or the request was already submitted.
            StateError: Slurm is missing, does not respond or rejects the job, or a folder cannot be created.
        """
        from torchx.schedulers.slurm.submit import submit
        from torchx.schedulers.slurm.workspaces import provide

        app = dryrun_info.app
        if app is None:
            raise StateError("the request has no application: submit it as returned by the dry run")
        report = _discard if dryrun_info.cfg.get("quiet") else dryrun_info.on_progress
        request, notes = provide(dryrun_info.request, report)
        job_id, more = submit(request, app, dryrun_info.cfg, self.session_name)
        dryrun_info.notes += notes + more
        return str(job_id)

    # --- query and end ---------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the description of a job, or None if unknown."""
        job = self._find(app_id)
        if job is None:
            return None
        from torchx.specs.serialize import app_from_dict

        description = _describe(job)
        try:
            app = app_from_dict(job.record.app)
        except UsageError as error:
            return replace(description, msg=description.msg or f"its record is damaged: {error.message}")
        return replace(description, roles=app.roles, metadata=app.metadata)

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of a job, without its roles."""
        job = self._find(app_id)
        return None if job is None else _describe(job)

    def describe_native(self, app_id: str) -> Any:
        """Returns the facts of squeue on each part of a job, or None if unknown."""
        job = self._find(app_id)
        return None if job is None else list(job.queue)

    def exists(self, app_id: str) -> bool:
        """Returns True if a job is known; queries Slurm only if it has no record."""
        from torchx.schedulers.slurm.queue import find_record

        return find_record(app_id) is not None or self._find(app_id) is not None

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        """Returns the jobs of torchx, newest first.

        Args:
            cfg: run options; ``all_users`` includes jobs of other users.
        """
        from torchx.schedulers.slurm.controller import require_slurm

        require_slurm("squeue")
        from torchx.schedulers.slurm.queue import list_jobs
        from torchx.schedulers.slurm.status import listed

        jobs = list_jobs(bool((cfg or {}).get("all_users")))
        return [replace(listed(job.record, job.app_id, job.outcome), is_own=not job.owner) for job in jobs]

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until a job has ended; checks its files, and at intervals the queue."""
        from torchx.schedulers.slurm.cancel import Watch

        job = self._find(app_id)
        return job is None or Watch(job.record.job_id, job.record).wait(timeout)

    def _cancel_existing(self, app_id: str) -> None:
        from torchx.schedulers.slurm.cancel import cancel

        if (job := self._find(app_id)) is not None:
            cancel(job)

    def kill(self, app_id: str) -> None:
        """Kills all processes of a job immediately."""
        from torchx.schedulers.slurm.cancel import kill

        if (job := self._find(app_id)) is not None:
            kill(job)

    def _delete_existing(self, app_id: str) -> None:
        from torchx.schedulers.slurm.cancel import delete

        if (job := self._find(app_id)) is not None:
            delete(job)

    # --- logs ------------------------------------------------------------------------------------

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the log of all replicas, ordered by time.

        Raises:
            StateError: the job is unknown.
        """
        from torchx.jobs.log_reader import Member
        from torchx.schedulers.slurm.cancel import Watch, require_own
        from torchx.schedulers.slurm.logs import SlurmLog, require_folder
        from torchx.schedulers.slurm.queue import find
        from torchx.specs.status import is_terminal

        job = find(app_id, by_files=not query.follow)
        if job is None:
            raise StateError(f"{self.backend} knows no application `{app_id}`")
        require_own(job, "read")
        require_folder(job.record.paths, is_terminal(job.outcome.state))
        roles = job.record.app.get("roles", ())
        members = [Member(r["name"], k) for r in roles for k in range(int(r.get("num_replicas", 1)))]
        watch = Watch(job.record.job_id, job.record)
        return SlurmLog(job.record.paths, members, lambda: not watch.has_ended()).read(query)

    def diagnose(self) -> Iterable[Finding]:
        """Checks the cluster."""
        from torchx.schedulers.slurm.doctor import diagnose

        return diagnose()

    def _find(self, app_id: str) -> SlurmJob | None:
        from torchx.schedulers.slurm.queue import find

        return find(app_id)


def _describe(job: SlurmJob) -> DescribeAppResponse:
    from torchx.schedulers.slurm.status import describe

    return describe(job.record, job.app_id, job.outcome, job.queue)


def _discard(line: str) -> None:
    """Ignores a progress message."""


def create_scheduler(session_name: str, **kwargs: Any) -> SlurmScheduler:
    """Returns the scheduler ``slurm``."""
    return SlurmScheduler(session_name)
