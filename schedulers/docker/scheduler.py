"""Runs applications in the containers of a Docker engine: ``local_docker``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
from torchx.lazy import lazy_imports, lazy_names
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse, Scheduler

with lazy_imports:
    from torchx.schedulers.docker import checks, doctor, options, request, status, submit
    from torchx.schedulers.docker import exec as docker_exec
    from torchx.schedulers.docker import usage as docker_usage
    from torchx.schedulers.docker.engine import address, client
    from torchx.schedulers.docker.images import workspace as images_workspace
    from torchx.schedulers.docker.queueing import applications

if TYPE_CHECKING:
    from socket import socket

    from torchx.schedulers.docker.request import DockerContainer as DockerContainer
    from torchx.schedulers.docker.request import DockerJob as DockerJob
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.query import Pruned
    from torchx.scheduling.streams import Streams
    from torchx.scheduling.usage import AppUsage
    from torchx.specs.app import AppDef, AppDryRunInfo
    from torchx.specs.run_options import CfgVal, runopts


__getattr__ = lazy_names(
    __name__,
    {
        "DockerContainer": "torchx.schedulers.docker.request",
        "DockerJob": "torchx.schedulers.docker.request",
    },
)


class DockerScheduler(Scheduler["DockerJob"]):
    """Runs each replica as a container; the engine holds all state of an application that has started.

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

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        options.check_options(cfg)

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal] = NO_OPTIONS) -> None:
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

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[DockerJob]:
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
        return applications.describe(self._engine, app_id)

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of an application, without its roles."""
        return applications.glance(self._engine, app_id)

    def describe_native(self, app_id: str) -> Any:
        """Returns the engine's description of each container of an application, or None."""
        return status.describe_native(self._engine, app_id)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        """Returns all applications on the engine, newest first."""
        address.require_socket()

        return applications.list_apps(self._engine)

    def reconcile(self, app_id: str) -> None:
        """Starts a supervisor or a keeper for an application that has lost its own on this machine."""
        applications.reconcile(self._engine, app_id)

    def exists(self, app_id: str) -> bool:
        """Returns True if an application waits for its containers, or has some."""
        return applications.exists(self._engine, app_id)

    def may_wait(self, app_id: str) -> bool:
        """Returns True if an application is in the queue of this machine."""
        return applications.may_wait(self._engine, app_id)

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Waits for an application to end, or for the timeout; returns True if it has ended."""
        return applications.wait(self._engine, app_id, timeout)

    def usage(self, app_id: str) -> AppUsage | None:
        """Returns the measurements of an application, or None if there are none."""
        return docker_usage.usage(self._engine, app_id)

    # --- cancel ----------------------------------------------------------------------------------

    def _cancel_existing(self, app_id: str) -> None:
        applications.cancel(self._engine, app_id)

    def kill(self, app_id: str) -> None:
        """Kills all containers of an application immediately."""
        applications.cancel(self._engine, app_id, now=True)

    def _delete_existing(self, app_id: str) -> None:
        applications.delete(self._engine, app_id)

    def prune(self, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended applications, then images of workspaces that no container uses."""
        return applications.prune(self._engine, app_ids, dryrun=dryrun)

    # --- logs, programs, checks ------------------------------------------------------------------

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the logs of all replicas in order of time.

        Raises:
            StateError: the engine does not know the application.
        """
        return applications.read_logs(self._engine, app_id, query)

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program in the container of a replica and returns its exit code.

        Raises:
            StateError: the replica does not run, or its container has no such program.
        """
        return docker_exec.execute(self._engine, app_id, role_name, k, command, streams)

    def port_connector(self, app_id: str, role_name: str, k: int, port: str) -> Callable[[], socket]:
        """Returns a function that connects to a port of a replica."""
        return docker_exec.port_connector(self._engine, app_id, role_name, k, port)

    def diagnose(self) -> Iterable[Finding]:
        """Checks the configured engine."""
        return doctor.diagnose()


def create_scheduler(session_name: str, **kwargs: Any) -> DockerScheduler:
    """Returns the scheduler ``local_docker``."""
    return DockerScheduler(session_name)
