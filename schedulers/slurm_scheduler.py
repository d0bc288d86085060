"""Public module of the Slurm scheduler."""

from __future__ import annotations

from torchx.compat.options import structured
from torchx.masking.names import name_set
from torchx.schedulers.slurm.options import run_options
from torchx.schedulers.slurm.parse import ENDED
from torchx.schedulers.slurm.request import SlurmRequest as SlurmRequest
from torchx.schedulers.slurm.scheduler import SlurmScheduler as SlurmScheduler
from torchx.schedulers.slurm.scheduler import create_scheduler as create_scheduler
from torchx.specs.status import AppState

SLURM_STATES: dict[str, AppState] = {
    **dict.fromkeys(ENDED, AppState.FAILED),
    **dict.fromkeys(name_set("CONFIGURING PENDING REQUEUED RESIZING SUSPENDED"), AppState.PENDING),
    "CANCELLED": AppState.CANCELLED,
    "COMPLETED": AppState.SUCCEEDED,
    "COMPLETING": AppState.RUNNING,
    "RUNNING": AppState.RUNNING,
    "REVOKED": AppState.FAILED,
}
"""The state of an application by that of its job."""

SLURM_JOB_DIRS = ".torchxslurmjobdirs"
"""The file in which TorchX lists the folders of jobs; not used here."""


class SlurmOpts(structured(run_options())):  # type: ignore[misc]
    """The run options."""


Opts = SlurmOpts
