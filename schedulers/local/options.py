"""Run options of the schedulers ``local_cwd`` and ``local_dir``."""

from __future__ import annotations

from torchx.schedulers.shared.options import (
    LIMITS,
    NO_WAIT,
    PRIORITY,
    add_shared,
    check_numbers,
    check_retry_rules,
)
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.preflight import checks_of
from torchx.scheduling.stalls import StallRule
from torchx.specs.run_options import RunOptions, runopts


def run_options(scheduler: str) -> runopts:
    """Returns the run options of a scheduler of local processes."""
    opts = runopts()
    opts.add("log_dir", type_=str, help="folder for the logs (default: in the state home)")
    opts.add(
        "prepend_cwd", type_=bool, default=False, help="put the working directory first on PATH, not last"
    )
    opts.add(
        "auto_set_cuda_visible_devices",
        type_=bool,
        default=False,
        help="fail if the replicas cannot get GPUs of their own; otherwise warn",
    )
    add_shared(opts, "grace_period", "fail_fast", "retry_backoff", "retry_on", "no_retry_on")
    add_shared(opts, "stall", "on_stall", "progress", *LIMITS, "workspace_limit_mb", "reserve")
    add_shared(opts, "preflight", PRIORITY, NO_WAIT)
    if scheduler == "local_dir":
        opts.add(
            "image_limit_mb",
            type_=int,
            default=10_240,
            help="maximum size of an archive used as image in MB, packed and unpacked",
        )
    return opts


def check_options(scheduler: str, cfg: RunOptions) -> None:
    """Checks the values of run options.

    Raises:
        UsageError: a value is not allowed.
    """
    numbers = ("grace_period", "retry_backoff", "workspace_limit_mb", "image_limit_mb")
    check_numbers(scheduler, cfg, numbers)
    LimitRule.of(cfg)
    check_retry_rules(cfg)
    StallRule.of(cfg)
    checks_of(cfg)
