"""What follows from an application's containers: which rules they have met so far, and what comes next.

The containers are all that is remembered. Their story is told again to the rules that local jobs have
(:class:`torchx.supervisor.policy.Gang`) each time someone asks, so a supervisor that starts anew, and every
machine that reaches the engine, comes to the same end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx.schedulers.docker.containers import CANCELLED, FAILED, STOPPED, Container, damage_of
from torchx.supervisor.policy import REPLICA, Action, End, Gang, RoleRules, Start, Stop


@dataclass(frozen=True)
class RoleFacts:
    """What the rules need to know of a role."""

    name: str
    replicas: int
    max_retries: int = 0
    policy: str = "APPLICATION"


@dataclass(frozen=True)
class Job:
    """What was submitted, as far as it decides what happens.

    Attributes:
        app_id: the application.
        roles: its roles in order.
        cfg: the run options.
        data: all of it.
    """

    app_id: str
    roles: tuple[RoleFacts, ...]
    cfg: Mapping[str, Any]
    data: Mapping[str, Any]

    @property
    def grace(self) -> float:
        """Seconds between the request to end and the end by force."""
        value = self.cfg.get("grace_period")
        return float(value) if isinstance(value, (int, float)) else 10.0

    @property
    def fail_fast(self) -> bool:
        """Whether one failure for good ends all."""
        return bool(self.cfg.get("fail_fast", True)) and bool(self.data)

    @property
    def backoff(self) -> float:
        """Seconds before the first retry."""
        value = self.cfg.get("retry_backoff")
        return float(value) if isinstance(value, (int, float)) else 1.0

    @property
    def members(self) -> list[tuple[RoleFacts, int]]:
        """All replicas by ordinal: role, and id within it."""
        return [(role, replica) for role in self.roles for replica in range(role.replicas)]

    @property
    def needs_supervisor(self) -> bool:
        """Whether something has to be done when a replica ends that the engine does not do by itself."""
        retried = any(role.max_retries and role.policy != REPLICA for role in self.roles)
        return retried or (self.fail_fast and len(self.members) > 1)


def job_of(containers: Sequence[Container]) -> Job:
    """Returns what was submitted, as its containers tell it.

    Containers that another program has made in the same way carry less: what they are tells their roles.
    """
    data = next((c.job for c in containers if c.job), {})
    if data:
        return job_from(containers[0].app_id, data)
    counts: dict[str, int] = {}
    for container in containers:
        counts[container.role] = max(counts.get(container.role, 0), container.replica + 1)
    return Job(containers[0].app_id, tuple(RoleFacts(name, n) for name, n in counts.items()), {}, {})


def job_from(app_id: str, data: Mapping[str, Any]) -> Job:
    """Returns what was submitted from the data that the containers carry."""
    roles = tuple(
        RoleFacts(r["name"], r["num_replicas"], r["max_retries"], r["retry_policy"])
        for r in data["app"]["roles"]
    )
    return Job(app_id, roles, data.get("cfg") or {}, data)


@dataclass
class Story:
    """How an application fares, and what its rules order.

    Attributes:
        job: what was submitted.
        replicas: the containers of each replica by ordinal, its attempts in order.
        gang: the rules, as far as the story goes.
        end: how it ended; None while something of it runs or is to be started.
        starts: what is to be started, each with its delay after the end of what was before.
        stops: ordinals of running replicas that are to be ended, and why.
        retries: which retries there have been, for the next containers.
        expected: the number of the attempt each replica has come to.
        lost: ordinals of replicas whose container is gone.
    """

    job: Job
    replicas: list[list[Container]]
    gang: Gang
    end: End | None = None
    starts: list[Start] = field(default_factory=list)
    stops: dict[int, str] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)
    expected: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)

    def newest(self, ordinal: int) -> Container | None:
        """Returns the newest container of a replica."""
        return self.replicas[ordinal][-1] if self.replicas[ordinal] else None

    @property
    def cancelled(self) -> bool:
        """True when someone asked for the end."""
        return any(c.mark == CANCELLED for mine in self.replicas for c in mine)

    @property
    def restarts(self) -> int:
        """How often something of it was started again."""
        return sum(self.retries.values()) + sum(c.restarts for mine in self.replicas for c in mine)


def tell(job: Job, containers: Sequence[Container], succeeded: Mapping[int, int] | None = None) -> Story:
    """Tells the rules what has happened to the containers of an application.

    Args:
        job: what was submitted.
        containers: all of them that are there.
        succeeded: which attempt of a replica, by ordinal, was seen to succeed; for those that are gone.
    """
    places = {(role.name, replica): n for n, (role, replica) in enumerate(job.members)}
    replicas: list[list[Container]] = [[] for _ in places]
    for container in containers:
        if (container.role, container.replica) in places:
            replicas[places[container.role, container.replica]].append(container)
    for mine in replicas:
        mine.sort(key=lambda c: (c.attempt, c.created))
    retries = [c.retry for c in containers if c.retry]
    retry = max(retries, key=lambda r: sum(r.get("attempts", ())), default={})
    expected = [1] * len(places)
    attempts = retry.get("attempts", ())
    if len(attempts) == len(expected):
        expected = list(attempts)
    used: dict[str | int, int] = dict(retry.get("used", {}))
    story = Story(job, replicas, _rules(job, used), expected=expected)
    gone = {n for n, attempt in (succeeded or {}).items() if not replicas[n] and attempt == expected[n]}
    _replay(story, gone)
    return story


def is_under_way(containers: Sequence[Container]) -> bool:
    """Returns True until an application has ended; one that cannot be read has when none of it runs."""
    if damage_of(containers):
        return any(c.live for c in containers)
    return tell(job_of(containers), containers).end is None


def _rules(job: Job, used: Mapping[str | int, int]) -> Gang:
    rules = []
    first = 0
    for role in job.roles:
        ordinals = range(first, first + role.replicas)
        # retries of single replicas are the engine's own: what it tells as ended has ended for good
        retries = 0 if role.policy == REPLICA else role.max_retries
        rules.append(RoleRules(role.name, ordinals, retries, role.policy))
        first = ordinals.stop
    return Gang(rules, job.fail_fast, job.backoff, used_retries=dict(used))


def _replay(story: Story, gone: Collection[int]) -> None:
    gang = story.gang
    actions: list[Action] = gang.begin()
    begun = any(c.started or c.mark for mine in story.replicas for c in mine)
    ended: list[tuple[float, int]] = []
    unstarted: list[int] = []
    for ordinal, mine in enumerate(story.replicas):
        newest = mine[-1] if mine else None
        if newest is None:
            if ordinal in gone:
                ended.append((0.0, ordinal))
            elif begun:
                story.lost.add(ordinal)
                ended.append((float("inf"), ordinal))
            continue
        if newest.attempt < story.expected[ordinal]:
            unstarted.append(ordinal)
        elif newest.live:
            gang.started(ordinal)
        elif _is_to_come(newest):
            unstarted.append(ordinal)
        else:
            ended.append((newest.finished or newest.created, ordinal))
    for _, ordinal in ended:
        gang.started(ordinal)
    actions = [action for action in actions if isinstance(action, End)]
    cancelled = [(at, n) for at, n in ended if (c := story.newest(n)) is not None and c.mark == CANCELLED]
    # what ran when someone asked for the end has the mark, so the rest was before
    for _, ordinal in [*sorted(set(ended) - set(cancelled)), (0.0, -1), *sorted(cancelled)]:
        if ordinal < 0:
            actions += gang.cancel() if story.cancelled else []
            continue
        newest = story.newest(ordinal)
        if newest is not None and newest.mark == FAILED:
            actions += gang.give_up(ordinal)
        else:
            good = newest.exit_code == 0 and not newest.error if newest is not None else ordinal in gone
            stopped = newest is not None and newest.mark in (STOPPED, CANCELLED)
            actions += gang.exited(ordinal, good, stopped)
    actions += _give_up_lost(story, actions)
    _sort_out(story, actions, unstarted)


def _give_up_lost(story: Story, actions: Sequence[Action]) -> list[Action]:
    """Ends what would start again without a replica: where no container is left, none can be made of it."""
    started = {n for action in actions if isinstance(action, Start) for n in action.replicas}
    lost = [n for n in sorted(started) if story.newest(n) is None and story.gang.wants(n)]
    story.lost.update(lost)
    # one of them ends all of it
    return story.gang.give_up(lost[0]) if lost else []


def _is_to_come(container: Container) -> bool:
    """Tells whether a container is still to be started."""
    if container.mark or container.started:
        return False
    # a retry that the engine refuses is removed and asked for again; the mark tells that it was given up
    return container.attempt > 1 or (container.status == "created" and not container.error)


def _sort_out(story: Story, actions: Sequence[Action], unstarted: Sequence[int]) -> None:
    """Keeps what of the orders has not been carried out yet."""
    ordered: set[int] = set()
    for action in actions:
        if isinstance(action, Start):
            wanted = tuple(n for n in action.replicas if story.gang.wants(n))
            ordered.update(wanted)
            if wanted:
                story.starts.append(Start(wanted, action.delay))
        elif isinstance(action, Stop):
            story.stops.update((n, action.why) for n in action.replicas if _runs(story.newest(n)))
        elif isinstance(action, End):
            story.end = action
    left = tuple(n for n in unstarted if n not in ordered and story.gang.wants(n))
    if left:
        story.starts.append(Start(left))
    story.retries = {str(key): count for key, count in story.gang.used_retries.items()}


def _runs(container: Container | None) -> bool:
    return container is not None and container.live
