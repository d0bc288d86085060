"""Public module of the Slurm scheduler."""

from __future__ import annotations

from torchx.compat.slurm import SLURM_JOB_DIRS, SLURM_STATES, SlurmOpts  # noqa: F401
from torchx.schedulers.slurm.request import SlurmRequest as SlurmRequest
from torchx.schedulers.slurm.scheduler import SlurmScheduler as SlurmScheduler
from torchx.schedulers.slurm.scheduler import create_scheduler as create_scheduler
