"""Time limits, notices and requeues of Slurm jobs."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterator

from torchx.errors import RunOptionError
from torchx.schedulers.shared.batch.limits import JobLimits
from torchx.scheduling.limits import NODE, PREEMPTED, LimitRule, exact
from torchx.specs.run_options import CfgVal, RunOptions

_SIGNAL = r"(R:)?(?P<signal>[A-Za-z0-9]+)(@(?P<seconds>[0-9]{1,5}))?"
_TIME = r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,2}))?(?::(\d{1,2}))?"
DEFAULT_NOTICE = 60.0
"""The seconds of sbatch's option `signal` without a time."""


def options_of(limits: JobLimits) -> Iterator[tuple[str, CfgVal]]:
    """Yields the options of sbatch for a time limit."""
    if limits.limit:
        yield "time", math.ceil(limits.limit / 60)
    if limits.notice:
        yield "signal", f"B:USR1@{limits.notice}"


def rule_of(cfg: RunOptions) -> LimitRule:
    """Returns the rule of run options; the option `time` is a time limit, too.

    Raises:
        RunOptionError: a value is invalid.
    """
    seconds = seconds_of(str(cfg.get("time") or ""))
    return LimitRule.of(cfg if seconds is None else {"time_limit": str(seconds), **_given(cfg)})


def _given(cfg: RunOptions) -> dict[str, CfgVal]:
    return {name: value for name, value in cfg.items() if value is not None}


def limits_of(cfg: RunOptions) -> JobLimits:
    """Returns the limits of a job.

    The option `signal` of sbatch becomes a notice: Slurm would send the signal to all processes, and end
    those that do not handle it, such as shells and the agent of torchrun.

    Raises:
        UsageError: a value is invalid.
    """
    rule = check_limits(cfg)
    notice, name = rule.notice, rule.signal
    match = re.fullmatch(_SIGNAL, str(cfg.get("signal") or ""))
    if match is not None:
        notice, name = float(match["seconds"] or DEFAULT_NOTICE), _name_of(match["signal"])
    by_slurm = bool({PREEMPTED, NODE} & rule.requeue.keys())
    return JobLimits(int(rule.limit or 0), math.ceil(notice), name, rule.requeues, by_slurm)


def check_limits(cfg: RunOptions) -> LimitRule:
    """Returns the rule of run options.

    Raises:
        UsageError: a value is invalid, or contradicts another one.
    """
    rule = rule_of(cfg)
    for own, other in (("time_limit", "time"), ("notice", "signal")):
        if cfg.get(own) is not None and cfg.get(other) is not None:
            raise RunOptionError(own, f"cannot be combined with run option `{other}` of slurm")
    if rule.requeue and cfg.get("requeue") is False:
        raise RunOptionError("requeue_on", "cannot be combined with run option `requeue=false` of slurm")
    rule.check_uncounted("slurm", "Slurm requeues after preemptions and failures of nodes without a limit")
    return rule


def notes_of_limits(cfg: RunOptions) -> list[str]:
    """Returns the notes about a time limit."""
    rule = rule_of(cfg)
    notes = []
    if rule.limit and cfg.get("time") is None and rule.limit % 60:
        notes.append(f"the time limit is {exact(math.ceil(rule.limit / 60) * 60)}: Slurm counts minutes")
    causes = {PREEMPTED, NODE} & rule.requeue.keys()
    if len(causes) == 1:
        notes.append("Slurm requeues after preemptions and after failures of nodes alike")
    return notes


def _name_of(text: str) -> str:
    """Returns the name of a signal that is given by its name or number.

    >>> _name_of("SIGUSR1"), _name_of("usr2"), _name_of("10")
    ('USR1', 'USR2', 'USR1')
    """
    if text.isdigit():
        try:
            return signal.Signals(int(text)).name.removeprefix("SIG")
        except ValueError:
            raise RunOptionError("signal", f"of slurm is `{text}`, which is not a signal") from None
    return text.upper().removeprefix("SIG")


def seconds_of(text: str) -> int | None:
    """Returns the seconds of a time limit as sbatch reads it, None for other texts.

    >>> [seconds_of(text) for text in ("90", "1:30", "1:00:00", "1-0", "1-12:30", "UNLIMITED")]
    [5400, 90, 3600, 86400, 131400, None]
    """
    match = re.fullmatch(_TIME, text)
    if match is None:
        return None
    days, *parts = (None if part is None else int(part) for part in match.groups())
    first, second, third = parts
    if days is not None:
        return days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return (first or 0) * 3600 + (second or 0) * 60 + third
    return (first or 0) * 60 + (second or 0)
