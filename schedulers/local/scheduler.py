"""The schedulers ``local_cwd`` and ``local_dir``, which run applications as processes on this machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
from torchx.errors import StateError
from torchx.lazy import lazy_imports, lazy_names
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse, Scheduler

with lazy_imports:
    import subprocess

    from torchx.jobs import catalog, log_reader, pruning
    from torchx.jobs import measurement as job_measurement
    from torchx.jobs import paths as job_paths
    from torchx.jobs import view as job_view
    from torchx.machine import files, locks, processes
    from torchx.schedulers.local import cancel as local_cancel
    from torchx.schedulers.local import (
        checks,
        doctor,
        events,
        images,
        options,
        request,
        submit,
    )
    from torchx.schedulers.local import exec as local_exec
    from torchx.schedulers.local import status as local_status
    from torchx.scheduling import query as app_query
    from torchx.scheduling import stack_program
    from torchx.supervisor import process

if TYPE_CHECKING:
    from socket import socket

    from torchx.jobs.view import JobView
    from torchx.schedulers.local.images import CWDImageProvider as CWDImageProvider
    from torchx.schedulers.local.images import ImageProvider as ImageProvider
    from torchx.schedulers.local.images import LocalDirectoryImageProvider as LocalDirectoryImageProvider
    from torchx.schedulers.local.request import PopenRequest as PopenRequest
    from torchx.schedulers.local.request import ReplicaParam as ReplicaParam
    from torchx.schedulers.local.status import LocalJobs
    from torchx.scheduling.events import AppEvent
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.measurement import AppUsage
    from torchx.scheduling.query import AppQuery, Pruned
    from torchx.scheduling.stacks import AppStacks
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AppDef, AppDryRunInfo
    from torchx.specs.run_options import RunOptions, runopts

STACK_TAKER = "torchx.machine.stack_taker"
STARTS_WITHIN = 0.2
"""Seconds between two checks of a waiting job without a keeper."""

ImageProviderFactory = Callable[["RunOptions"], "ImageProvider"]

__getattr__ = lazy_names(
    __name__,
    {
        "CWDImageProvider": "torchx.schedulers.local.images",
        "ImageProvider": "torchx.schedulers.local.images",
        "LocalDirectoryImageProvider": "torchx.schedulers.local.images",
        "PopenRequest": "torchx.schedulers.local.request",
        "ReplicaParam": "torchx.schedulers.local.request",
    },
)
"""Only a submission needs these public names."""


class LocalScheduler(Scheduler["PopenRequest"]):
    """Starts each replica as a process on this machine, under a supervisor that is independent of terminals.

    Args:
        session_name: the session part of its handles.
        image_provider_class: resolves the images of roles (default: to the working directory).
        cache_size: accepted for compatibility; has no effect.
        extra_paths: folders appended to the PATH of the replicas.
        backend: the name of the scheduler in handles.
    """

    attaches_by_default = cheap_to_list = on_this_machine = plans_workspaces = True
    runs_services = knows_hosts = waits_in_queue = True
    workspaces_on_request = sends_notifications = True
    records_its_name = True

    def __init__(
        self,
        session_name: str,
        image_provider_class: ImageProviderFactory | None = None,
        cache_size: int = 100,
        extra_paths: Iterable[str] | None = None,
        *,
        backend: str = "local_cwd",
    ) -> None:
        super().__init__(backend, session_name)
        self._has_images = image_provider_class is not None
        self._image_provider_class = image_provider_class or (lambda cfg: images.CWDImageProvider(cfg))
        self._extra_paths = tuple(extra_paths or ())

    @cached_property
    def _jobs(self) -> LocalJobs:
        return local_status.LocalJobs.of_user(self.backend)

    # --- submit ----------------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return options.run_options(self.backend)

    def uses_images(self, described: DescribeAppResponse) -> bool:
        """Returns True if images are folders, or archives that are unpacked."""
        return self._has_images

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: RunOptions) -> None:
        options.check_local(self.backend, cfg)

    def _validate(self, app: AppDef, scheduler: str, cfg: RunOptions = NO_OPTIONS) -> None:
        checks.check(app)

    def _submit_dryrun(self, app: AppDef, cfg: RunOptions) -> AppDryRunInfo[PopenRequest]:
        return request.dry_run(
            app,
            cfg,
            self.backend,
            self.session_name,
            self._image_provider_class,
            self._extra_paths,
            knows_hosts=self.knows_hosts,
        )

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        """Starts the supervisor of a job.

        Raises:
            UsageError: a program is missing, or the request was submitted before.
            StateError: this system cannot supervise processes, required GPUs are not free, the state home or
                the log folder cannot be used, or the supervisor cannot be started.
        """
        return submit.schedule(dryrun_info, self.backend, self.session_name, self._image_provider_class)

    # --- status ----------------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the full description of a job, running or ended, or None."""
        return self._jobs.describe(app_id)

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of a job without its roles, or None."""
        return self._jobs.glance(app_id)

    def describe_native(self, app_id: str) -> JobView | None:
        """Returns the state of a job from its record and events, or None."""
        return self._jobs.find(app_id)

    def list(self, cfg: RunOptions | None = None) -> Iterable[ListAppResponse]:
        """Returns all recorded jobs, newest first."""
        return self._jobs.select(app_query.AppQuery())

    def select(self, query: AppQuery) -> Iterator[ListAppResponse]:
        """Yields the recorded jobs that match a query, newest first."""
        return self._jobs.select(query)

    def reconcile(self, app_id: str) -> None:
        """Finalizes a job whose supervisor is dead: ends its processes and records its end."""
        self._jobs.reconcile(app_id)

    def exists(self, app_id: str) -> bool:
        """Returns True if a job is on record."""
        return self._jobs.exists(app_id)

    _is_live = exists

    def may_wait(self, app_id: str) -> bool:
        """Returns True if a job is in the queue of this machine."""
        return catalog.paths_of(self._jobs.home, app_id).is_waiting()

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until a job has ended; without a timeout, the kernel wakes the caller immediately."""
        jobs = self._jobs
        paths = catalog.paths_of(jobs.home, app_id)
        if timeout is None:
            while locks.wait_free(paths.lock) and paths.is_waiting():
                time.sleep(STARTS_WITHIN)  # its keeper was killed, or takes the lock now
                jobs.reconcile(app_id)
            return True
        end = time.monotonic() + timeout
        # waiting for a lock has no timeout, but waiting for the processes that hold it has
        with contextlib.suppress(OSError, StateError):
            view = job_view.load(paths)
            for holder in (view.supervisor, view.guard):
                if holder is not None and not view.has_ended:
                    processes.wait_end(holder, end - time.monotonic())
        while locks.wait_free(paths.lock, max(0.0, end - time.monotonic())):
            if not paths.is_waiting():
                return True
            if time.monotonic() > end:
                return False
            time.sleep(STARTS_WITHIN)
            jobs.reconcile(app_id)
        return False

    def usage(self, app_id: str) -> AppUsage | None:
        """Returns the measurements that the supervisor of a job recorded."""
        jobs = self._jobs
        view = jobs.find(app_id)
        if view is None:
            return None
        return job_measurement.read_usage(view, jobs.home.job(app_id))

    def provenance_folder(self, app_id: str) -> Path | None:
        """Returns the folder for the source of a job, within that of its record."""
        return self._jobs.provenance_folder(app_id)

    def stacks(
        self, app_id: str, replicas: Collection[str] | None, ranks: Collection[int] | None, native: bool
    ) -> AppStacks:
        """Returns the stacks of the processes of a job.

        Raises:
            StateError: the job is unknown, or they cannot be taken.
        """
        argument = stack_program.arguments(self._jobs.require(app_id).record.handle, replicas, ranks, native)
        argv = process.python_command(STACK_TAKER, [argument])
        try:
            done = subprocess.run(
                argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=stack_program.TIMEOUT
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StateError(f"the stacks cannot be taken: {processes.start_error(error)}") from error
        return stack_program.answer(done.stdout, done.stderr, done.returncode)

    # --- cancel ----------------------------------------------------------------------------------

    def _cancel_existing(self, app_id: str) -> None:
        local_cancel.cancel(self._jobs, app_id)

    def kill(self, app_id: str) -> None:
        """Kills all processes of a job immediately."""
        local_cancel.cancel(self._jobs, app_id, now=True)

    def delete(self, app_id: str) -> None:
        """Cancels a job and removes it with its logs, even if its record cannot be read."""
        local_cancel.delete(self._jobs, app_id)

    def prune(self, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended jobs and leftovers of interrupted commands."""
        return pruning.prune(self._jobs.home, app_ids, dryrun=dryrun)

    # --- events, logs, checks ----------------------------------------------------------------------------

    def app_events(self, app_id: str) -> Iterator[AppEvent | None]:
        """Yields the events of a job until its end, and None at their current end."""
        return events.read_job(self._jobs, app_id)

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Yields the logs of the replicas in order of time."""
        jobs = self._jobs
        view = jobs.require(app_id)
        paths = jobs.home.job(app_id)
        folder = Path(view.record.log_dir)
        if os.path.lexists(folder) and not files.is_own_folder(folder):
            raise StateError(f"the log folder {folder} is not a folder of this user")
        members = [log_reader.Member(replica.role, replica.id) for replica in view.replicas]
        is_running = partial(locks.is_held, paths.lock)
        return log_reader.JobLog(job_paths.LogPaths(folder), members, is_running).read(query)

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program with the environment and in the working directory of a replica."""
        return local_exec.execute(self._jobs, app_id, role_name, k, command, streams)

    def replica_folder(self, app_id: str, role_name: str, k: int) -> Path | None:
        """Returns the working directory of a replica, running or ended."""
        return local_exec.folder_of(self._jobs.require(app_id), role_name, k)

    def port_connector(self, app_id: str, role_name: str, k: int, port: str) -> Callable[[], socket]:
        """Returns a function that connects to a port of a replica."""
        return local_exec.port_connector(self._jobs, app_id, role_name, k, port)

    def diagnose(self) -> Iterable[Finding]:
        """Checks this machine for the requirements of local jobs."""
        return doctor.diagnose()


def create_cwd_scheduler(session_name: str, **kwargs: Any) -> LocalScheduler:
    """Returns the scheduler ``local_cwd``."""
    return LocalScheduler(session_name)


def create_dir_scheduler(session_name: str, **kwargs: Any) -> LocalScheduler:
    """Returns the scheduler ``local_dir``."""
    return LocalScheduler(
        session_name, lambda cfg: images.LocalDirectoryImageProvider(cfg), backend="local_dir"
    )


create_scheduler = create_cwd_scheduler
"""The documented name of the default factory."""
