"""Public module of the Slurm scheduler."""

from __future__ import annotations

from torchx.schedulers.slurm.request import SlurmRequest as SlurmRequest
from torchx.schedulers.slurm.scheduler import SlurmScheduler as SlurmScheduler
from torchx.schedulers.slurm.scheduler import create_scheduler as create_scheduler
