"""Runs applications in the containers of a Docker engine: ``local_docker``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
from torchx.errors import StateError, UsageError
from torchx.scheduling.base import DescribeAppResponse, Lines, ListAppResponse, Scheduler

if TYPE_CHECKING:
    from torchx.schedulers.docker.containers import Container
    from torchx.schedulers.docker.engine.client import Engine
    from torchx.schedulers.docker.images.plan import ImagePlan
    from torchx.schedulers.docker.request import DockerContainer as DockerContainer
    from torchx.schedulers.docker.request import DockerJob as DockerJob
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.query import Pruned
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AppDef
    from torchx.specs.dryrun import AppDryRunInfo
    from torchx.specs.run_options import CfgVal, runopts

Containers = list["Container"]  # an alias, as `list` is a method within the class
POLL_INTERVAL = 10.0
"""Seconds between checks of the containers without an event."""


def __getattr__(name: str) -> Any:
    if name in ("DockerContainer", "DockerJob"):
        from torchx.schedulers.docker import request as docker_request

        return getattr(docker_request, name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


class DockerScheduler(Scheduler["DockerJob"]):
    """Runs each replica as a container; the engine holds all state of an application.

    Args:
        session_name: the session in the handles.
    """

    shared_by = "all users of the engine"
    attaches_by_default = on_this_machine = plans_workspaces = True

    def __init__(self, session_name: str) -> None:
        super().__init__("local_docker", session_name)
        self._engine: Engine | None = None

    def _run_opts(self) -> runopts:
        from torchx.specs.run_options import runopts

        opts = runopts()
        opts.add(
            "copy_env",
            type_=list[str],
            help="names of environment variables to copy to the containers; patterns such as AWS_* work",
        )
        opts.add("env", type_=dict[str, str], help="environment variables for all containers, as A:1,B:2")
        opts.add(
            "privileged", type_=bool, default=False, help="give the containers all rights on this machine"
        )
        opts.add(
            "image_repo",
            type_=str,
            help="repository to push images of workspaces to and run them from, as in "
            "registry.example.com/team/jobs; for engines that pull",
        )
        opts.add("workspace_limit_mb", type_=int, default=1024, help="maximum size of a workspace in MB")
        opts.add("quiet", type_=bool, default=False, help="show no progress of pulls, builds and pushes")
        opts.add("grace_period", type_=float, default=10.0, help="seconds between TERM and KILL")
        opts.add("fail_fast", type_=bool, default=True, help="end all replicas when one fails permanently")
        opts.add(
            "retry_backoff",
            type_=float,
            default=1.0,
            help="seconds before the first retry, doubled each time; not for retries of single replicas",
        )
        return opts

    # --- submit ----------------------------------------------------------------------------------

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal] = NO_OPTIONS) -> None:
        """Checks the images and the run options; without a resource, a container has no limits."""
        for option in ("grace_period", "retry_backoff"):
            value = cfg.get(option)
            if isinstance(value, (int, float)) and value < 0:
                raise UsageError(f"run option `{option}` of {self.backend} is {value}, expected 0 or more")
        for role in app.roles:
            if not role.image:
                raise UsageError(f"role `{role.name}` has no image, and {scheduler} needs one")

    def build_planned_images(self, dryrun_info: AppDryRunInfo[DockerJob]) -> None:
        """Builds, and pushes where configured, the images that a dry-run has planned for workspaces."""
        from torchx.schedulers.docker.images.workspace import build_planned

        if dryrun_info.app is not None and dryrun_info.request.builds:
            build_planned(self._connected(), dryrun_info.request.builds, dryrun_info.app)

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
        from torchx.schedulers.docker.images.workspace import plan_image, provide_image
        from torchx.specs.app import Role
        from torchx.specs.workspace import Workspace
        from torchx.workspace.tree import scan

        parsed = Workspace.from_str(workspace)
        plan = plan_image(Role("workspace", img, workspace=parsed), scan(parsed), {})
        return provide_image(self._connected(), plan, _ignore)[0]

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[DockerJob]:
        from torchx.schedulers.docker.request import as_text, notes_of, to_request
        from torchx.schedulers.ids import make_unique
        from torchx.specs.dryrun import AppDryRunInfo

        builds: Iterable[ImagePlan] = ()
        notes: Lines = []
        if any(role.workspace for role in app.roles):
            from torchx.schedulers.docker.images.plan import plan_images

            builds, notes = plan_images(app, cfg)
        info = AppDryRunInfo(to_request(app, make_unique(app.name), cfg, builds), as_text)
        info.notes += notes + notes_of(app)
        return info

    def schedule(self, dryrun_info: AppDryRunInfo[DockerJob]) -> str:
        """Creates and starts the containers of an application, all of them or none.

        Raises:
            UsageError: the request is invalid, or was submitted before.
            StateError: the engine does not answer, an image is missing, or a container cannot be started.
        """
        from torchx.schedulers.docker.record import job_data
        from torchx.schedulers.docker.submit import submit

        if dryrun_info.app is None:
            raise UsageError("a request can be submitted only with the application it was created from")
        data = job_data(dryrun_info.app, dryrun_info.cfg, self.session_name)
        report = _ignore if dryrun_info.cfg.get("quiet") else dryrun_info.on_progress
        dryrun_info.notes += submit(self._connected(), dryrun_info.request, data, report)
        return dryrun_info.request.app_id

    # --- query and cancel ------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of an application, running or ended, with its roles."""
        containers = self._containers_with_oom(app_id)
        if not containers:
            return None
        from torchx.schedulers.docker.status import describe_all

        return replace(describe_all(containers), needs_reconcile=_lacks_supervisor(containers))

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of an application, without its roles."""
        containers = self._containers_with_oom(app_id)
        if not containers:
            return None
        from torchx.schedulers.docker.status import describe

        return replace(describe(containers), needs_reconcile=_lacks_supervisor(containers))

    def describe_native(self, app_id: str) -> Any:
        """Returns the engine's description of each container of an application, or None."""
        engine = self._connected()
        inspected = [engine.call("GET", f"/containers/{c.id}/json") for c in self._containers(app_id)]
        return inspected or None

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        """Returns all applications on the engine, newest first."""
        from torchx.schedulers.docker.engine.address import require_socket

        require_socket()
        from torchx.schedulers.docker.lookup import find_containers
        from torchx.schedulers.docker.status import listed

        lines = [
            listed(containers) for containers in find_containers(self._connected(), tolerant=True).values()
        ]
        return sorted(
            lines, key=lambda line: (line.submitted_at is not None, line.submitted_at), reverse=True
        )

    def reconcile(self, app_id: str) -> None:
        """Starts a supervisor for an application that has lost its own on this machine."""
        from torchx.schedulers.docker.supervisor_launch import ensure_supervisor

        if containers := self._containers(app_id):
            ensure_supervisor(containers)

    def exists(self, app_id: str) -> bool:
        """Returns True if the engine has containers of an application."""
        from torchx.schedulers.docker.lookup import entries

        return bool(entries(self._connected(), app_id))

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Waits for an application to end, or for the timeout; returns True if it has ended."""
        from torchx.schedulers.docker.containers import damage_of
        from torchx.schedulers.docker.events import Events
        from torchx.schedulers.docker.replay import is_under_way
        from torchx.schedulers.docker.status import describe
        from torchx.schedulers.docker.supervisor_launch import ensure_supervisor
        from torchx.specs.status import is_terminal

        end = None if timeout is None else time.monotonic() + timeout
        containers: Containers = []
        with closing(Events(self._connected(), app_id)) as events:
            while True:
                containers = self._containers(app_id, events.unchanged(containers))
                if not containers or is_terminal(describe(containers).state):
                    return True
                if damage_of(containers) and not is_under_way(containers):
                    return True
                ensure_supervisor(containers)
                left = POLL_INTERVAL if end is None else min(end - time.monotonic(), POLL_INTERVAL)
                if left <= 0:
                    return False
                if not events.wait_for_all(containers, left):
                    raise StateError(
                        f"the Docker engine at {self._connected().address} was stopped while {app_id} ran",
                        hint="once it runs again: torchx status @last",
                    )

    def _cancel_existing(self, app_id: str) -> None:
        from torchx.schedulers.docker.cancel import cancel

        cancel(self._connected(), app_id)

    def kill(self, app_id: str) -> None:
        """Kills all containers of an application immediately."""
        from torchx.schedulers.docker.cancel import cancel

        cancel(self._connected(), app_id, now=True)

    def _delete_existing(self, app_id: str) -> None:
        from torchx.schedulers.docker.cancel import delete
        from torchx.schedulers.docker.record import forget
        from torchx.schedulers.docker.supervisor_launch import remove_folder

        delete(self._connected(), app_id)
        remove_folder(app_id)
        forget(app_id)

    def prune(self, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended applications, then images of workspaces that no container uses."""
        from torchx.schedulers.docker.prune import prune

        return prune(self._connected(), app_ids, dryrun=dryrun)

    def diagnose(self) -> Iterable[Finding]:
        """Checks the configured engine."""
        from torchx.schedulers.docker.doctor import diagnose

        return diagnose()

    # --- logs ------------------------------------------------------------------------------------

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the logs of all replicas in order of time.

        Raises:
            StateError: the engine does not know the application.
        """
        from torchx.schedulers.docker.logs import read_logs

        containers = self._readable(app_id)
        return read_logs(self._connected(), app_id, query, containers)

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program in the container of a replica and returns its exit code.

        Raises:
            StateError: the replica does not run, or its container has no such program.
        """
        from torchx.schedulers.docker.exec import container_of, execute

        containers = self._readable(app_id)
        container = container_of(containers, app_id, role_name, k)
        return execute(self._connected(), container, command, streams)

    # --- the engine ------------------------------------------------------------------------------

    def _connected(self) -> Engine:
        if self._engine is None:
            from torchx.schedulers.docker.engine.client import Engine

            self._engine = Engine()
        return self._engine

    def _readable(self, app_id: str) -> Containers:
        """Returns the containers of an application.

        Raises:
            StateError: the application is unknown or cannot be read.
        """
        from torchx.schedulers.docker.containers import damage_of

        containers = self._containers(app_id)
        if not containers:
            raise StateError(f"{self.backend} knows no application `{app_id}`")
        damage = damage_of(containers)
        if damage:
            raise StateError(
                f"the replicas of {app_id} cannot be read: {damage}",
                hint=f"Docker still has its container: docker logs {containers[0].id[:12]}",
            )
        return containers

    def _containers_with_oom(self, app_id: str) -> Containers:
        """Returns the containers of an application, including late out-of-memory reports."""
        from torchx.schedulers.docker.lookup import with_late_oom

        return with_late_oom(self._connected(), self._containers(app_id))

    def _containers(self, app_id: str, known: Iterable[Container] = ()) -> Containers:
        from torchx.schedulers.docker.lookup import find_containers

        return find_containers(self._connected(), app_id, known, tolerant=True).get(app_id, [])


def _lacks_supervisor(containers: Containers) -> bool:
    from torchx.schedulers.docker.supervisor_launch import lacks_supervisor

    return lacks_supervisor(containers)


def _ignore(line: str) -> None:
    """Ignores progress messages."""


def create_scheduler(session_name: str, **kwargs: Any) -> DockerScheduler:
    """Returns the scheduler ``local_docker``."""
    return DockerScheduler(session_name)
