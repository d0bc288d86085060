"""The schedulers ``local_cwd`` and ``local_dir``, which run applications as processes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
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
"""Maximum length of a name in a path; file systems allow 255, and an id is appended."""

ImageProviderFactory = Callable[["Mapping[str, CfgVal]"], "ImageProvider"]

_ELSEWHERE = {
    "CWDImageProvider": "images",
    "ImageProvider": "images",
    "LocalDirectoryImageProvider": "images",
    "PopenRequest": "request",
    "ReplicaParam": "request",
}
"""Public names of this module that only a submission needs, imported on first use."""


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        from importlib import import_module

        return getattr(import_module(f"torchx.schedulers.local.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


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
        self._image_provider_class = image_provider_class
        self._extra_paths = tuple(extra_paths or ())

    def _run_opts(self) -> runopts:
        from torchx.specs.run_options import runopts

        opts = runopts()
        opts.add("log_dir", type_=str, help="folder for the logs (default: in the state home)")
        opts.add(
            "prepend_cwd",
            type_=bool,
            default=False,
            help="put the working directory first on PATH, not last",
        )
        opts.add(
            "auto_set_cuda_visible_devices",
            type_=bool,
            default=False,
            help="fail if the replicas cannot get GPUs of their own; otherwise warn",
        )
        opts.add("grace_period", type_=float, default=10.0, help="seconds between TERM and KILL")
        opts.add("fail_fast", type_=bool, default=True, help="end all replicas when one fails permanently")
        opts.add(
            "retry_backoff",
            type_=float,
            default=1.0,
            help="seconds before the first retry; doubled for each further one",
        )
        opts.add("workspace_limit_mb", type_=int, default=1024, help="maximum size of a workspace in MB")
        if self.backend == "local_dir":
            opts.add(
                "image_limit_mb",
                type_=int,
                default=10_240,
                help="maximum size of an archive used as image in MB, packed and unpacked",
            )
        return opts

    # --- submit ----------------------------------------------------------------------------------

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal] = NO_OPTIONS) -> None:
        """Checks the run options and the names; resources are optional for processes."""
        for option in ("grace_period", "retry_backoff"):
            value = cfg.get(option)
            if isinstance(value, (int, float)) and not 0 <= value < float("inf"):
                raise UsageError(f"run option `{option}` of {self.backend} is {value}, expected 0 or more")
        for kind, name in (("application", app.name), *(("role", role.name) for role in app.roles)):
            if len(file_name(name)) > LONGEST_NAME:
                raise UsageError(f"the name of the {kind} `{name[:24]}…` is too long for a file")

    def takes_workspaces(self, *, requested: bool = True) -> bool:
        """Returns True if a workspace is copied: only if the user requests it."""
        return requested and self.plans_workspaces

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[PopenRequest]:
        from torchx.schedulers.local.checks import notes_of
        from torchx.schedulers.local.request import as_text
        from torchx.specs.dryrun import AppDryRunInfo

        request, notes = self._submitter(cfg).request(app)
        info = AppDryRunInfo(request, as_text)
        info.notes += notes + notes_of(app)
        return info

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        """Starts the supervisor of a job.

        Raises:
            UsageError: a program is missing, or the request was submitted before.
            StateError: this system cannot supervise processes, required GPUs are not free, the state home or
                the log folder cannot be used, or the supervisor cannot be started.
        """
        if dryrun_info.app is None:
            raise UsageError("a dry-run can be submitted only with its application")
        from torchx.schedulers.local.checks import require_system  # on demand: only a submission needs it

        require_system(self.backend)
        submitter = self._submitter(dryrun_info.cfg)
        dryrun_info.notes += submitter.submit(dryrun_info.request, dryrun_info.app, dryrun_info.on_progress)
        return dryrun_info.request.app_id

    def _submitter(self, cfg: Mapping[str, CfgVal]) -> Submitter:
        # on demand: queries about jobs do not need these modules
        from torchx.schedulers.local.images import CWDImageProvider
        from torchx.schedulers.local.submit import Submitter

        provider = (self._image_provider_class or CWDImageProvider)(cfg)
        return Submitter(self.backend, self.session_name, provider, cfg, self._extra_paths)

    # --- query and cancel ------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the full description of a job, running or ended, or None."""
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
        """Returns the status of a job without its roles, or None."""
        view = self._jobs().find(app_id)
        return None if view is None else describe_job(view)

    def describe_native(self, app_id: str) -> JobView | None:
        """Returns the state of a job from its record and events, or None."""
        return self._jobs().find(app_id)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        """Returns all recorded jobs, newest first."""
        from torchx.scheduling.query import AppQuery

        return self._jobs().select(AppQuery())

    def select(self, query: AppQuery) -> Iterator[ListAppResponse]:
        """Yields the recorded jobs that match a query, newest first."""
        return self._jobs().select(query)

    def reconcile(self, app_id: str) -> None:
        """Finalizes a job whose supervisor is dead: ends its processes and records its end."""
        self._jobs().reconcile(app_id)

    def exists(self, app_id: str) -> bool:
        """Returns True if a job is on record."""
        return self._jobs().find(app_id) is not None

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until a job has ended; without a timeout, the kernel wakes the caller immediately."""
        return self._jobs().wait(app_id, timeout)

    def _cancel_existing(self, app_id: str) -> None:
        self._jobs().request_end(app_id)

    def kill(self, app_id: str) -> None:
        """Kills all processes of a job immediately."""
        self._jobs().request_end(app_id, now=True)

    def delete(self, app_id: str) -> None:
        """Cancels a job and removes it with its logs, even if its record cannot be read."""
        self._jobs().delete(app_id)

    def prune(self, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended jobs and leftovers of interrupted commands."""
        from torchx.jobs import pruning

        return pruning.prune(Home(user_home()), app_ids, dryrun=dryrun)

    def diagnose(self) -> Iterable[Finding]:
        """Checks this machine for the requirements of local jobs."""
        from torchx.schedulers.local.doctor import diagnose

        return diagnose()

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Yields the logs of the replicas in order of time."""
        return self._jobs().log(app_id, query)

    def _jobs(self) -> LocalJobs:
        return LocalJobs(Home(user_home()), self.backend)


def create_cwd_scheduler(session_name: str, **kwargs: Any) -> LocalScheduler:
    """Returns the scheduler ``local_cwd``."""
    return LocalScheduler(session_name)


def create_dir_scheduler(session_name: str, **kwargs: Any) -> LocalScheduler:
    """Returns the scheduler ``local_dir``."""

    def provider(cfg: Mapping[str, CfgVal]) -> ImageProvider:
        from torchx.schedulers.local.images import LocalDirectoryImageProvider  # on demand

        return LocalDirectoryImageProvider(cfg)

    return LocalScheduler(session_name, provider, backend="local_dir")


create_scheduler = create_cwd_scheduler
"""The documented name of the default factory."""
