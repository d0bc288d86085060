"""The Docker scheduler as other packages derive from it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torchx.compat.options import structured
from torchx.compat.subclasses import NO_OPTIONS
from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.schedulers.docker.engine.address import find_address
from torchx.schedulers.docker.options import run_options
from torchx.schedulers.docker.scheduler import DockerScheduler as Engine
from torchx.specs.status import AppState

with lazy_imports:
    from torchx.schedulers.docker.engine import client

if TYPE_CHECKING:
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import RunOptions

CONTAINER_STATES = {
    "created": AppState.SUBMITTED,
    "restarting": AppState.PENDING,
    "paused": AppState.PENDING,
    "removing": AppState.PENDING,
    "running": AppState.RUNNING,
    "dead": AppState.FAILED,
}
"""The states of containers that have not exited."""


class Opts(structured(run_options())):  # type: ignore[misc]
    """The run options."""


DockerOpts = Opts


class DockerScheduler(Engine):
    """The Docker scheduler with the attributes that derived classes know from TorchX.

    Args:
        session_name: the session in the handles.
    """

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        """Makes the built-in scheduler an instance of this class."""
        if cls is DockerScheduler:
            return issubclass(other, Engine)
        return NotImplemented

    def _validate(self, app: AppDef, scheduler: str, cfg: RunOptions = NO_OPTIONS) -> None:
        """Rejects an application that this engine cannot run, unless a derived class makes the request."""
        if type(self)._submit_dryrun is Engine._submit_dryrun:
            super()._validate(app, scheduler, cfg)

    @functools.cached_property
    def _docker_client(self) -> Any:
        """A client of the package `docker` for the engine."""
        import docker.tls

        address = find_address()
        tls: Any = False
        if address.certificates is not None:
            files = {part: f"{address.certificates}/{part}.pem" for part in ("ca", "cert", "key")}
            tls = docker.tls.TLSConfig(
                client_cert=(files["cert"], files["key"]), ca_cert=files["ca"], verify=address.verify
            )
        return docker.DockerClient(base_url=address.text, tls=tls)

    def _get_app_state(self, container: Any) -> AppState:
        """Returns the state of a container of the package `docker`."""
        if container.status == "exited":
            if container.attrs["State"]["ExitCode"]:
                return AppState.FAILED
            return AppState.SUCCEEDED
        return CONTAINER_STATES.get(container.status, AppState.UNKNOWN)


def has_docker() -> bool:
    """Returns True if a Docker engine answers."""
    try:
        return bool(client.Engine().version)
    except TorchxError:
        return False


def to_str(text: str | bytes) -> str:
    """Returns a text that may be bytes."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "replace")
    return text
