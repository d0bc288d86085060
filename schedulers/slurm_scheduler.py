"""Public module of the Slurm scheduler."""

from __future__ import annotations

from torchx.compat.options import structured
from torchx.schedulers.slurm.options import run_options
from torchx.schedulers.slurm.request import SlurmRequest as SlurmRequest
from torchx.schedulers.slurm.scheduler import SlurmScheduler as SlurmScheduler
from torchx.schedulers.slurm.scheduler import create_scheduler as create_scheduler
from torchx.specs.status import AppState

SLURM_STATES: dict[str, AppState] = {
    "BOOT_FAIL": AppState.FAILED,
    "CANCELLED": AppState.CANCELLED,
    "COMPLETED": AppState.SUCCEEDED,
    "COMPLETING": AppState.RUNNING,
    "CONFIGURING": AppState.PENDING,
    "DEADLINE": AppState.FAILED,
    "FAILED": AppState.FAILED,
    "LAUNCH_FAILED": AppState.FAILED,
    "NODE_FAIL": AppState.FAILED,
    "OUT_OF_MEMORY": AppState.FAILED,
    "PENDING": AppState.PENDING,
    "PREEMPTED": AppState.FAILED,
    "RECONFIG_FAIL": AppState.FAILED,
    "REQUEUED": AppState.PENDING,
    "RESIZING": AppState.PENDING,
    "REVOKED": AppState.FAILED,
    "RUNNING": AppState.RUNNING,
    "SUSPENDED": AppState.PENDING,
    "TIMEOUT": AppState.FAILED,
}
"""The state of an application by that of its job."""

SLURM_JOB_DIRS = ".torchxslurmjobdirs"
"""The file in which TorchX lists the folders of jobs; not used here."""


class SlurmOpts(structured(run_options())):  # type: ignore[misc]
    """The run options."""
