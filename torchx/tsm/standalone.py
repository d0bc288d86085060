"""A session of one process, based on a runner; its applications outlive it."""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from torchx import specs
from torchx.errors import StateError, UsageError
from torchx.machine.files import expanded
from torchx.specs import AppDef, AppHandle, AppStatus, runopts
from torchx.specs.app import AnyDryRunInfo
from torchx.specs.handles import UnknownAppException, make_app_handle, parse_app_handle
from torchx.tsm.application import Application, Role
from torchx.tsm.elastic import ElasticRole
from torchx.tsm.sessions import Names, Session

if TYPE_CHECKING:
    from torchx.runner import Runner
    from torchx.specs.run_options import RunOptions

LOCAL = ("default", "local")
"""Names for this machine: ``local_dir`` if images are folders or archives, otherwise ``local_cwd``."""

DIR, CWD = ON_THIS_MACHINE = ("local_dir", "local_cwd")

_MACRO = r"\$\{(img_root|app_id|replica_id|rank0_env)\}"

_IMAGE_HERE = r"(?s)[/.~].*|.*\.(zip|tgz|tar(\.\w+)?)"
"""A path, or an archive at any address; matches no name of a container image."""


class StandaloneSession(Session):
    """A session based on a runner. It lists the applications that this object submitted or adopted, and those
    of sessions of the same name on record on this machine.

    Args:
        name: its name.
        runner: the runner; it must have the session's name.
    """

    def __init__(self, name: str, runner: Runner) -> None:
        super().__init__(name)
        self._runner = runner
        self._apps: dict[AppHandle, Application] = {}
        self._taken: set[tuple[str, str]] = set()

    def close(self) -> None:
        """Closes the schedulers; does not affect running applications."""
        self._runner.close()

    def scheduler_backends(self) -> Names:
        """Returns the scheduler names that :meth:`run` accepts, ``default`` first."""
        return [*LOCAL, *(name for name in self._runner.scheduler_backends() if name not in LOCAL)]

    def run_opts(self) -> dict[str, runopts]:
        """Returns the run options of all schedulers by their names."""
        found: dict[str, runopts] = {}
        for name in self.scheduler_backends():
            with suppress(Exception):  # a plugin that is broken must not hide the others
                found[name] = self._runner.scheduler_run_opts(DIR if name in LOCAL else name)
        return found

    def _dryrun(self, app: AppDef, scheduler: str, cfg: RunOptions) -> AnyDryRunInfo:
        if not isinstance(app, AppDef):
            raise UsageError(f"a session runs an Application, or any AppDef; got {app!r}")
        if scheduler in LOCAL:
            backend = _backend(app)
        else:
            backend = scheduler
        ready = copy.copy(app)
        ready.roles = [_ready(role, backend, scheduler) for role in app.roles]
        _check(ready, backend)
        return self._runner.dryrun(ready, backend, cfg)

    def schedule(self, dryrun_info: AnyDryRunInfo) -> AppHandle:
        """Submits a request of :meth:`dryrun`, changed since or not, and returns the handle."""
        handle = self._runner.schedule(dryrun_info)
        if dryrun_info.app is not None:
            self._apps[handle] = Application.read_back(copy.deepcopy(dryrun_info.app))
        return handle

    def attach(self, app_handle: AppHandle) -> AppHandle:
        """Adopts an application of another session."""
        found = self._runner.describe(app_handle)
        if found is None:
            raise UnknownAppException(app_handle)
        backend, _, app_id = parse_app_handle(app_handle)
        mine = make_app_handle(backend, self._name, app_id)
        self._taken.add((backend, app_id))
        self._apps[mine] = Application.read_back(found)
        return mine

    def status(self, app_handle: AppHandle) -> AppStatus | None:
        """Returns the status of an application, None if its scheduler does not know it."""
        self._belongs(app_handle)
        return self._runner.status(app_handle)

    def wait(
        self, app_handle: AppHandle, wait_interval: float | str = 10, timeout: float | str | None = None
    ) -> AppStatus | None:
        """Blocks until an application has ended."""
        self._belongs(app_handle)
        return self._runner.wait(app_handle, wait_interval, timeout)

    def stop(self, app_handle: AppHandle) -> None:
        """Cancels an application; does nothing if it has ended or is unknown."""
        self._belongs(app_handle)
        self._runner.cancel(app_handle)

    def describe(self, app_handle: AppHandle) -> Application | None:
        """Returns an application as its scheduler describes it, None if it does not know it."""
        self._belongs(app_handle)
        found = self._runner.describe(app_handle)
        if found is None:
            return None
        return Application.read_back(found)

    def list(self) -> dict[AppHandle, Application]:
        """Returns the applications of this session by handle, the oldest first."""
        listed: dict[AppHandle, Application] = {}
        for handle in self._on_record():
            with suppress(StateError):  # skips damaged records
                app = self._runner.describe(handle)
                if app is not None:
                    listed[handle] = Application.read_back(app)
        for handle, known in list(self._apps.items()):
            if handle in listed or self._runner.exists(handle):
                listed.setdefault(handle, known)
        return listed

    def log_lines(
        self,
        app_handle: AppHandle,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool | None = None,
    ) -> Iterable[str]:
        """Returns the log lines of one replica, each with its line end."""
        self._belongs(app_handle)
        if should_tail is None:
            follow = until is None
        else:
            follow = should_tail
        return self._runner.log_lines(app_handle, role_name, k, regex, since, until, follow)

    def _on_record(self) -> Iterable[AppHandle]:
        """Returns the handles of this session's applications on record on this machine, the oldest first."""
        backends = self._runner.scheduler_backends()
        lines = [app for name in ON_THIS_MACHINE if name in backends for app in self._runner.list(name)]
        mine = [app for app in lines if parse_app_handle(app.app_handle).session_name == self._name]
        return [app.app_handle for app in sorted(mine, key=attrgetter("order"))]

    def _belongs(self, app_handle: AppHandle) -> None:
        backend, _, app_id = parse_app_handle(app_handle)
        if (backend, app_id) not in self._taken:
            super()._belongs(app_handle)


