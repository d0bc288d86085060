"""The local scheduler as other packages derive from it, and the names they import with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx.compat.options import structured
from torchx.schedulers.local.images import CWDImageProvider
from torchx.schedulers.local.options import run_options
from torchx.schedulers.local.scheduler import ImageProviderFactory
from torchx.schedulers.local.scheduler import LocalScheduler as Engine
from torchx.specs.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx.schedulers.local.request import PopenRequest
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.app import AppDef, AppDryRunInfo
    from torchx.specs.run_options import OptionValues, RunOptions

_PATIENCE = 60.0
"""Maximum seconds until the replicas of a job have logs."""

AppId = str
STDOUT_LOG, STDERR_LOG, COMBINED_LOG = "stdout.log", "stderr.log", "combined.log"
"""The log files of a replica."""


class Opts(structured(run_options("local_cwd"))):  # type: ignore[misc]
    """The run options."""


LocalOpts = Opts


class LocalApp:
    """An application on this machine, as `LocalScheduler._apps` has it.

    Args:
        id: its id.
        log_dir: the folder of its logs.
        end: ends its processes.
    """

    def __init__(self, id: str, log_dir: str, end: Callable[[str], None] | None = None) -> None:
        self.id = id
        self.log_dir = log_dir
        self.role_replicas: dict[str, list[Any]] = {}
        self.state = AppState.PENDING
        self._end = end

    def set_state(self, state: AppState) -> None:
        """Sets the state."""
        self.state = state

    def kill(self) -> None:
        """Ends all processes of the application."""
        if self._end is not None:
            self._end(self.id)


class LocalScheduler(Engine):
    """The local scheduler with the constructor and the attributes that derived classes know from TorchX.

    A derived class need not call the constructor.

    Args:
        session_name: the session part of its handles.
        image_provider_class: resolves the images of roles (default: to the working directory).
        cache_size: accepted for compatibility; has no effect.
        extra_paths: folders appended to the PATH of the replicas.
        backend: the name of the scheduler in handles; a plugin has the name it is registered under.
    """

    def __init__(
        self,
        session_name: str,
        image_provider_class: ImageProviderFactory = CWDImageProvider,
        cache_size: int = 100,
        extra_paths: Iterable[str] | None = None,
        *,
        backend: str = "local",
    ) -> None:
        super().__init__(session_name, image_provider_class, extra_paths=extra_paths, backend=backend)
        self._apps: dict[AppId, LocalApp] = {}

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        """Makes the built-in schedulers instances of this class."""
        if cls is LocalScheduler:
            return issubclass(other, Engine)
        return NotImplemented

    def _to_popen_request(self, app: AppDef, cfg: RunOptions) -> PopenRequest:
        """Returns the processes of an application; ignores options that this scheduler does not have."""
        return Engine._submit_dryrun(self, app, self._resolved(cfg)).request

    def _resolved(self, cfg: RunOptions) -> OptionValues:
        opts = self.run_opts()
        return opts.resolve({key: value for key, value in cfg.items() if opts.get(key) is not None})

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        """Starts a job, and returns once its logs exist; without run options, the default ones apply."""
        if not dryrun_info.cfg:
            dryrun_info._cfg = self._resolved({})
        app_id = super().schedule(dryrun_info)
        request = dryrun_info.request
        self._known(app_id, request.log_dir, request.role_params)
        params = [param for params in request.role_params.values() for param in params]
        files = [file for param in params for file in (param.stdout, param.stderr, param.combined)]
        end = time.monotonic() + _PATIENCE
        while not all(Path(file or os.sep).exists() for file in files) and time.monotonic() < end:
            if (found := super().glance(app_id)) is None or is_terminal(found.state):
                break
            time.sleep(0.01)
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the full description of a job, running or ended, or None."""
        found = super().describe(app_id)
        if found is not None:
            self._known(app_id, found.log_dir or "", (role.name for role in found.roles)).set_state(
                found.state
            )
        return found

    def _known(self, app_id: str, log_dir: str, roles: Iterable[str]) -> LocalApp:
        app = self._apps.get(app_id)
        if app is None:
            app = self._apps[app_id] = LocalApp(app_id, log_dir, self.kill)
            app.role_replicas.update((role, []) for role in roles)
        return app
