"""The rule by which an application counts as stalled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchx.errors import RunOptionError, UsageError
from torchx.printable import brief

ACTIONS = ("report", "restart", "cancel")
"""Reactions to a stall; all of them begin with a report."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_UNIT = "seconds?|secs?|minutes?|mins?|hours?|days?|weeks?|[smhdw]"

SLOT_SIZE = 16
"""Bytes of the heartbeat of a replica: its time and its step."""

LONGEST = 10**9
"""Maximum seconds of a duration, about 31 years: that of the records of all engines."""

LONGEST_LINE = 1 << 16
"""Bytes of a line that are searched for progress."""


class StallRule(NamedTuple):
    """When an application counts as stalled, and the reaction.

    Attributes:
        limit: seconds without progress.
        action: one of :data:`ACTIONS`.
        progress: pattern of the lines that count as progress; empty for all output.
    """

    limit: float
    action: str = "report"
    progress: str = ""

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> StallRule | None:
        """Returns the rule of run options, None without `stall`.

        Raises:
            RunOptionError: a value is invalid.

        >>> StallRule.of({"stall": "10m"})
        StallRule(limit=600.0, action='report', progress='')
        """
        stall, action, progress = (cfg.get(name) for name in ("stall", "on_stall", "progress"))
        if stall is None:
            for name, value in (("on_stall", action), ("progress", progress)):
                if value is not None and (name != "progress" or cfg.get("straggler") is None):
                    raise RunOptionError(
                        name, "requires a stall limit", "e.g. --stall 10m, or the run option stall=10m"
                    )
            return None
        limit = parse_duration(str(stall))
        if not limit:
            raise RunOptionError(
                "stall", f"is `{stall}`, expected a duration such as 10m or 1h30m", of_clock(str(stall))
            )
        if action is not None and action not in ACTIONS:
            raise RunOptionError("on_stall", f"is `{action}`, expected report, restart or cancel")
        try:
            re.compile(str(progress or "").encode())
        except re.error as error:
            raise RunOptionError("progress", f"is `{progress}`, not a valid pattern: {error}") from None
        return cls(limit, str(action or ACTIONS[0]), str(progress or ""))


def parse_duration(text: str, unit: str = "s") -> float | None:
    """Returns the seconds of a duration such as ``90``, ``1h30m`` or ``2 days``, None if it is invalid.

    Args:
        text: the duration.
        unit: the unit of a number without one; empty if it needs one.

    >>> parse_duration("90"), parse_duration("1h30m"), parse_duration("90", ""), parse_duration("soon")
    (90.0, 5400.0, None, None)
    """
    text = text.strip()
    text += unit if text[-1:].isdigit() else ""
    if not re.fullmatch(rf"(\d+(\.\d+)?\s*({_UNIT})\s*)+", text):
        return None
    total = sum(float(n) * _UNITS[name] for n, name in re.findall(r"([\d.]+)\s*(\w)", text))
    if total <= LONGEST:
        return total
    return None


def of_clock(text: str) -> str | None:
    """Returns a hint with the duration of ``HH:MM:SS`` or ``D-HH:MM:SS``, None for another form.

    >>> of_clock("00:10:00"), of_clock("1-02:30:05"), of_clock("10:00")
    ('as a duration: 10m', 'as a duration: 1d2h30m5s', None)
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text.strip(), re.ASCII)
    if match is None:
        return None
    parts = zip(match.groups("0"), "dhms", strict=True)
    return "as a duration: " + ("".join(f"{int(n)}{unit}" for n, unit in parts if int(n)) or "0s")


def seconds(name: str, given: float | str) -> float:
    """Returns a duration in seconds, given as a number or with units, as in `10m`, `1h30m` and `7d`.

    Args:
        name: the flag or argument, for error messages.
        given: the duration.

    Raises:
        UsageError: it is not a duration.

    >>> seconds("--timeout", "2.5"), seconds("timeout", "10m"), seconds("timeout", 3)
    (2.5, 600.0, 3)
    """
    if isinstance(given, (int, float)):
        return given
    length = parse_duration(str(given))
    if length is None:
        raise UsageError(
            f"{name} takes seconds or a duration such as 10m, 2h or 7d, got `{given}`",
            hint=of_clock(str(given)),
            code="invalid_value",
            facts={"flag": name, "given": str(given)},
        )
    return length


class StallReport(NamedTuple):
    """A stall that was reported.

    Attributes:
        at: the time of the report, seconds since the epoch.
        message: the message.
        replicas: the ordinals of the replicas that make no progress; empty if they were not recorded.
        kind: the kind of its event.
    """

    at: float
    message: str
    replicas: Sequence[int] = ()
    kind: str = "stalled"


def stalled_for(since: float, step: int | None, now: float) -> str:
    """Returns the message of an application that makes no progress.

    Args:
        since: the time of its last progress, seconds since the epoch.
        step: its last step; None if it is unknown.
        now: the current time.

    >>> stalled_for(0.0, 4183, 725.0)
    'stalled for 12 min (step 4,183)'
    """
    return f"stalled for {brief(max(now - since, 0.0))}" + ("" if step is None else f" (step {step:,})")
