"""Format and parse times and durations."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from torchx.command_line import ArgumentError
from torchx.lazy import lazy_imports
from torchx.printable import brief

with lazy_imports:
    from torchx.scheduling import stalls


CLOCKS_DIFFER = 2.0
"""Seconds by which the clocks of two machines may differ."""


def duration(seconds: float) -> str:
    """Formats a duration.

    >>> duration(0.42), duration(12.4), duration(123), duration(7200), duration(90061)
    ('0.4 s', '12.4 s', '2 min 3 s', '2 h', '1 d 1 h')
    """
    seconds = max(0.0, seconds)
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, small in ((86400, 3600), (3600, 60), (60, 1)):
        if whole >= size:
            rest = whole % size // small * small
            return brief(whole) + (f" {brief(rest)}" if rest else "")
    return brief(whole)


def whole(seconds: float) -> str:
    """Formats a duration in whole seconds.

    >>> whole(12.9), whole(123.4)
    ('12 s', '2 min 3 s')
    """
    return duration(int(seconds)).replace(".0 s", " s")


def ago(when: datetime, now: datetime | None = None) -> str:
    """Returns roughly how long ago a time is, or the date after a month.

    >>> now = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
    >>> ago(now - timedelta(seconds=150), now), ago(now - timedelta(days=50), now)
    ('2 min ago', '2026-03-12')
    """
    seconds = ((now or datetime.now(timezone.utc)) - when).total_seconds()
    if seconds >= 31 * 86400:
        return when.astimezone().strftime("%Y-%m-%d")
    if seconds < 1:
        return "just now"
    return f"{brief(seconds)} ago"


def span(started: datetime | None, ended: datetime | None, *, over: bool = False) -> float | None:
    """Returns the seconds from start to end, or None if unknown, as after a change of the clock.

    Equal times are those of an engine that records whole seconds, or no end: the duration is unknown.

    Args:
        started: the start; None if it has not started.
        ended: the end; None if it has not ended, or its end is unknown.
        over: it has ended; otherwise, without an end, it lasts until now.

    >>> started = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
    >>> span(started, started + timedelta(seconds=2)), span(started, None, over=True)
    (2.0, None)
    >>> span(started, started)
    """
    if started is None or (over and ended is None):
        return None
    seconds = ((ended or datetime.now(timezone.utc)) - started).total_seconds()
    if seconds < -CLOCKS_DIFFER or started == ended:
        return None
    return max(seconds, 0.0)


def iso(when: datetime | None) -> str | None:
    """Returns a time as ISO 8601 with zone, or None."""
    if when is None:
        return None
    return when.isoformat()


FORMS = "10m, 2h, 1d, today, yesterday, monday, last week, 2026-05-01 or 2026-05-01T12:30"
"""The forms of times, for messages."""

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def parse_time(flag: str, text: str, now: datetime | None = None) -> datetime:
    """Parses a time: ISO 8601 (default zone: local), an age such as `10m`, `2 days ago` or `90`, or a
    named day.

    Args:
        flag: the flag, for error messages.
        text: the value.
        now: the reference time of ages and days.

    Raises:
        UsageError: the value is invalid.

    >>> now = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
    >>> (now - parse_time("--since", "1h30m", now)).total_seconds()
    5400.0
    """
    now, stripped = now or datetime.now(timezone.utc), text.strip()
    unit = "s"
    if len(stripped) == len("20260501"):
        unit = ""  # a date, not seconds
    back = stalls.parse_duration(stripped.removesuffix("ago").rstrip(), unit)
    if back is not None:
        return now - timedelta(seconds=back)
    days = _days_before(" ".join(stripped.lower().split()), now.astimezone())
    if days is not None:
        midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        return (midnight - timedelta(days=days)).astimezone()
    if stripped.endswith(("Z", "z")):  # supported by Python 3.11 and later only
        stripped = stripped[:-1] + "+00:00"
    try:
        return datetime.fromisoformat(stripped).astimezone()
    except (ValueError, OverflowError):
        raise ArgumentError(
            f"{flag} takes a time, got `{text}`", flag=flag, given=text, hint=f"a time is {FORMS}"
        ) from None


def optional_time(flag: str, text: str) -> datetime | None:
    """Parses a time as :func:`parse_time`; None if the text is empty."""
    if text:
        return parse_time(flag, text)
    return None


def _days_before(name: str, now: datetime) -> int | None:
    """Returns how many days ago a named day was, or a named week or month began; None if invalid.

    >>> friday = datetime(2026, 5, 1, 12)
    >>> [_days_before(name, friday) for name in ("yesterday", "mon", "friday", "last friday", "last month")]
    [1, 4, 0, 7, 30]
    """
    weekday, day = now.weekday(), now.day
    named = {
        "today": 0,
        "yesterday": 1,
        "this week": weekday,
        "last week": weekday + 7,
        "this month": day - 1,
    }
    named["last month"] = day - 1 + (now - timedelta(days=day)).day
    if name in named:
        return named[name]
    last, spelled = name.startswith("last "), name.removeprefix("last ")
    for number, full in enumerate(_WEEKDAYS):
        if spelled in (full, full[:3]):
            days = (weekday - number) % 7
            if last:
                return days or 7
            return days
    return None
