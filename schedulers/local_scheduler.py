"""Runs applications as processes of this machine: ``local_cwd`` and ``local_dir``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from torchx import settings
from torchx.errors import StateError, UsageError
from torchx.jobs.paths import Home, LogPaths, state_home, user_home
from torchx.logs import LogChunk, LogQuery, Stream
from torchx.ports import PortLeases
from torchx.scheduler import DescribeAppResponse, ListAppResponse, Scheduler, replicas_of
from torchx.schedulers.ids import make_unique
from torchx.schedulers.image_providers import CWDImageProvider, ImageProvider, LocalDirectoryImageProvider
from torchx.schedulers.local_checks import check_programs, notes_of
from torchx.schedulers.local_devices import CUDA_VISIBLE_DEVICES, Leases, visible_gpus
from torchx.schedulers.local_jobs import LocalJobs, describe_job, to_record
from torchx.schedulers.local_request import PopenRequest, ReplicaParam, as_text
from torchx.specs.app import AppDef, Role
from torchx.specs.dryrun import AppDryRunInfo
from torchx.specs.handles import make_app_handle
from torchx.specs.runopts import CfgVal, runopts
from torchx.supervisor.launch import launch

ImageProviderFactory = Callable[[Mapping[str, CfgVal]], ImageProvider]


class LocalScheduler(Scheduler[PopenRequest]):
    """Starts each replica as a process of this machine, under a supervisor that belongs to no terminal.

    Args:
        session_name: the session part of the handles it makes.
        image_provider_class: what the image of a role means.
        backend: the name of the scheduler in handles.
        extra_paths: folders that the replicas find programs in, after those of PATH.
    """

    def __init__(
        self,
        session_name: str,
        image_provider_class: ImageProviderFactory = CWDImageProvider,
        *,
        backend: str = "local_cwd",
        extra_paths: Iterable[str] = (),
    ) -> None:
        super().__init__(backend, session_name)
        self._image_provider_class = image_provider_class
        self._extra_paths = list(extra_paths)

    def _run_opts(self) -> runopts:
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
        return opts

    # --- submit ----------------------------------------------------------------------------------

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        """Refuses what cannot run here; resources are optional for processes."""
        for option in ("grace_period", "retry_backoff"):
            value = cfg.get(option)
            if isinstance(value, (int, float)) and value < 0:
                raise UsageError(f"run option `{option}` of {self.backend} is {value}, expected 0 or more")

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[PopenRequest]:
        app_id = make_unique(app.name)
        provider = self._image_provider_class(cfg)
        told = cfg.get("log_dir")
        # logs land there whatever the working directory is later
        log_dir = Path(str(told)).expanduser().absolute() if told else Home(user_home()).logs
        logs = LogPaths(log_dir / self.session_name / app_id)
        request = PopenRequest(app_id, str(logs.folder))
        roots = {role.name: provider.locate_role(role) for role in app.roles}
        for name, root in roots.items():
            only = AppDef(app.name, [role for role in app.roles if role.name == name])
            request.role_params[name] = []
            request.role_log_dirs[name] = []
            for role, replica, filled in replicas_of(
                only, app_id=app_id, img_root=root, rank0_env=settings.TORCHX_RANK0_HOST
            ):
                folder = logs.replica(role.name, replica)
                param = provider.get_replica_param(
                    root, filled, *(str(folder / f"{s}.log") for s in ("stdout", "stderr", "combined"))
                )
                param.env = self._env(param, filled, app_id, logs, replica, bool(cfg.get("prepend_cwd")))
                request.role_params[name].append(param)
                request.role_log_dirs[name].append(str(folder))
        info = AppDryRunInfo(request, as_text)
        info.notes += notes_of(app)
        return info

    def _env(
        self, param: ReplicaParam, role: Role, app_id: str, logs: LogPaths, replica: int, prepend_cwd: bool
    ) -> dict[str, str]:
        """Returns the environment of a replica; what the role itself sets stays."""
        env = {
            "PYTHONUNBUFFERED": "x",
            settings.TORCHX_RANK0_HOST: "localhost",
            settings.TORCHX_JOB_ID: make_app_handle(self.backend, self.session_name, app_id),
            "TORCHELASTIC_ERROR_FILE": str(logs.replica(role.name, replica) / "error.json"),
            "PET_LOG_DIR": str(logs.torchelastic(role.name)),
            **param.env,
        }
        path = [p for p in (env.get("PATH", os.environ.get("PATH", os.defpath)),) if p]
        cwd = [param.cwd] if param.cwd else []
        # last of all, what was installed beside this program, as in an environment nobody has activated
        beside = [str(Path(sys.executable).parent)]
        path = cwd + path if prepend_cwd else path + cwd
        env["PATH"] = os.pathsep.join([*path, *self._extra_paths, *beside])
        return env

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        """Starts the supervisor of a job.

        Raises:
            UsageError: a program is missing, GPUs that were insisted on are not there, or the request was
                submitted before.
            StateError: the state home or the log folder cannot be used, or the supervisor cannot be started.
        """
        request, app, cfg = dryrun_info.request, dryrun_info.app, dryrun_info.cfg
        if app is None:
            raise UsageError("a request is submitted with the application that it was made from")
        provider = self._image_provider_class(cfg)
        for role in app.roles:
            provider.fetch_role(role)
        check_programs(app, request)
        home = Home(state_home())
        leases = Leases(home.devices)
        with closing(leases):
            self._lease_gpus(app, request, cfg, leases, dryrun_info.notes)
            with PortLeases({name for role in app.roles for name in role.port_map}) as ports:
                for params in request.role_params.values():
                    for param in params:
                        param.env = {**ports.env, **param.env}
                record = to_record(request, app, cfg, self.backend, self.session_name)
                launch(home, record, held=[*leases.held, *ports.descriptors])
        return request.app_id

    def _lease_gpus(
        self, app: AppDef, request: PopenRequest, cfg: Mapping[str, CfgVal], leases: Leases, notes: list[str]
    ) -> None:
        wanting = [
            role for role in app.roles if role.resource.gpu > 0 and CUDA_VISIBLE_DEVICES not in role.env
        ]
        total = sum(role.resource.gpu * role.num_replicas for role in wanting)
        if not total:
            return
        insists = bool(cfg.get("auto_set_cuda_visible_devices"))
        visible = visible_gpus(os.environ)
        taken = leases.take(visible, total) if len(visible) >= total else []
        if len(taken) < total:
            leases.close()
            free = f"this machine has {len(visible)}, {len(taken)} of them free"
            short = f"{app.name} asks for {total} GPUs; {free}"
            if insists:
                raise StateError(short, hint="see what runs: torchx list")
            if visible:
                notes.append(f"{short}: none is set apart, all replicas see all of them")
            return
        leased = iter(taken)
        for role in wanting:
            for param in request.role_params[role.name]:
                param.env[CUDA_VISIBLE_DEVICES] = ",".join(next(leased) for _ in range(role.resource.gpu))

    # --- ask and end -----------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns all that is known of a job, running or ended."""
        view = self._jobs().find(app_id)
        return None if view is None else describe_job(view)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        """Returns all jobs on record, newest first."""
        return self._jobs().list()

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

    def _delete_existing(self, app_id: str) -> None:
        self._jobs().delete(app_id)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Returns the log lines of one replica, each with its line end."""
        query = LogQuery(
            {role_name: frozenset([k])}, regex, since, until, None, should_tail, streams or Stream.COMBINED
        )
        held = b""
        for chunk in self.log_chunks(app_id, query):
            lines = (held + chunk.data).split(b"\n")
            held = lines.pop()
            yield from (line.decode("utf-8", "replace") + "\n" for line in lines)
        if held:
            yield held.decode("utf-8", "replace")

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the log of all replicas in the order of time."""
        return self._jobs().log(app_id, query)

    def _jobs(self) -> LocalJobs:
        return LocalJobs(Home(user_home()), self.backend)


def create_cwd_scheduler(session_name: str, **kwargs: Any) -> LocalScheduler:
    """Returns the scheduler ``local_cwd``."""
    return LocalScheduler(session_name, CWDImageProvider)


def create_dir_scheduler(session_name: str, **kwargs: Any) -> LocalScheduler:
    """Returns the scheduler ``local_dir``."""
    return LocalScheduler(session_name, LocalDirectoryImageProvider, backend="local_dir")


create_scheduler = create_cwd_scheduler
"""The documented name of the factory."""