def _backend(app: AppDef) -> str:
    """Returns the scheduler of this machine that suits the images of an application."""
    here = any(
        re.fullmatch(_IMAGE_HERE, role.image) or Path(role.image or "/-").is_dir() for role in app.roles
    )
    if here:
        return DIR
    return CWD


def _ready(role: specs.Role, backend: str, requested: str) -> specs.Role:
    """Returns a role prepared for one scheduler."""
    role = copy.deepcopy(role)
    if not isinstance(role, Role):
        return role
    names = (requested, backend, *(LOCAL if backend in ON_THIS_MACHINE else ()))
    role.resource = role.container.resource_for(names) or role.resource
    plain = not isinstance(role, ElasticRole) and role.entrypoint.endswith(".py")
    if plain and not (backend in ON_THIS_MACHINE and _starts_itself(role, backend)):
        role.entrypoint, role.args = "python", [role.entrypoint, *role.args]
    elif not isinstance(role, ElasticRole) and re.search(_MACRO, role.entrypoint):
        # macros are replaced in arguments: the program becomes one
        role.entrypoint, role.args = "sh", ["-c", 'exec "$$0" "$$@"', role.entrypoint, *role.args]
    return role


def _starts_itself(role: Role, backend: str) -> bool:
    """Returns True if a script is executable on this machine."""
    if backend == DIR:
        folder = expanded(role.image)
    else:
        folder = Path.cwd()
    if os.sep in role.entrypoint:
        return os.access(folder / role.entrypoint, os.X_OK)
    path = os.pathsep.join([str(folder), role.env.get("PATH", os.environ.get("PATH", os.defpath))])
    return shutil.which(role.entrypoint, path=path) is not None


def _check(app: AppDef, backend: str) -> None:
    """Rejects applications that are certain to fail.

    Raises:
        UsageError: a role has no container, or the rendezvous of an elastic role is unreachable.
    """
    elastic = [role for role in app.roles if isinstance(role, ElasticRole) and role.meets]
    for role in app.roles:
        if isinstance(role, Role) and not role.image and backend == DIR:
            raise UsageError(
                f"role `{role.name}` has no container, and {backend} needs one",
                hint='set it with .on(Container(image="..."))',
            )
    for number, role in enumerate(elastic):
        if backend in ON_THIS_MACHINE:
            if number:
                role.port_name = f"c10d-{number}"
        elif role is not app.roles[0]:
            raise UsageError(
                f"the nodes of role `{role.name}` meet at replica 0 of the first role, "
                f"which is `{app.roles[0].name}`",
                hint=f"name `{role.name}` first, or give it an rdzv_endpoint",
            )
