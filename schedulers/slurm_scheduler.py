"""Public module of the Slurm scheduler."""

from __future__ import annotations

from torchx.compat.options import structured
from torchx.compat.slurm import SLURM_JOB_DIRS, SLURM_STATES  # noqa: F401
from torchx.schedulers.slurm.options import run_options
from torchx.schedulers.slurm.request import SlurmRequest as SlurmRequest
from torchx.schedulers.slurm.scheduler import SlurmScheduler as SlurmScheduler
from torchx.schedulers.slurm.scheduler import create_scheduler as create_scheduler


class SlurmOpts(structured(run_options())):  # type: ignore[misc]
    """The run options."""
