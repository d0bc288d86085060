"""Derives the state of an application, and the next actions of its rules, from its containers.

The containers are the only record. Each query replays their history through the rules of local jobs
(:class:`torchx.supervisor.policy.Gang`), with the same result in a restarted supervisor and on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.marks import CANCELLED, ENDED, EXPIRED, FAILED, STOPPED, UNNEEDED
from torchx.schedulers.docker.rules.job import BY_ENGINE, Job, job_of
from torchx.scheduling.limits import LimitRule
from torchx.supervisor.policy import NEVER, REQUEUED, Action, End, Gang, RoleRules, Start, Stop

NOT_STARTED = "it was not started before the application had ended"
"""The reason to stop a replica whose container exists, but is not needed any more."""


@dataclass
class Progress:
    """The state of an application and the pending actions of its rules.

    Attributes:
        job: the job.
        replicas: the containers of each replica by ordinal, in order of attempts.
        gang: the rules, with the history applied.
        end: how it ended; None while a replica runs or is to be started.
        starts: replicas to start, with the delay after the end of their previous attempt.
        stops: ordinals of replicas to stop, with the reason: they run, or their containers may be started any
            moment by a submission or a supervisor.
        retries: the retries so far, including those that are pending.
        carried_out: the retries that have been carried out.
        expected: the current attempt of each replica.
        lost: ordinals of replicas whose container was removed.
        needed: ordinals of replicas of services that have ended by themselves while they were needed.
    """

    job: Job
    replicas: list[list[Container]]
    gang: Gang
    end: End | None = None
    starts: list[Start] = field(default_factory=list)
    stops: dict[int, str] = field(default_factory=dict)
    retries: dict[str | int, int] = field(default_factory=dict)
    carried_out: dict[str | int, int] = field(default_factory=dict)
    expected: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    needed: set[int] = field(default_factory=set)

    def newest(self, ordinal: int) -> Container | None:
        """Returns the newest container of a replica."""
        if self.replicas[ordinal]:
            return self.replicas[ordinal][-1]
        return None

    def present(self, ordinal: int) -> Container | None:
        """Returns the newest container of a replica, or None if it was removed."""
        newest = self.newest(ordinal)
        if newest is None or newest.removed:
            return None
        return newest

    @property
    def running(self) -> dict[int, Container]:
        """The containers that run, by replica."""
        newest = {n: mine[-1] for n, mine in enumerate(self.replicas) if mine}
        return {n: container for n, container in newest.items() if container.status == "running"}

    @property
    def cancelled(self) -> bool:
        """Whether the application was cancelled."""
        return any(c.mark == CANCELLED for mine in self.replicas for c in mine)

    @property
    def restarts(self) -> int:
        """The number of restarts of its replicas."""
        return sum(self.retries.values()) + sum(c.restarts for mine in self.replicas for c in mine)

    @property
    def failed(self) -> int | None:
        """The replica that failed first and so ended the application; None before the end, or without one."""
        return self.end.first_failure if self.end else None

    @property
    def run(self) -> int:
        """The number of its run, from 1."""
        return self.gang.run

    @property
    def ends_at(self) -> int:
        """The end of its run by the time limit, in seconds since the epoch; 0 without one."""
        return max((c.ends_at for mine in self.replicas for c in mine[-1:]), default=0)

    def expire(self) -> None:
        """Applies the time limit, which has been reached."""
        for action in self.gang.expire():
            if isinstance(action, Stop):
                self.stops.update((n, action.why) for n in action.replicas if _runs(self.newest(n)))

    def is_ready(self, ordinal: int) -> bool:
        """Returns True for a running replica of a service that is ready."""
        newest, service = self.newest(ordinal), self.job.members[ordinal][0].service
        if newest is None or service is None or not newest.live:
            return False
        return newest.ready or not service.ready

    def begin_again(self, *, next_run: bool) -> list[int]:
        """Returns the held replicas that the next starts begin again, as their containers were used.

        Args:
            next_run: a run has ended by its time limit, so that even new containers have an old limit.
        """
        used = [(n, c) for n in sorted(self.gang.held) if (c := self.newest(n)) is not None]
        current = [(n, c) for n, c in used if c.attempt >= self.expected[n]]
        return [n for n, c in current if next_run or not _is_pending(c, held=True)]

    def retries_with(self, ordinals: Collection[int]) -> dict[str | int, int]:
        """Returns the retries that have been carried out once these replicas are started again.

        Other replicas may wait for their retries: those are counted when they are carried out.
        """
        members = self.job.members
        roles = {f"role {members[n][0].name}" for n in ordinals}
        restarted: set[str | int] = {"application", REQUEUED, *ordinals, *roles}
        return self.carried_out | {key: self.retries[key] for key in restarted & self.retries.keys()}


def replay(job: Job, containers: Sequence[Container]) -> Progress:
    """Replays the history of an application's containers through its rules.

    Args:
        job: the job.
        containers: all its containers; also those that were removed, if their ends are known.
    """
    places = {(role.name, replica): n for n, (role, replica) in enumerate(job.members)}
    replicas: list[list[Container]] = [[] for _ in places]
    for container in containers:
        if (container.role, container.replica) in places:
            replicas[places[container.role, container.replica]].append(container)
    for mine in replicas:
        mine.sort(key=lambda c: (c.attempt, c.created))
    # the last retry is the one with the highest numbers of attempts
    retries = [c.retry for c in containers if c.retry]
    retry = max(retries, key=lambda r: sum(r.get("attempts", ())), default={})
    attempts = list(retry.get("attempts", ()))
    if len(attempts) == len(places):
        expected = attempts
    else:
        expected = [1] * len(places)
    ordinals = {str(n): n for n in range(len(places))}
    used: dict[str | int, int] = {ordinals.get(key, key): n for key, n in retry.get("used", {}).items()}
    progress = Progress(job, replicas, _rules(job, used), carried_out=used, expected=expected)
    _apply(progress)
    return progress


def is_under_way(containers: Sequence[Container]) -> bool:
    """Returns True if an application has not ended, or cannot be read and has running containers."""
    if damage_of(containers):
        return any(c.live for c in containers)
    return replay(job_of(containers), containers).end is None


def _rules(job: Job, used: Mapping[str | int, int]) -> Gang:
    rules = []
    first = 0
    for role in job.roles:
        ordinals = range(first, first + role.replicas)
        # a replica that the engine restarts has ended permanently if its container has
        if role.policy == BY_ENGINE:
            retries = 0
        else:
            retries = role.max_retries
        own = RoleRules(role.name, ordinals, retries, role.policy, after=role.after)
        if role.service is not None:
            own = own._replace(service=True, critical=role.service.critical)
        rules.append(own)
        first = ordinals.stop
    return Gang(rules, job.fail_fast, job.backoff, used_retries=dict(used), requeues=job.limits.requeues)


def _apply(progress: Progress) -> None:
    """Applies the rules to the containers: first those that run, then the ends in order of time."""
    gang, job_limits = progress.gang, progress.job.limits
    # the first starts were carried out; containers that are still to be started are collected below
    actions: list[Action] = [action for action in gang.begin() if isinstance(action, End)]
    running, ended, unstarted = _sorted_by_stage(progress)
    for ordinal in [*running, *ended]:
        gang.started(ordinal)
    for ordinal in running:
        if progress.is_ready(ordinal):
            actions += gang.ready(ordinal)
    # containers that ran when it was cancelled have the mark; all others ended before
    before = [n for n in ended if not _has_mark(progress.newest(n), CANCELLED)]
    after = [n for n in ended if _has_mark(progress.newest(n), CANCELLED)]
    for ordinal in before:
        apply_limit(gang, job_limits, progress.newest(ordinal), actions)
        actions += _ended(progress, ordinal)
    for ordinal in running:
        apply_limit(gang, job_limits, progress.newest(ordinal), actions)
    if progress.cancelled:
        actions += gang.cancel()
    for ordinal in after:
        actions += _ended(progress, ordinal)
    actions += _give_up_lost(progress, actions)
    _collect_pending(progress, actions, unstarted)


def _sorted_by_stage(progress: Progress) -> tuple[list[int], list[int], list[int]]:
    """Returns the ordinals that run, those that have ended in order of time, and those to be started.

    A replica without a container was lost, which counts after all other ends.
    """
    begun = any(c.started or c.mark for mine in progress.replicas for c in mine)
    running: list[int] = []
    ended: list[tuple[float, int]] = []
    unstarted: list[int] = []
    for ordinal in range(len(progress.replicas)):
        newest = progress.newest(ordinal)
        # removed before its next attempt was created from it
        if newest is None or (newest.removed and newest.attempt < progress.expected[ordinal]):
            if begun:
                progress.lost.add(ordinal)
                ended.append((float("inf"), ordinal))
        elif newest.attempt < progress.expected[ordinal]:
            unstarted.append(ordinal)
        elif newest.live:
            running.append(ordinal)
        elif _is_pending(newest, held=bool(progress.job.members[ordinal][0].after)):
            unstarted.append(ordinal)
        else:
            ended.append((_end_of(newest), ordinal))
    return running, [ordinal for _, ordinal in sorted(ended)], unstarted


def _end_of(container: Container) -> float:
    """Returns the time of an end; one that was not needed before it started has ended after all others."""
    if container.finished or container.started or container.mark not in (STOPPED, UNNEEDED):
        return container.finished or container.created
    return float("inf")


def _ended(progress: Progress, ordinal: int) -> list[Action]:
    """Applies the rules to the end of a replica."""
    newest = progress.newest(ordinal)
    if newest is None or ordinal in progress.lost:
        return progress.gang.exited(ordinal, succeeded=False)
    if newest.mark == FAILED:
        return progress.gang.give_up(ordinal)
    if newest.refused_cause:
        return progress.gang.exited(ordinal, succeeded=False, verdict=NEVER)
    if progress.gang.needs(ordinal) and newest.mark not in ENDED:
        progress.needed.add(ordinal)
    # one that was ended as it was stalled has failed, even if it ended orderly
    succeeded = newest.exit_code == 0 and not newest.error and not newest.was_forced
    return progress.gang.exited(ordinal, succeeded, newest.mark in ENDED)


def _has_mark(container: Container | None, mark: str) -> bool:
    return container is not None and container.mark == mark


def _give_up_lost(progress: Progress, actions: Sequence[Action]) -> list[Action]:
    """Gives up a retry if a replica has no container left, as the next one is created from the last."""
    started = {n for action in actions if isinstance(action, Start) for n in action.replicas}
    lost = [n for n in sorted(started) if progress.present(n) is None and progress.gang.wants(n)]
    progress.lost.update(lost)
    # one is enough to end the application
    if lost:
        return progress.gang.give_up(_needing_retry(progress, started, lost))
    return []


def _needing_retry(progress: Progress, started: Collection[int], lost: Sequence[int]) -> int:
    """Returns the replica whose failure needs a retry that is given up; a lost one if that is not known."""
    newest = {n: c for n in sorted(started) if (c := progress.newest(n)) is not None}
    failed = {n: _end_of(c) for n, c in newest.items() if c.exit_code and c.mark not in ENDED}
    if failed.keys().isdisjoint(lost):
        return min(failed, key=failed.__getitem__, default=lost[0])
    return lost[0]


def _is_pending(container: Container, *, held: bool) -> bool:
    """Returns True if a container is still to be started.

    Args:
        container: the container.
        held: its role starts after others, so the supervisor starts it.
    """
    if container.mark or container.started:
        return False
    # a refused start is requested again; the mark means that it was given up
    return container.attempt > 1 or held or (container.status == "created" and not container.error)


def _collect_pending(progress: Progress, actions: Sequence[Action], unstarted: Sequence[int]) -> None:
    """Collects the actions that have not been carried out yet."""
    ordered: set[int] = set()
    for action in actions:
        if isinstance(action, Start):
            ordinals = tuple(n for n in action.replicas if progress.gang.wants(n))
            ordered.update(ordinals)
            if ordinals:
                progress.starts.append(Start(ordinals, action.delay))
        elif isinstance(action, Stop):
            progress.stops.update((n, action.why) for n in action.replicas if _runs(progress.newest(n)))
        elif isinstance(action, End):
            progress.end = action
    left = tuple(n for n in unstarted if n not in ordered and progress.gang.wants(n))
    if left:
        progress.starts.append(Start(left))
    progress.retries = progress.gang.used_retries
    if progress.end is not None:
        # the end would be withdrawn if one of these were started, so they have to be marked first
        progress.stops.update((n, NOT_STARTED) for n in unstarted if _is_startable(progress, n))
        if progress.stops:
            progress.end = None


def _is_startable(progress: Progress, ordinal: int) -> bool:
    """Returns True if the container of the current attempt of a replica exists and can still be started."""
    newest, before = progress.newest(ordinal), progress.replicas[ordinal][-2:-1]
    if newest is None or newest.attempt < progress.expected[ordinal]:
        return False
    if progress.cancelled and before and before[0].mark in ENDED:
        return False  # a supervisor created it after the cancellation, and removes it
    return _is_pending(newest, held=bool(progress.job.members[ordinal][0].after))


def first_starts(job: Job) -> frozenset[int]:
    """Returns the ordinals of the replicas that start with the application; others start after them."""
    begun = _rules(job, {}).begin()
    return frozenset(n for action in begun if isinstance(action, Start) for n in action.replicas)


def has_begun(containers: Sequence[Container]) -> bool:
    """Returns True if a submission has created all containers and started those that wait for no others.

    Args:
        containers: those of one application, possibly none.
    """
    if not containers or damage_of(containers):
        return False
    progress = replay(job_of(containers), containers)
    newest = [progress.newest(n) for n in range(len(progress.replicas))]
    first = first_starts(progress.job)
    return all(c is not None and (n not in first or c.started is not None) for n, c in enumerate(newest))


def _runs(container: Container | None) -> bool:
    return container is not None and container.live


ROUNDING = 1.0
"""Seconds before the notice at which a program may know of it, as the end of a run is a whole second."""


def apply_limit(gang: Gang, rule: LimitRule, container: Container | None, actions: list[Action]) -> None:
    """Applies the time limit, if a container was ended by it, or has ended after the notice.

    Args:
        gang: the rules.
        rule: the time limit.
        container: the newest container of a replica.
        actions: the actions so far; changed in place.
    """
    if container is None or not container.ends_at:
        return
    finished = container.finished or 0.0
    if container.mark == EXPIRED or finished >= container.ends_at:
        # it drops the retries that have not begun
        kept = [action for action in actions if not isinstance(action, Start)]
        expired = gang.expire()
        if expired or gang.expired:
            actions[:] = [*kept, *expired]
    if rule.notice and finished >= container.ends_at - rule.notice - ROUNDING:
        gang.notice()
