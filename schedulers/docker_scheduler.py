"""Public module of the Docker scheduler."""

from __future__ import annotations

from torchx.compat.docker import DockerOpts, Opts, has_docker  # noqa: F401
from torchx.compat.docker import DockerScheduler as DockerScheduler
from torchx.compat.docker import to_str as _to_str  # noqa: F401
from torchx.schedulers.docker.request import DockerContainer as DockerContainer
from torchx.schedulers.docker.request import DockerJob as DockerJob
from torchx.schedulers.docker.scheduler import create_scheduler as create_scheduler
