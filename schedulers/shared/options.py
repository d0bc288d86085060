"""Run options of several engines: one definition, one wording and one check for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx.errors import RunOptionError, StateError
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.printable import listed, table
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.preflight import checks_of
from torchx.scheduling.stalls import LONGEST, StallRule
from torchx.settings import POLICIES
from torchx.specs.run_options import RunOptions, runopt, runopts
from torchx.suggestions import did_you_mean
from torchx.workspace.options import LIMIT, LIMIT_NAME

with lazy_imports:
    from torchx.scheduling import retry_rules
    from torchx.stragglers import record

if TYPE_CHECKING:
    from torchx.specs.app import AppDryRunInfo

_TEXTS = """
stall: report replicas that print nothing and send no heartbeat for this long, e.g. 10m
on_stall: on a stall: report (default), restart or cancel
progress: count only log lines that match as progress (default: all)
time_limit: end the application after this time, e.g. 24h
notice: signal the programs this long before the time limit: 5m or 5m:USR1
requeue_on: restart the application after: time-limit[:20],preempted,node
checkpoint_dir: keep checkpoints in this folder across all runs (default: a folder of the application)
setup: run these bash commands before each replica's program, e.g. module load cuda
setup_once: run this command once per node before the programs, e.g. uv sync --frozen
image_repo: push workspace images to this registry repository, e.g. registry.example.com/team/jobs
"""
_LISTS = """
retry_on: retry only these failures: exit codes, signals, causes, log:REGEX (default: any)
no_retry_on: never retry these failures; none clears the list \
(default: usage-error,import-error,syntax-error,disk-full,preflight,setup-once)
avoid_hosts: do not use these hosts; avoid_bad_nodes sets it
policies: run policies of other packages in the supervisor, as MODULE:CLASS
preflight: check before the program starts: gpu[:40GB], disk[:9GB], collective[:2m], cmd:COMMAND
"""
"""The options that are texts, and lists of texts, with their help."""

SHARED: Mapping[str, runopt] = {
    **{name: runopt(None, str, False, text) for name, text in table(_TEXTS).items()},
    **{name: runopt(None, list[str], False, text) for name, text in table(_LISTS).items()},
    "grace_period": runopt(10.0, float, False, "seconds between TERM and KILL"),
    "fail_fast": runopt(True, bool, False, "end all replicas when one fails permanently"),
    "retry_backoff": runopt(
        1.0, float, False, "seconds before the first retry; doubled for each further one"
    ),
    "reserve": runopt(False, bool, False, "reserve CPUs and memory too, and wait until they are free"),
    "priority": runopt(0, int, False, "priority in this machine's queue; higher starts first"),
    "straggler": runopt(None, int, False, "report ranks slower than the others by this many steps, e.g. 20"),
    "no_wait": runopt(False, bool, False, "fail if the resources are not free, instead of queueing"),
    LIMIT_NAME: LIMIT,
    "avoid_bad_nodes": runopt(False, bool, False, "do not use nodes that torchx nodes lists"),
    "quiet": runopt(False, bool, False, "hide the progress of pulls, builds and pushes"),
}

PRIORITY, NO_WAIT = "priority", "no_wait"

LIMITS = ("time_limit", "notice", "requeue_on", "checkpoint_dir")
"""The options of a time limit."""

_ALL = ("fail_fast", "retry_on", "no_retry_on", *LIMITS, LIMIT_NAME, "preflight", "setup_once")

CLUSTER = (*_ALL, "quiet", "avoid_bad_nodes", "avoid_hosts")
"""The options of clusters."""

LOCAL = (
    *_ALL,
    "grace_period",
    "retry_backoff",
    "stall",
    "on_stall",
    "progress",
    "straggler",
    POLICIES,
    "reserve",
    PRIORITY,
    NO_WAIT,
)
"""The options of the engines whose supervisors run on this machine."""


def add_shared(opts: runopts, *names: str) -> None:
    """Adds shared options.

    Args:
        opts: the options of an engine.
        names: the shared options to add.

    >>> opts = runopts()
    >>> add_shared(opts, "fail_fast", "grace_period")
    >>> opts.resolve({})
    {'fail_fast': True, 'grace_period': 10.0}
    """
    opts.update({name: SHARED[name] for name in names})


def provide_checkpoint_dir(cfg: RunOptions) -> str:
    """Creates the given folder for checkpoints, private if it is new; returns its path, or an empty string.

    Raises:
        StateError: it cannot be created.
    """
    folder = LimitRule.of(cfg).checkpoint_dir
    if folder:
        try:
            files.make_folder(Path(folder))
        except OSError as error:
            raise StateError(
                f"the folder for checkpoints, {folder}, cannot be used: {error.strerror}"
            ) from error
    return folder


def progress_of(info: AppDryRunInfo[Any]) -> Callable[[str], None]:
    """Returns the function that reports the progress of a submission; with ``quiet``, it reports nothing."""
    if info.cfg.get("quiet"):
        return lambda line: None
    return info.on_progress


NUMBERS = (
    "grace_period",
    "retry_backoff",
    "workspace_limit_mb",
    "image_limit_mb",
    "reserved_millicpu",
    "reserved_memmb",
    "efa_device_count",
    "ttl",
)
"""The options that are numbers from 0."""


def check_shared(scheduler: str, cfg: RunOptions, largest: int = LONGEST) -> None:
    """Checks the options that several schedulers have: numbers, retries by cause, stalls, preflight.

    Args:
        scheduler: the scheduler, for the message.
        cfg: the run options.
        largest: the largest number (default: that of a duration in seconds).

    Raises:
        UsageError: a number is out of range, or another value is invalid.
    """
    for option in NUMBERS:
        value = cfg.get(option)
        if isinstance(value, (int, float)) and not 0 <= value <= largest:
            expected = f"a number from 0 to {largest:,}"
            raise RunOptionError(option, f"of {scheduler} is {value}, expected {expected}")
    for option in filter(cfg.get, ("retry_on", "no_retry_on")):
        try:
            retry_rules.RetryRules.of({option: cfg.get(option)})
        except ValueError as error:
            raise RunOptionError(option, str(error)) from None
    for option in ("setup", "setup_once"):
        if "\0" in str(cfg.get(option)):
            raise RunOptionError(option, f"of {scheduler} contains a zero byte")
    StallRule.of(cfg)
    record.StragglerRule.of(cfg)
    checks_of(cfg)


def check_local(scheduler: str, cfg: RunOptions) -> None:
    """Checks the options of an engine whose supervisors run on this machine.

    Raises:
        UsageError: a value is invalid.
    """
    check_shared(scheduler, cfg)
    LimitRule.of(cfg)


def check_choices(scheduler: str, cfg: RunOptions, choices: Mapping[str, Sequence[str]]) -> None:
    """Checks options that have a fixed set of values.

    Args:
        scheduler: the scheduler, for the message.
        cfg: the run options.
        choices: the values of each option.

    Raises:
        UsageError: an option has another value.
    """
    for option, known in choices.items():
        value = cfg.get(option)
        if value is not None and value not in known:
            hint = did_you_mean(str(value), known)
            text = f"of {scheduler} is `{value}`, expected {listed(known, 'or')}"
            raise RunOptionError(option, text, hint)
