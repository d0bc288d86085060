"""Run options of the schedulers ``local_cwd`` and ``local_dir``."""

from __future__ import annotations

from torchx.schedulers.shared.options import (
    LIMITS,
    NO_WAIT,
    PRIORITY,
    add_shared,
    check_shared,
)
from torchx.scheduling.limits import LimitRule
from torchx.settings import POLICIES
from torchx.specs.run_options import RunOptions, runopt, runopts

OWN = {
    "log_dir": runopt(None, str, False, "folder for the logs (default: in the state home)"),
    "prepend_cwd": runopt(False, bool, False, "put the working directory first on PATH, not last"),
    "auto_set_cuda_visible_devices": runopt(
        False, bool, False, "fail if the replicas cannot get GPUs of their own; otherwise warn"
    ),
}


def run_options(scheduler: str) -> runopts:
    """Returns the run options of a scheduler of local processes."""
    opts = runopts()
    opts.update(OWN)
    add_shared(
        opts,
        "grace_period",
        "fail_fast",
        "retry_backoff",
        "retry_on",
        "no_retry_on",
        "stall",
        "on_stall",
        "progress",
        POLICIES,
        *LIMITS,
        "workspace_limit_mb",
        "reserve",
        "preflight",
        PRIORITY,
        NO_WAIT,
    )
    if scheduler == "local_dir":
        opts.add(
            "image_limit_mb",
            int,
            "largest image archive in MB, packed and unpacked",
            10_240,
        )
    return opts


def check_options(scheduler: str, cfg: RunOptions) -> None:
    """Checks the values of run options.

    Raises:
        UsageError: a value is not allowed.
    """
    check_shared(scheduler, cfg)
    LimitRule.of(cfg)
