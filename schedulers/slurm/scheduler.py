"""The ``slurm`` scheduler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
from torchx.lazy import lazy_imports, lazy_names
from torchx.schedulers.shared.batch.scheduler import BatchScheduler
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse

with lazy_imports:
    from torchx.schedulers.shared.batch.measurement import reader
    from torchx.schedulers.slurm import cancel as slurm_cancel
    from torchx.schedulers.slurm import checks, commands, doctor, options, queue, request, status, submit
    from torchx.schedulers.slurm import exec as slurm_exec
    from torchx.schedulers.slurm import stacks as slurm_stacks
    from torchx.schedulers.slurm import wait as slurm_wait
    from torchx.schedulers.slurm.sweeps import cancel as array_cancel
    from torchx.schedulers.slurm.sweeps import states as array_states
    from torchx.schedulers.slurm.sweeps import submit as array_submit

if TYPE_CHECKING:
    from socket import socket

    from torchx.schedulers.shared.batch.record import BatchRecord
    from torchx.schedulers.shared.batch.wait import Watch
    from torchx.schedulers.slurm.options import SlurmOptions
    from torchx.schedulers.slurm.request import SlurmRequest as SlurmRequest
    from torchx.scheduling.base import ManyRuns
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.measurement import AppUsage
    from torchx.scheduling.stacks import AppStacks
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AppDef, AppDryRunInfo
    from torchx.specs.run_options import RunOptions


__getattr__ = lazy_names(__name__, {"SlurmRequest": "torchx.schedulers.slurm.request"})


class SlurmScheduler(BatchScheduler["SlurmRequest"]):
    """Submits jobs with sbatch; keeps scripts, records and logs in a folder shared with all nodes.

    Args:
        session_name: the session part of its handles.
    """

    def __init__(self, session_name: str) -> None:
        super().__init__("slurm", session_name)

    # --- submit ----------------------------------------------------------------------------------

    def _run_opts(self) -> SlurmOptions:
        return options.run_options()

    def uses_images(self, described: DescribeAppResponse) -> bool:
        """Returns True if the programs run in containers."""
        return bool(described.cfg.get("containers"))

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: RunOptions) -> None:
        options.check_options(cfg)

    def _validate(self, app: AppDef, scheduler: str, cfg: RunOptions = NO_OPTIONS) -> None:
        checks.check(app, cfg)

    def _submit_dryrun(self, app: AppDef, cfg: RunOptions) -> AppDryRunInfo[SlurmRequest]:
        return request.dry_run(app, cfg, self.session_name)

    def schedule(self, dryrun_info: AppDryRunInfo[SlurmRequest]) -> str:
        """Submits a job.

        Raises:
            UsageError: the cluster cannot run it, or the request was already submitted.
            StateError: Slurm is missing, does not respond or rejects the job, or a folder cannot be created.
        """
        return submit.schedule(dryrun_info, self.session_name)

    # --- status ----------------------------------------------------------------------------------

    def _find(self, app_id: str) -> queue.SlurmJob | None:
        return queue.find(app_id)

    def _find_to_read(self, app_id: str, *, by_files: bool) -> queue.SlurmJob | None:
        job = queue.find(app_id, by_files=by_files)
        if job is not None:
            queue.require_own(job, "read")
        return job

    def _find_record(self, app_id: str) -> BatchRecord | None:
        return queue.find_record(app_id)

    def _status(self, job: queue.SlurmJob) -> DescribeAppResponse:
        return status.describe_job(job)

    def _last_known(self, record: BatchRecord, app_id: str) -> DescribeAppResponse:
        return status.last_known(record, app_id)

    def _watch(self, record: BatchRecord) -> Watch:
        return slurm_wait.watch(record)

    def describe_native(self, app_id: str) -> Any:
        """Returns the facts of squeue on each part of a job, or None if unknown."""
        return self._of_known(app_id, lambda job: list(job.queue))

    def list(self, cfg: RunOptions | None = None) -> Iterable[ListAppResponse]:
        """Returns the jobs of torchx, newest first.

        Args:
            cfg: run options; ``all_users`` includes jobs of other users.
        """
        commands.require_slurm("squeue")

        return status.list_apps(cfg)

    def stacks(
        self, app_id: str, replicas: Collection[str] | None, ranks: Collection[int] | None, native: bool
    ) -> AppStacks:
        """Returns the stacks of the processes on the nodes of a job."""
        return slurm_stacks.stacks(app_id, replicas, ranks, native)

    # --- cancel ----------------------------------------------------------------------------------

    def _cancel_existing(self, app_id: str) -> None:
        slurm_cancel.cancel(app_id)

    def kill(self, app_id: str) -> None:
        """Kills all processes of a job immediately."""
        slurm_cancel.kill(app_id)

    def _delete_existing(self, app_id: str) -> None:
        slurm_cancel.delete(app_id)

    # --- many runs -------------------------------------------------------------------------------

    def rejects_many(self, runs: ManyRuns) -> str:
        """Returns why runs cannot be a job array, as a clause; empty if they can."""
        return array_submit.rejects(self, runs)

    def submit_many(self, runs: ManyRuns) -> Mapping[int, str]:
        """Submits runs as a job array, and returns the id of each by its number."""
        return array_submit.submit(self, runs)

    def glance_many(self, app_ids: Collection[str]) -> Mapping[str, DescribeAppResponse]:
        """Returns the status of runs, without their roles."""
        return array_states.glance_many(app_ids)

    def usage_many(self, app_ids: Collection[str]) -> Mapping[str, AppUsage]:
        """Returns the measurements of ended runs."""
        return reader.usage_many("slurm", app_ids)

    def cancel_many(self, app_ids: Collection[str], *, now: bool = False) -> None:
        """Cancels runs."""
        array_cancel.cancel_many(app_ids, now=now)

    def delete_many(self, app_ids: Collection[str]) -> None:
        """Removes ended runs, with their logs and records."""
        array_cancel.delete_many(app_ids)

    def limit_many(self, app_ids: Collection[str], at_once: int) -> None:
        """Changes the maximum number of these runs at the same time; 0 for no limit."""
        array_cancel.limit_many(app_ids, at_once)

    # --- logs, checks ----------------------------------------------------------------------------

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program on the node of a replica, with its environment and in its working directory."""
        return slurm_exec.execute(app_id, role_name, k, command, streams)

    def port_connector(self, app_id: str, role_name: str, k: int, port: str) -> Callable[[], socket]:
        """Returns a function that connects to a port of a replica."""
        return slurm_exec.port_connector(app_id, role_name, k, port)

    def diagnose(self) -> Iterable[Finding]:
        """Checks the cluster."""
        return doctor.diagnose()


def create_scheduler(session_name: str, **kwargs: Any) -> SlurmScheduler:
    """Returns the scheduler ``slurm``."""
    return SlurmScheduler(session_name)
