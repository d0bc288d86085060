"""The rules of a time limit: its notice, and the causes after which an application is started again."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from torchx import settings
from torchx.errors import RunOptionError
from torchx.json_limits import Data
from torchx.scheduling.stalls import of_clock, parse_duration

TIME_LIMIT, PREEMPTED, NODE = "time-limit", "preempted", "node"
CAUSES = (TIME_LIMIT, PREEMPTED, NODE)
"""The causes after which an application can be started again as its next run."""

MOST_REQUEUES = 20
"""The requeues after a time limit if no number is given."""

REACHED = "time limit reached"
"""The beginning of the message about an application that a time limit has ended."""

LIMITED = "e.g. --time-limit 24h, or the run option time_limit=24h"
"""The hint about an option that requires a time limit."""

_NOTICE = r"(?P<time>[^:]*)(:(SIG)?(?P<signal>[A-Z0-9]+))?"
_NO_SIGNALS = ("KILL", "STOP", "CHLD", "CONT")


class LimitRule(NamedTuple):
    """The time limit of an application, and the events after which it is started again.

    A *run* begins when the replicas start, and again after each requeue. Retries are part of a run.

    Attributes:
        limit: seconds of each run; None without a time limit.
        notice: seconds before the limit at which the programs are notified; 0 for no notice.
        signal: the name of the signal of the notice, such as ``USR1``.
        requeue: the causes of requeues, each with the maximum number; None for any number.
        checkpoint_dir: the folder for checkpoints; empty for the default of the engine.
    """

    limit: float | None = None
    notice: float = 0.0
    signal: str = "USR1"
    requeue: Mapping[str, int | None] = {}
    checkpoint_dir: str = ""

    @classmethod
    def of(cls, cfg: Data) -> LimitRule:
        """Returns the rule of run options.

        Raises:
            RunOptionError: a value is invalid.

        >>> rule = LimitRule.of({"time_limit": "24h", "notice": "5m", "requeue_on": "time-limit:3,node"})
        >>> rule.limit, rule.notice, rule.signal, rule.requeue
        (86400.0, 300.0, 'USR1', {'time-limit': 3, 'node': None})
        >>> LimitRule.of({}) == LimitRule()
        True
        """
        limit = _limit(cfg.get("time_limit"))
        notice, name = _notice(cfg.get("notice"), limit)
        requeue = _requeue(cfg.get("requeue_on"))
        if TIME_LIMIT in requeue and limit is None:
            raise RunOptionError("requeue_on", "requires a time limit", LIMITED)
        return cls(limit, notice, name, requeue, str(cfg.get("checkpoint_dir") or ""))

    @property
    def requeues(self) -> int:
        """The maximum number of requeues after the time limit."""
        return self.requeue.get(TIME_LIMIT, 0) or 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is requested."""
        return self == LimitRule()

    def check_uncounted(self, engine: str, why: str) -> None:
        """Rejects a maximum of the requeues that the engine makes itself.

        Args:
            engine: its name.
            why: the reason, as a hint.

        Raises:
            RunOptionError: the rule has one.
        """
        for cause in (PREEMPTED, NODE):
            if self.requeue.get(cause) is not None:
                raise RunOptionError("requeue_on", f"takes no number for `{cause}` on {engine}", hint=why)

    def notes(self, engine: str) -> list[str]:
        """Returns the notes of an engine on which only the time limit ends a run.

        >>> LimitRule(60.0, requeue={"time-limit": 1, "node": None}).notes("local_cwd")
        ['no requeue after `node`: local_cwd reports no such end']
        """
        ignored = [cause for cause in self.requeue if cause != TIME_LIMIT]
        if ignored:
            return [f"no requeue after `{'`, `'.join(ignored)}`: {engine} reports no such end"]
        return []

    def variables(self, run: int, ends_at: float | None) -> dict[str, str]:
        """Returns the environment variables of a replica.

        Args:
            run: the number of the run, from 1.
            ends_at: when the run ends, seconds since the epoch; None without a time limit.

        >>> LimitRule(60.0, 10.0).variables(2, 1000.0)
        {'TORCHX_RUN': '2', 'TORCHX_ENDS_AT': '1000', 'TORCHX_NOTICE': '10:USR1'}
        """
        variables = {settings.TORCHX_RUN: str(run)}
        if ends_at is not None:
            variables[settings.TORCHX_ENDS_AT] = str(math.ceil(ends_at))
        if self.notice:
            variables[settings.TORCHX_NOTICE] = f"{self.notice:g}:{self.signal}"
        return variables

    def reached(self, run: int) -> str:
        """Returns the message about the time limit that has ended a run.

        >>> LimitRule(5400.0).reached(1), LimitRule(60.0, requeue={"time-limit": 2}).reached(3)
        ('time limit reached: 1h30m', 'time limit reached: 1m; all requeues are used (2)')
        """
        used = ""
        if 0 < self.requeues < run:
            used = f"; all requeues are used ({self.requeues})"
        return f"{REACHED}: {exact(self.limit or 0.0)}{used}"


def exact(seconds: float) -> str:
    """Returns a duration in the form that :func:`parse_duration` reads.

    >>> exact(5400), exact(86400), exact(0.5), exact(0)
    ('1h30m', '1d', '0.5s', '0s')
    """
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            parts.append(f"{int(seconds // size)}{unit}")
            seconds %= size
    return "".join([*parts, *([f"{seconds:g}s"] if seconds or not parts else [])])


def _limit(value: Any) -> float | None:
    if value is None:
        return None
    limit = parse_duration(str(value))
    if not limit:
        raise RunOptionError(
            "time_limit", f"is `{value}`, expected a duration such as 24h or 1h30m", of_clock(str(value))
        )
    return limit


def _notice(value: Any, limit: float | None) -> tuple[float, str]:
    if value is None:
        return 0.0, LimitRule().signal
    match = re.fullmatch(_NOTICE, str(value))
    seconds = None
    if match is not None:
        seconds = parse_duration(match["time"])
    if match is None or not seconds:
        raise RunOptionError(
            "notice",
            f"is `{value}`, expected a duration and a signal such as 5m or 5m:USR1",
            of_clock(str(value)),
        )
    name = match["signal"] or LimitRule().signal
    if f"SIG{name}" not in signal.Signals.__members__ or name in _NO_SIGNALS:
        raise RunOptionError("notice", f"is `{value}`: `{name}` is not a signal that a program can handle")
    if limit is None:
        raise RunOptionError("notice", "requires a time limit", LIMITED)
    if seconds >= limit:
        raise RunOptionError("notice", f"is `{value}`, expected less than the time limit, {exact(limit)}")
    return seconds, name


def _requeue(value: Any) -> dict[str, int | None]:
    causes: dict[str, int | None] = {}
    for text in str(value or "").split(","):
        cause, colon, number = text.strip().partition(":")
        if not cause and not colon:
            continue
        valid = cause in CAUSES and cause not in causes
        if not valid or (colon and not (number.isascii() and number.isdigit() and 0 < int(number) < 10**6)):
            raise RunOptionError(
                "requeue_on", f"is `{value}`, expected a list such as time-limit:20,preempted,node"
            )
        if cause == TIME_LIMIT:
            causes[cause] = MOST_REQUEUES
        else:
            causes[cause] = None
        if colon:
            causes[cause] = int(number)
    return causes
