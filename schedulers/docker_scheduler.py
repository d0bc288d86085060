"""Public module of the Docker scheduler."""

from __future__ import annotations

from torchx.schedulers.docker.request import DockerContainer as DockerContainer
from torchx.schedulers.docker.request import DockerJob as DockerJob
from torchx.schedulers.docker.scheduler import DockerScheduler as DockerScheduler
from torchx.schedulers.docker.scheduler import create_scheduler as create_scheduler
