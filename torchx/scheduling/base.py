"""The interface of a scheduler.

A scheduler has two halves: :meth:`Scheduler._submit_dryrun`, a pure function from an application and
options to a request, and :meth:`Scheduler.schedule`, which submits such a request.
``torchx.schedulers.api`` is the documented name of this module.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchx import settings
from torchx.compat.subclasses import NO_OPTIONS, Adapted, method_of_engine
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.scheduling.protocols import BuildsImages as BuildsImages
from torchx.scheduling.protocols import BuildsWorkspaces as BuildsWorkspaces
from torchx.scheduling.protocols import CopiesFiles as CopiesFiles
from torchx.scheduling.protocols import Diagnoses as Diagnoses
from torchx.scheduling.protocols import Executes as Executes
from torchx.scheduling.protocols import ForwardsPorts as ForwardsPorts
from torchx.scheduling.protocols import Glances as Glances
from torchx.scheduling.protocols import KeepsFiles as KeepsFiles
from torchx.scheduling.protocols import KeepsProvenance as KeepsProvenance
from torchx.scheduling.protocols import Kills as Kills
from torchx.scheduling.protocols import LogChunks as LogChunks
from torchx.scheduling.protocols import ManyRuns as ManyRuns
from torchx.scheduling.protocols import Measures as Measures
from torchx.scheduling.protocols import NeedsWatcher as NeedsWatcher
from torchx.scheduling.protocols import Outlines as Outlines
from torchx.scheduling.protocols import Prunes as Prunes
from torchx.scheduling.protocols import Reports as Reports
from torchx.scheduling.protocols import Selects as Selects
from torchx.scheduling.protocols import Shared as Shared
from torchx.scheduling.protocols import SubmitsMany as SubmitsMany
from torchx.scheduling.protocols import Summarizes as Summarizes
from torchx.scheduling.protocols import TakesStacks as TakesStacks
from torchx.scheduling.protocols import Waits as Waits
from torchx.scheduling.responses import DescribeAppResponse as DescribeAppResponse
from torchx.scheduling.responses import ListAppResponse as ListAppResponse

with lazy_imports:
    from torchx.scheduling import checks, logs
    from torchx.services import rules
    from torchx.specs import app as specs_app
    from torchx.specs import checks as specs_checks
    from torchx.specs import macro, resources, run_options, status

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, AppDryRunInfo, Role
    from torchx.specs.run_options import RunOptions, runopts
    from torchx.specs.workspace import Workspace

T = TypeVar("T")
Lines = list[str]
# an alias, since `list` is a method within the class


class Scheduler(Adapted, abc.ABC, Generic[T]):
    """An engine that runs applications.

    Args:
        backend: the name of the scheduler in handles.
        session_name: the session part of its handles.

    ``T`` is the type of its requests.

    Attributes:
        attaches_by_default: `torchx run` stays attached: it shows the log, waits for the end, and Ctrl-C
            cancels the application. Otherwise it returns after the submission.
        cheap_to_list: a listing takes milliseconds and no network, so that shell completion offers the
            applications.
        on_this_machine: the replicas start immediately, on one machine. So the commands show no
            host names, and do not report why an application waits.
        plans_workspaces: :meth:`_submit_dryrun` plans copies or images of the workspaces as a part of its
            request, from which :meth:`schedule` makes them. It may set ``role.image`` to the future image.

        workspaces_on_request: a workspace from a configuration file is ignored, as the replicas use the files
            of this machine directly and do not need a copy; only one that the user requests is copied.
        sends_notifications: :meth:`schedule` arranges ``notify`` of its request, so that the end is reported
            without a process that waits for it. Otherwise the runner starts such a process on this machine.
        has_runs: its applications are sweeps: their roles are runs with parameters.
        records_attempts: replicas record their attempts in files, so that with :func:`.pace.sharing` frequent
            queries of a running application read these files, and the engine answers seldom.
        knows_hosts: replaces the macro of the hosts of a role; others reject it at the dry-run.
        runs_services: supports services and the order of starts; others reject them at the dry-run.
        waits_in_queue: an application whose resources are not free waits in the queue of this machine; its
            run options include ``priority`` and ``no_wait``.

    A scheduler overrides these attributes in its class, or in an object.
    """

    attaches_by_default: bool = False
    cheap_to_list: bool = False
    on_this_machine: bool = False
    plans_workspaces: bool = False
    workspaces_on_request: bool = False
    sends_notifications: bool = False
    has_runs: bool = False
    records_attempts: bool = False
    runs_services: bool = False
    knows_hosts: bool = False
    waits_in_queue: bool = False
    _opts: runopts | None = None

    def __init__(self, backend: str, session_name: str) -> None:
        self.backend = backend
        self.session_name = session_name

    def close(self) -> None:
        """Releases the resources of this object; does not affect running applications."""

    def submit(self, app: AppDef, cfg: RunOptions, workspace: str | Workspace | None = None) -> str:
        """Submits an application.

        Args:
            app: the application; not changed.
            cfg: run options, checked by :meth:`run_opts`.
            workspace: folders to overlay on the image of the first role, and on the same image of others;
                ignored with a warning if this scheduler does not support workspaces.

        Returns:
            The id of the application.
        """
        return self.schedule(self.submit_dryrun(app, cfg, workspace))

    @abc.abstractmethod
    def schedule(self, dryrun_info: AppDryRunInfo[T]) -> str:
        """Submits a request of :meth:`submit_dryrun` and returns the application's id."""

    def submit_dryrun(
        self, app: AppDef, cfg: RunOptions, workspace: str | Workspace | None = None
    ) -> AppDryRunInfo[T]:
        """Makes the request that :meth:`submit` would send; contacts no engine and writes nothing.

        Raises:
            InvalidRunConfigException: an option is unknown, missing or of the wrong type.
            UsageError: this engine cannot run the application.
        """
        roles = list(map(specs_app.resolve_overrides, app.roles))
        app = specs_app.plain(replace(app, roles=roles, metadata=dict(app.metadata)))
        try:
            resolved = specs_app.plain(self.run_opts().resolve(cfg))
        except run_options.InvalidRunConfigException as error:
            if error.code == "unknown_run_option":
                error.message += f" for {self.backend}"
            else:
                error.message += f" (scheduler {self.backend})"
            raise
        checks.check_names(app)
        self._pre_build_validate(app, self.backend, resolved)
        if names := specs_checks.hosts_in(app):
            checks.require_hosts(app, names, self.backend, known=self.knows_hosts)
        if specs_checks.has_services(app):
            rules.check(app) if self.runs_services else rules.reject(app, self.backend)
        if workspace and self.takes_workspaces():
            specs_app.lay_over(workspace, app.roles)
        elif workspace:
            warnings.warn(f"{self.backend} does not support workspaces: it is ignored", stacklevel=2)
        if not self.plans_workspaces and any(role.workspace for role in app.roles):
            if not isinstance(self, BuildsWorkspaces):
                raise UsageError(f"{self.backend} does not accept workspaces")
            self.build_workspaces(app.roles, resolved)
        self._validate(app, self.backend, resolved)
        notes: Lines = []
        if resolved.get("avoid_bad_nodes"):
            notes = import_module("torchx.features.bad_nodes.store").avoid(self.backend, resolved)
        info = self._submit_dryrun(app, resolved)
        info.notes += notes
        info.app, info.cfg, info.scheduler = app, resolved, self.backend
        for role in app.roles:
            info = role.pre_proc(self.backend, info)
        return info

    @abc.abstractmethod
    def _submit_dryrun(self, app: AppDef, cfg: RunOptions) -> AppDryRunInfo[T]:
        """Returns the request for an application; contacts no engine, and reads no files but workspaces."""

    def run_opts(self) -> runopts:
        """Returns the run options of this scheduler, including those of its workspaces."""
        if self._opts is None:
            opts = self._run_opts()
            if isinstance(self, BuildsWorkspaces):
                self._opts = opts | self.workspace_opts()
            else:
                self._opts = opts
        return self._opts

    def _run_opts(self) -> run_options.runopts:
        return run_options.runopts()

    @abc.abstractmethod
    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the description of an application, or None if the engine does not know it."""

    def uses_images(self, described: DescribeAppResponse) -> bool:
        """Returns True if the replicas of an application run in the images of their roles."""
        return True

    def describe_native(self, app_id: str) -> Any:
        """Returns the engine's own object for an application, or None."""
        return None

    @abc.abstractmethod
    def list(self, cfg: RunOptions | None = None) -> Iterable[ListAppResponse]:
        """Returns the applications of the engine, newest first."""

    def reconcile(self, app_id: str) -> None:
        """Brings an application to the state that it should have; does nothing if it has it, or is unknown.

        For example, it records the end of a job whose supervisor died, starts a missing supervisor, or ends
        the replicas that a failed one leaves behind. Queries (`describe`, `list`, `exists`, the logs) change
        nothing: the runner calls this if a response has ``needs_reconcile`` and, for an engine that cannot
        block until an end, while it waits or follows a log.
        """

    def recorded(self, app_id: str) -> str:
        """Returns the handle of an application by its record on this machine, without a query; else empty.

        Engines that number their applications implement it; those of others are found in a listing.
        """
        return ""

    def is_nearby(self, app_id: str) -> bool:
        """Returns True if queries of an application stay on this machine, so that they may be frequent."""
        return self.on_this_machine

    def wakes(self, app_id: str) -> bool:
        """Returns True if the method of :class:`Waits` sees the end of an application without polling."""
        return self.is_nearby(app_id)

    def may_wait(self, app_id: str) -> bool:
        """Returns True if an application may not have started yet, so that its reason is of interest."""
        return not self.on_this_machine

    def exists(self, app_id: str) -> bool:
        """Returns True if the engine knows the application, running or ended."""
        return self.describe(app_id) is not None

    def cancel(self, app_id: str) -> None:
        """Cancels an application; does nothing if it has ended or is unknown."""
        if self._is_live(app_id):
            self._cancel_existing(app_id)

    def _is_live(self, app_id: str) -> bool:
        """Returns True if a cancellation may be needed; an engine that handles ended ones need not query."""
        described = self.describe(app_id)
        return described is not None and not status.is_terminal(described.state)

    @abc.abstractmethod
    def _cancel_existing(self, app_id: str) -> None:
        """Cancels an application that the engine knows."""

    def delete(self, app_id: str) -> None:
        """Cancels an application, and removes it with its records and logs."""
        if self.exists(app_id):
            self._delete_existing(app_id)

    def _delete_existing(self, app_id: str) -> None:
        """Removes an application that the engine knows (default: only cancels it)."""
        self._cancel_existing(app_id)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: logs.Stream | None = None,
    ) -> Iterable[str]:
        """Returns the log lines of one replica, each with its line end.

        Args:
            app_id: the application.
            role_name: name of the role.
            k: id of the replica within the role.
            regex: only lines in which this pattern is found.
            since: only lines written at or after this time.
            until: only lines written before this time.
            should_tail: follow until the application has ended.
            streams: the output stream (default: both, in the order they were written).

        Raises:
            NotImplementedError: the engine keeps no logs: neither this nor `LogChunks` is implemented.
        """
        log_chunks = method_of_engine(self, LogChunks.log_chunks)
        if log_chunks is None:
            raise NotImplementedError(f"{self.backend} does not provide logs")
        stream = streams or logs.Stream.COMBINED
        query = logs.LogQuery({role_name: frozenset([k])}, regex, since, until, None, should_tail, stream)
        return logs.lines_of(log_chunks(app_id, query))

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: RunOptions) -> None:
        """Rejects an invalid application before its workspace is built."""

    def _validate(self, app: AppDef, scheduler: str, cfg: RunOptions = NO_OPTIONS) -> None:
        """Rejects an application that this engine cannot run (default: one without resources)."""
        for role in app.roles:
            if role.resource == resources.NULL_RESOURCE:
                raise UsageError(f"role `{role.name}` has no resource, and {scheduler} needs one")

    def takes_workspaces(self, *, requested: bool = True) -> bool:
        """Returns True if this scheduler supports workspaces.

        Args:
            requested: the user requested it for this run. Otherwise it comes from a configuration file.
        """
        honours = self.plans_workspaces or isinstance(self, BuildsWorkspaces)
        return honours and (requested or not self.workspaces_on_request)


