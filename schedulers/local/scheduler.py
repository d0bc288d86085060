"""Runs applications as processes of this machine: ``local_cwd`` and ``local_dir``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx.errors import TorchxError, UsageError
from torchx.jobs.paths import Home, file_name, user_home
from torchx.schedulers.local.status import LocalJobs, describe_job
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse, Scheduler

if TYPE_CHECKING:
    from torchx.jobs.view import JobView
    from torchx.schedulers.local.images import CWDImageProvider as CWDImageProvider
    from torchx.schedulers.local.images import ImageProvider as ImageProvider
    from torchx.schedulers.local.images import LocalDirectoryImageProvider as LocalDirectoryImageProvider
    from torchx.schedulers.local.request import PopenRequest as PopenRequest
    from torchx.schedulers.local.request import ReplicaParam as ReplicaParam
    from torchx.schedulers.local.submit import Submitter
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.query import AppQuery, Pruned
    from torchx.specs.app import AppDef
    from torchx.specs.dryrun import AppDryRunInfo
    from torchx.specs.run_options import CfgVal, runopts

LONGEST_NAME = 200
"""Characters of a name as it stands in a path; the file systems take 255, and an id comes behind."""

Words = list[str]
# named here, since within the class `list` is a method

ImageProviderFactory = Callable[["Mapping[str, CfgVal]"], "ImageProvider"]

_ELSEWHERE = {
    "CWDImageProvider": "images",
    "ImageProvider": "images",
    "LocalDirectoryImageProvider": "images",
    "PopenRequest": "request",
    "ReplicaParam": "request",
}
"""Documented names of this module that only a submit needs."""


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        from importlib import import_module

        return getattr(import_module(f"torchx.schedulers.local.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


class LocalScheduler(Scheduler["PopenRequest"]):
    """Starts each replica as a process of this machine, under a supervisor that belongs to no terminal.

    Args:
        session_name: the session part of the handles it makes.
        image_provider_class: what the image of a role means; the working directory unless told.
        cache_size: taken for compatibility; nothing is kept in memory here, so there is nothing to limit.
        extra_paths: folders in which the replicas find programs, after those of PATH.
        backend: the name of the scheduler in handles.
    """

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
        self._image_provider_class = image_provider_class
        self._extra_paths = tuple(extra_paths or ())

    def _run_opts(self) -> runopts:
        from torchx.specs.run_options import runopts

        opts = runopts()
        opts.add("log_dir", type_=str, help="folder for the logs; the state home unless told")
        opts.add(
            "prepend_cwd",
            type_=bool,
            default=False,
            help="look for programs in the working directory first, not last",
        )
        opts.add(
            "auto_set_cuda_visible_devices",
            type_=bool,
            default=False,
            help="insist on GPUs of its own for each replica; else given while there are free ones",
        )
        opts.add("grace_period", type_=float, default=10.0, help="seconds between TERM and KILL")
        opts.add("fail_fast", type_=bool, default=True, help="end all replicas when one fails for good")
        opts.add(
            "retry_backoff",
            type_=float,
            default=1.0,
            help="seconds before the first retry; doubled each time",
        )
        opts.add(
            "workspace_limit_mb", type_=int, default=1024, help="refuse a workspace of more MB than this"
        )
        if self.backend == "local_dir":
            opts.add(
                "image_limit_mb",
                type_=int,
                default=10_240,
                help="refuse an archive as image if it has more MB than this, packed or unpacked",
            )
        return opts

    # --- submit ----------------------------------------------------------------------------------

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        """Refuses what cannot run here; resources are optional for processes."""
        for option in ("grace_period", "retry_backoff"):
            value = cfg.get(option)
            if isinstance(value, (int, float)) and not 0 <= value < float("inf"):
                raise UsageError(f"run option `{option}` of {self.backend} is {value}, expected 0 or more")
        for what, name in (("application", app.name), *(("role", role.name) for role in app.roles)):
            if len(file_name(name)) > LONGEST_NAME:
                raise UsageError(f"the name of the {what} `{name[:24]}…` is too long for a file")

    def takes_workspaces(self, *, asked: bool = True) -> bool:
        """Tells whether a workspace is copied: only when someone asks for that."""
        return asked

    def _apply_workspaces(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> Words:
        """Looks at the workspaces; to copy them is the work of a submission."""
        from torchx.schedulers.local.workspaces import notes_of

        limit = cfg.get("workspace_limit_mb")
        return notes_of(app, limit if isinstance(limit, int) else None)

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[PopenRequest]:
        from torchx.schedulers.local.checks import notes_of
        from torchx.schedulers.local.request import as_text
        from torchx.specs.dryrun import AppDryRunInfo

        info = AppDryRunInfo(self._submitter(cfg).request(app), as_text)
        info.notes += notes_of(app)
        return info

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        """Starts the supervisor of a job.

        Raises:
            UsageError: a program is missing, or the request was submitted before.
            StateError: this system cannot supervise processes, GPUs that were insisted on are not there, the
                state home or the log folder cannot be used, or the supervisor cannot be started.
        """
        if dryrun_info.app is None:
            raise UsageError("a request is submitted with the application that it was made from")
        from torchx.schedulers.local.checks import require_system  # on demand: only a submit needs it

        require_system(self.backend)
        submitter = self._submitter(dryrun_info.cfg)
        dryrun_info.notes += submitter.submit(dryrun_info.request, dryrun_info.app, dryrun_info.tell)
        return dryrun_info.request.app_id

    def _submitter(self, cfg: Mapping[str, CfgVal]) -> Submitter:
        # on demand: who only asks about jobs need not wait for what starts them
        from torchx.schedulers.local.images import CWDImageProvider
        from torchx.schedulers.local.submit import Submitter

        provider = (self._image_provider_class or CWDImageProvider)(cfg)
        return Submitter(self.backend, self.session_name, provider, cfg, self._extra_paths)

    # --- ask and end -----------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns all that is known of a job, running or ended."""
        view = self._jobs().find(app_id)
        if view is None:
            return None
        from torchx.jobs.record import damaged
        from torchx.specs.serialize import app_from_dict

        try:
            app = app_from_dict(view.record.app)
        except (TorchxError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            record = Home(user_home()).job(app_id).record
            raise damaged(record, "`app` is not an application") from error
        return replace(describe_job(view), roles=app.roles, metadata=app.metadata)

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns how a job fares, without its roles."""
        view = self._jobs().find(app_id)
        return None if view is None else describe_job(view)

    def describe_native(self, app_id: str) -> JobView | None:
        """Returns a job as its record and its events tell it, None when it is not on record."""
        return self._jobs().find(app_id)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        """Returns all jobs on record, newest first."""
        from torchx.scheduling.query import AppQuery

        return self._jobs().select(AppQuery())

    def select(self, query: AppQuery) -> Iterator[ListAppResponse]:
        """Yields the jobs on record that are wanted, newest first."""
        return self._jobs().select(query)

    def exists(self, app_id: str) -> bool:
        """Tells whether a job is on record."""
        return self._jobs().find(app_id) is not None

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until a job has ended; the kernel wakes this process at that moment."""
        return self._jobs().wait(app_id, timeout)

    def _cancel_existing(self, app_id: str) -> None:
        self._jobs().request_end(app_id)

    def kill(self, app_id: str) -> None:
        """Kills all processes of a job at once."""
        self._jobs().request_end(app_id, now=True)

    def delete(self, app_id: str) -> None:
        """Removes a job with its logs, also one whose record cannot be read; cancels it first."""
        self._jobs().delete(app_id)

    def prune(self, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended jobs, and what broken-off commands have left behind."""
        from torchx.jobs import pruning

        return pruning.prune(Home(user_home()), app_ids, dryrun=dryrun)

    def diagnose(self) -> Iterable[Finding]:
        """Looks at what local jobs need of this machine."""
        from torchx.schedulers.local.doctor import diagnose

        return diagnose()

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the log of all replicas in the order of time."""
        return self._jobs().log(app_id, query)

    def _jobs(self) -> LocalJobs:
        return LocalJobs(Home(user_home()), self.backend)


def create_cwd_scheduler(session_name: str, **kwargs: Any) -> LocalScheduler:
    """Returns the scheduler ``local_cwd``."""
    return LocalScheduler(session_name)


def create_dir_scheduler(session_name: str, **kwargs: Any) -> LocalScheduler:
    """Returns the scheduler ``local_dir``."""

    def provider(cfg: Mapping[str, CfgVal]) -> ImageProvider:
        from torchx.schedulers.local.images import LocalDirectoryImageProvider  # only a submit needs it

        return LocalDirectoryImageProvider(cfg)

    return LocalScheduler(session_name, provider, backend="local_dir")


create_scheduler = create_cwd_scheduler
"""The documented name of the factory."""
