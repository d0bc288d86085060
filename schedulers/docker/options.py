"""Run options of the scheduler ``local_docker``."""

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
from torchx.specs.run_options import RunOptions, runopts


def run_options() -> runopts:
    """Returns the run options."""
    opts = runopts()
    opts.add(
        "copy_env",
        list[str],
        "copy these environment variables to the containers; patterns such as AWS_* work",
    )
    opts.add("env", dict[str, str], "set variables in all containers: A:1,B:2")
    opts.add("privileged", bool, "give the containers all rights on this machine", False)
    add_shared(
        opts,
        *LIMITS,
        "image_repo",
        "workspace_limit_mb",
        "quiet",
        "grace_period",
        "fail_fast",
        "retry_backoff",
        "reserve",
        "preflight",
        PRIORITY,
        NO_WAIT,
        "retry_on",
        "no_retry_on",
        "stall",
        "on_stall",
        "progress",
        POLICIES,
    )
    return opts


def check_options(cfg: RunOptions) -> None:
    """Checks the values of run options.

    Raises:
        UsageError: a value is not allowed.
    """
    LimitRule.of(cfg)
    check_shared("local_docker", cfg)