AnyScheduler = Scheduler[Any]
"""A scheduler, whatever the type of its requests is."""

EngineOf = Callable[[str], AnyScheduler]
"""Returns the scheduler of a name."""


def replica_variables(role: str, replica: int | str, count: int) -> dict[str, str]:
    """Returns the variables that name a replica: its role, its id within the role, their number."""
    return {
        settings.TORCHX_REPLICA: f"{role}/{replica}",
        "TORCHX_ROLE": role,
        "TORCHX_REPLICA_ID": str(replica),
        "TORCHX_NUM_REPLICAS": str(count),
    }


def replicas_of(
    app: AppDef, *, app_id: str, img_root: str, rank0_env: str, hosts: Mapping[str, str] | None = None
) -> Iterator[tuple[Role, int, Role]]:
    """Yields every replica of an application with its macros replaced.

    Args:
        app: the application; not changed.
        app_id: its id.
        img_root: the root of the image in the replica.
        rank0_env: the environment variable with the host of replica 0 of the first role.
        hosts: the hosts of each role, separated by commas.

    Yields:
        The role, the replica's id within it, and the replica's copy of the role.
    """
    for role in app.roles:
        for replica in range(role.num_replicas):
            values = macro.macros.Values(
                img_root=img_root,
                app_id=app_id,
                replica_id=str(replica),
                rank0_env=rank0_env,
                role_hosts=hosts or {},
            )
            yield role, replica, values.apply(role)


def filter_regex(regex: str, data: Iterable[str]) -> Iterable[str]:
    """Returns the lines in which a pattern is found.

    >>> list(filter_regex("o", ["one", "three", "two"]))
    ['one', 'two']
    """
    return filter(logs.finder(regex), data)


def split_lines(text: str) -> list[str]:
    r"""Returns the lines of a text, each with its line end.

    >>> split_lines("a\nb")
    ['a\n', 'b']
    """
    *lines, last = text.split("\n")
    return [line + "\n" for line in lines] + ([last] if last else [])
