"""The order in which waiting jobs start, as a pure function of the tickets and of the free resources.

Jobs start by priority, then by the time of their tickets, each with all of its resources or none. A job that
does not fit keeps its resources from those behind it. Only a job that is certain to end before
the first of these could start is started ahead of it (backfill), so that no job waits forever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from torchx.printable import counted

MARGIN = 15.0
"""Seconds between the latest end of a job that starts ahead and the earliest start of the one that it passes:
the end of its processes takes time."""

MOST_KINDS = 256
"""Maximum number of different sets of resources that positions in the queue take into account."""


KINDS = ("GPU", "CPU", "unit of memory")
"""The kinds of resources, in the order of the needs of a job."""


class Wanted(NamedTuple):
    """A number of leases out of some names.

    Attributes:
        names: the names of the leases that would do.
        amount: the number that is needed.
    """

    names: frozenset[str]
    amount: int


def check_needs(wanted: Collection[Wanted]) -> None:
    """Checks the needs of a waiting job.

    Raises:
        ValueError: it needs nothing, more than there is, or a resource of an unknown kind.
    """
    if len(wanted) > len(KINDS) or not any(each.amount for each in wanted):
        raise ValueError("it needs no resource of this machine")
    if any(not 0 <= each.amount <= len(each.names) for each in wanted):
        raise ValueError("it needs more than this machine has")


class Waiter(NamedTuple):
    """A waiting job, as all users see it.

    Attributes:
        uid: its user.
        app_id: the application.
        at: the time of its submission, seconds since the epoch.
        wanted: its needs: GPUs, processors and memory.
        priority: jobs with a higher one start first.
        limit: its time limit in seconds; None without one.
        held: it does not start until it is released.
        place_at: the time that determines its place, seconds since the boot of the machine.
    """

    uid: int
    app_id: str
    at: float
    wanted: tuple[Wanted, ...]
    priority: int = 0
    limit: float | None = None
    held: bool = False
    place_at: float = 0.0

    @property
    def gpus(self) -> int:
        """The number of GPUs that it needs."""
        if self.wanted:
            return self.wanted[0].amount
        return 0

    @property
    def place(self) -> tuple[object, ...]:
        """Its place; the smallest one is first."""
        return -self.priority, self.place_at, self.at, self.uid, self.app_id


class Quota(NamedTuple):
    """The resources that one user may have at a time.

    Attributes:
        gpus: GPUs; None for any number.
        jobs: jobs with resources; None for any number.
    """

    gpus: int | None = None
    jobs: int | None = None


class Verdict(NamedTuple):
    """The decision about a waiting job.

    Attributes:
        waiter: the job.
        names: the leases to take; empty if it does not start.
        reason: why it waits.
    """

    waiter: Waiter
    names: tuple[str, ...] = ()
    reason: str = ""

    @property
    def starts(self) -> bool:
        """Whether it starts now."""
        return bool(self.names)


def decide(
    waiters: Iterable[Waiter],
    free: Collection[str],
    ends: Mapping[str, float],
    now: float,
    quotas: Mapping[int, Quota] | None = None,
    used: Mapping[int, Quota] | None = None,
) -> list[Verdict]:
    """Decides which jobs start, in their order.

    Args:
        waiters: the waiting jobs of all users.
        free: the names of the leases that are free.
        ends: the latest time at which a lease that is held becomes free, as far as known.
        now: seconds since the epoch.
        quotas: the limits of users.
        used: the resources that users have.
    """
    left = set(free)
    usage = dict(used or {})
    verdicts = []
    blocked: dict[frozenset[str], float] = {}  # resources of jobs that do not fit, and their start
    ahead_of: dict[frozenset[str], int] = {}  # jobs so far by the resources that they could use
    for waiter in sorted(waiters, key=lambda waiter: waiter.place):
        if waiter.held:
            verdicts.append(Verdict(waiter, reason="held"))
            continue
        mine = _usable(waiter)
        position = 1 + sum(count for names, count in ahead_of.items() if not mine.isdisjoint(names))
        if mine in ahead_of or len(ahead_of) < MOST_KINDS:
            ahead_of[mine] = ahead_of.get(mine, 0) + 1
        over = excess(waiter.gpus, (quotas or {}).get(waiter.uid, Quota()), usage.get(waiter.uid, Quota()))
        if over:
            verdicts.append(Verdict(waiter, reason=over))
            continue
        names = _pick(waiter.wanted, left)
        starts = [start for others, start in blocked.items() if not mine.isdisjoint(others)]
        if names and starts:
            ends_in_time = waiter.limit is not None and now + waiter.limit + MARGIN <= min(starts)
            names = names if ends_in_time else ()
        if names:
            left.difference_update(names)
            usage[waiter.uid] = _with(usage.get(waiter.uid, Quota()), waiter)
            verdicts.append(Verdict(waiter, names))
            continue
        verdicts.append(Verdict(waiter, reason=_shortage(waiter, left, position)))
        if mine not in blocked:
            blocked[mine] = _earliest(waiter, left, ends)
    return verdicts


def _pick(wanted: Sequence[Wanted], free: Collection[str]) -> tuple[str, ...]:
    """Returns the leases to take, or none if one kind does not suffice."""
    picked: list[str] = []
    for names, count in wanted:
        fitting = sorted(names.intersection(free), key=lambda name: (len(name), name))
        if len(fitting) < count:
            return ()
        picked += fitting[:count]
    return tuple(picked)


def _usable(waiter: Waiter) -> frozenset[str]:
    """Returns the names of all leases that a job could take."""
    sets = [wanted.names for wanted in waiter.wanted if wanted.amount]
    if len(sets) == 1:
        return sets[0]
    return frozenset().union(*sets)


def _earliest(waiter: Waiter, free: Collection[str], ends: Mapping[str, float]) -> float:
    """Returns the earliest time at which a job can start; 0 if a holder may end at any time before."""
    start = 0.0
    for names, count in waiter.wanted:
        missing = count - len(names.intersection(free))
        if missing <= 0:
            continue
        held = [name for name in names if name not in free]
        known = sorted(ends[name] for name in held if name in ends)
        if len(known) < len(held):
            return 0.0  # without a time limit it may end soon
        # jobs may end before their limits; as many as are missing end at the earliest at these times
        start = max(start, known[missing - 1] if missing <= len(known) else 0.0)
    return start


def excess(gpus: int, quota: Quota, used: Quota) -> str:
    """Returns why a job would exceed the limits of its user; empty if it would not.

    Args:
        gpus: the GPUs that it needs.
        quota: the limits.
        used: the resources that the user has.

    >>> excess(1, Quota(jobs=1), Quota(2, 1)), excess(2, Quota(gpus=4), Quota(2, 1))
    ('the limit of this user is 1 job, 1 in use', '')
    """
    for amount, limit, held, unit in (
        (gpus, quota.gpus, used.gpus, "GPU"),
        (1, quota.jobs, used.jobs, "job"),
    ):
        if limit is not None and (held or 0) + amount > limit:
            return f"the limit of this user is {counted(limit, unit)}, {held or 0} in use"
    return ""


def _with(used: Quota, waiter: Waiter) -> Quota:
    return Quota((used.gpus or 0) + waiter.gpus, (used.jobs or 0) + 1)


def _shortage(waiter: Waiter, free: Collection[str], position: int) -> str:
    """Returns the reason why a job waits.

    >>> names = frozenset(f"gpu-{n}" for n in range(8))
    >>> _shortage(Waiter(0, "a", 0.0, (Wanted(names, 4),)), {"gpu-0", "gpu-1", "gpu-2"}, 2)
    'waiting for 4 GPUs: 3 of 8 are free; second in the queue'
    """
    needed = [
        (counted(wanted.amount, kind), len(wanted.names.intersection(free)), wanted)
        for kind, wanted in zip(KINDS, waiter.wanted, strict=False)
        if wanted.amount
    ]
    short = next((item for item in needed if item[1] < item[2].amount), needed[0])
    text, count, wanted = short
    verb = "is" if count == 1 else "are"
    return f"waiting for {text}: {count} of {len(wanted.names)} {verb} free; {ordinal(position)} in the queue"


def ordinal(number: int) -> str:
    """Returns a number as an ordinal.

    >>> [ordinal(n) for n in (1, 2, 3, 11, 21, 102, 113)]
    ['first', 'second', 'third', '11th', '21st', '102nd', '113th']
    """
    if number <= 3:
        return ("first", "second", "third")[number - 1]
    if number % 100 in (11, 12, 13):
        ending = "th"
    else:
        ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
