"""Run options of the scheduler ``local_docker``."""

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


def run_options() -> runopts:
    """Returns the run options."""
    opts = runopts()
    opts.add(
        "copy_env",
        type_=list[str],
        help="names of environment variables to copy to the containers; patterns such as AWS_* work",
    )
    opts.add("env", type_=dict[str, str], help="environment variables for all containers, as A:1,B:2")
    opts.add("privileged", type_=bool, default=False, help="give the containers all rights on this machine")
    add_shared(opts, *LIMITS)
    add_shared(
        opts, "image_repo", "workspace_limit_mb", "quiet", "grace_period", "fail_fast", "retry_backoff"
    )
    add_shared(opts, "reserve", "preflight", PRIORITY, NO_WAIT)
    add_shared(opts, "retry_on", "no_retry_on")
    add_shared(opts, "stall", "on_stall", "progress")
    return opts


def check_options(cfg: RunOptions) -> None:
    """Checks the values of run options.

    Raises:
        UsageError: a value is not allowed.
    """
    LimitRule.of(cfg)
    StallRule.of(cfg)
    checks_of(cfg)
    check_numbers("local_docker", cfg, ("grace_period", "retry_backoff", "workspace_limit_mb"))
    check_retry_rules(cfg)
