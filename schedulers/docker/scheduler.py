"""Runs applications in the containers of a Docker engine: ``local_docker``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
from torchx.lazy import lazy_imports, lazy_names
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse, Scheduler

with lazy_imports:
    from torchx.schedulers.docker import cancel as docker_cancel
    from torchx.schedulers.docker import (
        checks,
        doctor,
        files,
        folder,
        logs,
        options,
        request,
        status,
        submit,
        unstarted,
    )
    from torchx.schedulers.docker import exec as docker_exec
    from torchx.schedulers.docker import prune as docker_prune
    from torchx.schedulers.docker import reconcile as docker_reconcile
    from torchx.schedulers.docker import wait as docker_wait
    from torchx.schedulers.docker.engine import address, client
    from torchx.schedulers.docker.images import workspace as images_workspace
    from torchx.schedulers.docker.measurement import query as docker_measurement
    from torchx.scheduling import pace

if TYPE_CHECKING:
    from socket import socket

    from torchx.schedulers.docker.request import DockerContainer as DockerContainer
    from torchx.schedulers.docker.request import DockerJob as DockerJob
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.measurement import AppUsage
    from torchx.scheduling.query import Pruned
    from torchx.scheduling.streams import Input, Streams
    from torchx.specs.app import AppDef, AppDryRunInfo
    from torchx.specs.run_options import RunOptions, runopts


__getattr__ = lazy_names(
    __name__,
    {
        "DockerContainer": "torchx.schedulers.docker.request",
        "DockerJob": "torchx.schedulers.docker.request",
    },
)


class DockerScheduler(Scheduler["DockerJob"]):
    """Runs each replica as a container; a folder on this machine adds to the state that the engine has.

    Args:
        session_name: the session in the handles.
    """

    shared_by = "all users of the engine"
    attaches_by_default = on_this_machine = plans_workspaces = True
    knows_hosts = waits_in_queue = runs_services = True

    def __init__(self, session_name: str) -> None:
        super().__init__("local_docker", session_name)

    @cached_property
    def _engine(self) -> client.Engine:
        return client.Engine()

    # --- submit ----------------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return options.run_options()

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: RunOptions) -> None:
        options.check_local(self.backend, cfg)

    def _validate(self, app: AppDef, scheduler: str, cfg: RunOptions = NO_OPTIONS) -> None:
        checks.check(app)

    def build_planned_images(self, dryrun_info: AppDryRunInfo[DockerJob]) -> None:
        """Builds, and pushes where configured, the images that a dry-run has planned for workspaces."""
        images_workspace.build_planned(dryrun_info.request.builds, dryrun_info, self._engine)

    def build_workspace_image(self, img: str, workspace: str) -> str:
        """Builds an image with a workspace on top of another image, unless the engine has it.

        Args:
            img: the base image.
            workspace: a folder, or an address supported by fsspec.

        Returns:
            The id of the image.

        Raises:
            UsageError: the workspace does not exist or is too large.
            StateError: it cannot be built.
        """
        return images_workspace.build_workspace_image(self._engine, img, workspace)

    def _submit_dryrun(self, app: AppDef, cfg: RunOptions) -> AppDryRunInfo[DockerJob]:
        return request.dry_run(app, cfg)

    def schedule(self, dryrun_info: AppDryRunInfo[DockerJob]) -> str:
        """Creates and starts the containers of an application, all or none; or puts it into the queue.

        Raises:
            UsageError: the request is invalid, or was submitted before.
            StateError: the engine does not answer, an image is missing, or a container cannot be started.
        """
        return submit.schedule(self._engine, dryrun_info, self.session_name)

    # --- status ----------------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of an application, running or ended, with its roles."""
        return status.describe_app(self._engine, app_id)

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of an application, without its roles."""
        return status.glance(self._engine, app_id)

    def describe_native(self, app_id: str) -> Any:
        """Returns the engine's description of each container of an application, or None."""
        return status.describe_native(self._engine, app_id)

    def list(self, cfg: RunOptions | None = None) -> Iterable[ListAppResponse]:
        """Returns all applications of the engine, newest first."""
        address.require_socket()
        return status.list_apps(self._engine)

    def reconcile(self, app_id: str) -> None:
        """Continues an application that has lost its process on this machine, or records its end."""
        docker_reconcile.reconcile_app(self._engine, app_id)

    def exists(self, app_id: str) -> bool:
        """Returns True if an application was submitted here, or has containers."""
        return status.exists(self._engine, app_id)

    _is_live = exists

    def may_wait(self, app_id: str) -> bool:
        """Returns True if an application is in the queue of this machine."""
        submitted = folder.find(self._engine.address, app_id)
        return submitted is not None and submitted.paths.is_waiting()

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Waits for an application to end, or for the timeout; returns True if it has ended."""
        end = pace.deadline(timeout)
        ended = unstarted.wait(self._engine, app_id, timeout)
        if ended is not None:
            return ended
        return docker_wait.wait(self._engine, app_id, max(0.0, end - time.monotonic()))

    def usage(self, app_id: str) -> AppUsage | None:
        """Returns the measurements of an application, or None if there are none."""
        return docker_measurement.usage(self._engine, app_id)

    # --- cancel ----------------------------------------------------------------------------------

    def _cancel_existing(self, app_id: str) -> None:
        self._cancel(app_id, now=False)

    def kill(self, app_id: str) -> None:
        """Kills all containers of an application immediately."""
        self._cancel(app_id, now=True)

    def _cancel(self, app_id: str, *, now: bool) -> None:
        if not unstarted.cancel(self._engine, app_id, now=now):
            docker_cancel.cancel(self._engine, app_id, now=now)

    def _delete_existing(self, app_id: str) -> None:
        unstarted.end_waiting(self._engine, app_id)
        docker_cancel.delete(self._engine, app_id)

    def prune(self, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended applications, then images of workspaces that no container uses."""
        return docker_prune.prune(self._engine, app_ids, dryrun=dryrun)

    # --- logs, programs, checks ------------------------------------------------------------------

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the logs of all replicas in order of time; those of a waiting application follow its start.

        Raises:
            StateError: the engine does not know the application, or it cannot be read.
        """
        submitted = folder.find(self._engine.address, app_id)
        if submitted is None or not submitted.is_unstarted:
            return logs.read_logs(self._engine, app_id, query)
        return self._logs_when_started(app_id, query)

    def _logs_when_started(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        if query.follow and query.until is None and unstarted.wait(self._engine, app_id, None) is None:
            yield from logs.read_logs(self._engine, app_id, query)

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program in the container of a replica and returns its exit code.

        Raises:
            StateError: the replica does not run, or its container has no such program.
        """
        return docker_exec.execute(self._engine, app_id, role_name, k, command, streams)

    def file_kind(self, app_id: str, role_name: str, k: int, path: str) -> str:
        """Returns the kind of a path in the container of a replica."""
        return files.ContainerFiles(self._engine, app_id, role_name, k).kind(path)

    def read_files(self, app_id: str, role_name: str, k: int, path: str) -> Input:
        """Returns an archive with files of a container, running or ended."""
        return files.ContainerFiles(self._engine, app_id, role_name, k).read(path)

    def write_files(
        self,
        app_id: str,
        role_name: str,
        k: int,
        folder: str,
        send: Callable[[Callable[[bytes], None]], None],
    ) -> None:
        """Unpacks an archive in a folder of a container."""
        files.ContainerFiles(self._engine, app_id, role_name, k).write(folder, send)

    def port_connector(self, app_id: str, role_name: str, k: int, port: str) -> Callable[[], socket]:
        """Returns a function that connects to a port of a replica."""
        return docker_exec.port_connector(self._engine, app_id, role_name, k, port)

    def diagnose(self) -> Iterable[Finding]:
        """Checks the configured engine."""
        return doctor.diagnose()


def create_scheduler(session_name: str, **kwargs: Any) -> DockerScheduler:
    """Returns the scheduler ``local_docker``."""
    return DockerScheduler(session_name)
