"""Decides which restart of a gang is due, from its objects; has no side effects.

The ends of the replicas of the newest attempts are replayed through the rules of local jobs
(:class:`torchx.supervisor.policy.Gang`), so every machine finds the same restart.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torchx.json_limits import Data
from torchx.json_shape import ANY_KEY, REQUIRED, Limited, check
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    count_of,
    deleted,
    ended_indexes,
    indexes,
    label,
    owns,
    short,
    text_at,
    time_of,
    true_conditions,
    value_at,
)
from torchx.schedulers.kubernetes.facts import Facts, attempt_of, role_index
from torchx.schedulers.kubernetes.limits import DISRUPTIONS, rule_of
from torchx.schedulers.kubernetes.names import (
    ATTEMPT,
    CANCELLED,
    HELD,
    LATE,
    OUTCOME,
    RELEASED,
    RESTARTED,
    RETRIES,
    STOPPED,
)
from torchx.schedulers.kubernetes.state import taken
from torchx.schedulers.kubernetes.state.attempts import (
    FAILURE_COUNT,
    attempts_of,
    ended_by_us,
    ended_container,
    finished_after_notice,
    is_over,
)
from torchx.schedulers.kubernetes.state.jobs import JobFacts
from torchx.schedulers.kubernetes.state.outcome import outcome_of
from torchx.schedulers.kubernetes.state.replicas import Member, by_replica, replica_of
from torchx.schedulers.kubernetes.state.replicas import run_of as pod_order
from torchx.schedulers.kubernetes.state.services import (
    has_order,
    is_released,
    ready_replicas,
    succeeded_at,
    with_order,
)
from torchx.schedulers.kubernetes.state.taken import disruption
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.observation import Replica, or_zero
from torchx.scheduling.retry_rules import Failure, RetryRules, lines_of
from torchx.services import ENDED_WHILE_NEEDED
from torchx.specs.status import AppState, EndCause, FirstFailure, Reason
from torchx.supervisor.policy import (
    APPLICATION,
    COUNTED,
    FREE,
    NEVER,
    REPLICA,
    REQUEUED,
    ROLE,
    Action,
    Gang,
    Requeue,
    Retry,
    RoleRules,
)

_COUNT = Limited(int, lambda number: 0 <= number < 10**6)
_SHAPE = {
    REQUIRED: ("roles", "used"),
    "roles": {ANY_KEY: _COUNT},
    "used": {ANY_KEY: _COUNT},
    "why": str,
    "at": float,
    "done": bool,
}


@dataclass(frozen=True)
class Restart:
    """A restart of one or more roles.

    Attributes:
        attempts: the attempt that it replaces, by the number of the role.
        used: the used retries, by ``application`` or ``role NAME``.
        why: the reason, one line.
        at: the earliest time of the next start, in seconds since the epoch.
        marked: whether it has begun: the replaced attempts are being ended.
    """

    attempts: Mapping[int, int]
    used: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    at: float = 0.0
    marked: bool = False

    def text(self, *, done: bool = False) -> str:
        """Returns the restart as an annotation.

        Args:
            done: the next attempts exist.
        """
        roles = {str(role): attempt for role, attempt in self.attempts.items()}
        data = {"roles": roles, "used": self.used, "why": self.why, "at": self.at, "done": done}
        return json.dumps(data, separators=(",", ":"))


def restart_from(text: str) -> tuple[Restart, bool] | None:
    """Returns the restart in an annotation, and whether it is done; None if it is damaged."""
    try:
        data = json.loads(text)
        check(data, _SHAPE, "")
    except (ValueError, RecursionError):
        return None
    if any(count_of(role) is None for role in data["roles"]):
        return None
    roles = {int(role): attempt for role, attempt in data["roles"].items()}
    restart = Restart(roles, data["used"], short(data.get("why")), float(data.get("at") or 0.0), True)
    return restart, bool(data.get("done"))


def used_retries(facts: Facts) -> dict[str, int]:
    """Returns the retries that an application has used, by their scope."""
    used: dict[str, int] = {}
    for main in facts.mains:
        found = restart_from(annotation(main, RETRIES))
        for scope, count in found[0].used.items() if found is not None else ():
            used[scope] = max(count, used.get(scope, 0))
    return used


def refusal(rules: RetryRules, pod: Object) -> str:
    """Returns why the failure of a pod is not retried, or an empty string.

    Args:
        rules: the rules.
        pod: a pod that has failed; its status has its last lines.
    """
    attempt = attempts_of(pod, 1)[-1]
    ended = ended_container(pod)
    lines = lines_of(text_at(ended, "message").encode("utf-8", "replace"))
    return rules.refusal(Failure(attempt.exit_code, attempt.signal, lines, attempt.cause))


def never_retried(facts: Facts) -> set[tuple[int, int]]:
    """Returns the replicas that their Job would retry after a failure that is never retried.

    A Job considers exit codes only, and torchx the last lines, too.
    """
    if facts.partial or not facts.fails_fast:
        return set()
    rules = RetryRules.recorded(facts.cfg)
    by_jobs = [main for main in facts.mains if value_at(main, "spec", "backoffLimitPerIndex")]
    return {
        key
        for key, (*_, pod) in by_replica(facts.pods).items()
        if value_at(pod, "status", "phase") == "Failed"
        and any(owns(main, pod) for main in by_jobs)
        and not (deleted(pod) or ended_by_us(pod) or disruption(pod))
        and refusal(rules, pod)
    }


DISRUPTED = "disruption"
"""The key of requeues after a disruption among the used retries."""
ROUNDING = 1.0
"""Seconds before the notice at which a program may know of it, as times of pods are whole seconds."""


def run_of(used: Mapping[str, int]) -> int:
    """Returns the number of a run, from 1.

    Args:
        used: the used retries and requeues by their scope.

    >>> run_of({}), run_of({"application": 3, "time-limit": 1, "disruption": 2})
    (1, 4)
    """
    return 1 + used.get(REQUEUED, 0) + used.get(DISRUPTED, 0)


def with_runs(facts: Facts, members: Sequence[Member], statuses: Sequence[Replica]) -> list[Replica]:
    """Returns the status of replicas with the run of each attempt.

    Args:
        facts: the objects of the application.
        members: its replicas.
        statuses: the status of each.
    """
    found = [restart_from(annotation(main, RETRIES)) for main in (*facts.mains, *facts.earlier)]
    requeues = [(restart.attempts, run_of(restart.used)) for restart, _ in filter(None, found)]

    def run(role: int, number: int) -> int:
        before = (run for attempts, run in requeues if attempts.get(role, number) < number)
        return max(before, default=1)

    return [
        replace(status, attempts=[replace(a, run=run(member.role_index, a.number)) for a in status.attempts])
        for member, status in zip(members, statuses, strict=True)
    ]


class RunLimits(NamedTuple):
    """The time limit of the current run.

    Attributes:
        rule: the time limit of the application.
        notified_at: the begin of the first notice, or the first deadline without one; infinite without a
            limit; seconds since the epoch.
    """

    rule: LimitRule
    notified_at: float = math.inf

    @classmethod
    def of(cls, cfg: Data, pods: Iterable[Object]) -> RunLimits:
        """Returns the limits of the run of some pods."""
        rule = rule_of(cfg)
        if rule.limit is None:
            return cls(rule)
        starts = [at for at in map(started_at, pods) if at]
        return cls(rule, min(starts) + rule.limit - rule.notice if starts else math.inf)

    @property
    def follows_disruptions(self) -> bool:
        """Whether the next run begins after a disruption of a pod."""
        return not DISRUPTIONS.isdisjoint(self.rule.requeue)

    def is_due(self, pod: Object, at: float) -> bool:
        """Returns True if a pod has ended because of the time limit, or after the first notice.

        Args:
            pod: the pod.
            at: its end, seconds since the epoch.
        """
        if ended_by_us(pod) or annotation(pod, LATE):
            return False
        expired = value_at(pod, "status", "reason") == "DeadlineExceeded"
        return self.rule.limit is not None and (expired or at >= self.notified_at - ROUNDING)


def started_at(pod: Object) -> float:
    """Returns the start of a pod on its node, from which its deadline counts; 0.0 before."""
    at = time_of(value_at(pod, "status", "startTime"))
    if at is not None:
        return at.timestamp()
    return 0.0


def as_finished(facts: Facts, main: Object, job: JobFacts) -> JobFacts:
    """Returns a job as succeeded if its replicas have finished after the notice: their pods count as failed.

    Args:
        facts: the application.
        main: the job.
        job: its state according to the object itself.
    """
    if job.state is not AppState.FAILED or job.reason != "FailedIndexes":
        return job
    failed = indexes(job.details.get("failedIndexes"))
    done = {replica_of(p)[1] for p in facts.pods if owns(main, p) and finished_after_notice(p)}
    if failed and failed <= done:
        return replace(job, state=AppState.SUCCEEDED, reason="")
    return job


def with_limit(first: FirstFailure, cfg: Data, used: Mapping[str, int]) -> FirstFailure:
    """Returns the first failure, with the time limit and its used requeues if they are the reason."""
    rule = rule_of(cfg)
    if rule.limit is None or first.cause is not EndCause.TIME_LIMIT:
        return first
    return replace(first, msg=rule.reached(used.get(REQUEUED, 0) + 1))


_ENDS = {"Complete", "SuccessCriteriaMet", "FailureTarget", "Failed"}
"""Conditions of a job that has ended, or ends its pods: a pod that is removed then is not a cause."""


def is_gang(facts: Facts) -> bool:
    """Returns True if the attempts of an application have jobs of their own."""
    return facts.kind == "job" and any(label(main, ATTEMPT) for main in facts.mains)


def is_cancelled(facts: Facts) -> bool:
    """Returns True if an application was cancelled, in any attempt."""
    return any(annotation(job, CANCELLED) for job in (*facts.mains, *facts.earlier))


def due_restart(facts: Facts) -> Restart | None:
    """Returns the restart that is due or was interrupted, or None."""
    if not is_gang(facts) or facts.damage or facts.partial or is_cancelled(facts):
        return None
    if any(annotation(main, mark) for main in facts.mains for mark in (STOPPED, RELEASED, OUTCOME)):
        return None
    return _begun(facts) or replay_of(facts).restart()


def is_saving(facts: Facts) -> bool:
    """Returns True if replicas have ended after the notice of the time limit, while others may go on."""
    replay = _current_run(facts)
    return replay is not None and replay.noticed and not (has_failed(facts) or replay.gang.decided)


def has_failed(facts: Facts) -> bool:
    """Returns True if a replica of a gang has failed, and no retry follows."""
    replay = _current_run(facts)
    if replay is None:
        return False
    return outcome_of(facts.mains).failure is not None or replay.gang.first_failure is not None


def _current_run(facts: Facts) -> Replay | None:
    if not is_gang(facts) or facts.damage or facts.partial or is_cancelled(facts):
        return None
    return replay_of(facts)


def _begun(facts: Facts) -> Restart | None:
    """Returns the restart that was begun and is not done."""
    for main in facts.mains:
        held = annotation(main, HELD) and attempt_of(main) > 1
        for key in (RESTARTED, *((RETRIES,) if held else ())):
            found = restart_from(annotation(main, key))
            if found is not None and not found[1]:
                return found[0]
    return None


class End(NamedTuple):
    """The end of a replica in its newest attempt.

    Attributes:
        at: its time, seconds since the epoch.
        ordinal: the replica.
        succeeded: it has succeeded.
        stopped: torchx has ended it.
        verdict: how a failure is retried.
        why: the reason of a failure, as a phrase.
        is_due: it has ended because of the time limit, or after its notice.
        is_lost: it was disrupted.
    """

    at: float
    ordinal: int
    succeeded: bool = False
    stopped: bool = False
    verdict: str = COUNTED
    why: str = ""
    is_due: bool = False
    is_lost: bool = False


class Replay:
    """The ends of the newest attempts, applied to the rules of retries and of the time limit.

    Args:
        facts: the application.

    Attributes:
        rules: the rules of all roles.
        gang: the replicas after the known ends.
        noticed: the notice of the time limit has begun.
        early: the replicas of services that have ended with exit code 0 while they were needed.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        cfg = facts.cfg
        self._causes = RetryRules.recorded(cfg)
        self._pods = {m["metadata"]["name"]: _newest_pods(facts, m) for m in facts.mains}
        self._limits = RunLimits.of(cfg, (pod for pods in self._pods.values() for pod in pods.values()))
        self.rules = _rules(facts)
        used: dict[str | int, int] = dict(used_retries(facts).items())
        backoff = cfg.get("retry_backoff")
        self.gang = Gang(
            self.rules,
            facts.fails_fast,
            float(backoff) if isinstance(backoff, (int, float)) else 1.0,
            used_retries=used,
            requeues=self._limits.rule.requeues,
        )
        self.noticed = False
        self.early: set[int] = set()
        self._ordered = has_order(facts)
        self._first: tuple[Retry, End] | None = None
        self._requeue: End | None = None
        self._run()

    def restart(self) -> Restart | None:
        """Returns the restart that the rules require."""
        if self._requeue is not None:
            numbers: Sequence[int] = range(len(self.rules))
            end, delay = self._requeue, 0.0
        elif self._first is not None and self.gang.restarting:
            (retry, end), delay = self._first, self._first[0].delay
            numbers = self._restarting(retry.scope == APPLICATION)
        else:
            return None
        mains = {role_index(main): main for main in self._facts.mains}
        attempts = {number: attempt_of(mains[number]) for number in numbers if number in mains}
        scopes = {str(scope): count for scope, count in self.gang.used_retries.items()}
        rule = next(rule for rule in self.rules if end.ordinal in rule.replicas)
        why = f"{rule.name}/{end.ordinal - rule.replicas.start} {end.why}"
        if end.is_due and self._requeue is not None:
            why = "the time limit was reached"
        return Restart(attempts, scopes, why, end.at + delay)

    def _restarting(self, all_roles: bool) -> Sequence[int]:
        """Returns the numbers of the roles that restart.

        Args:
            all_roles: also those that have not started, as the hosts of the others change.
        """
        replicas = self.gang.restarting
        return [
            number
            for number, rule in enumerate(self.rules)
            if not replicas.isdisjoint(rule.replicas) or (all_roles and rule.after)
        ]

    def _run(self) -> None:
        gang = self.gang
        gang.begin()
        for rule in self.rules:
            for ordinal in () if rule.after else rule.replicas:
                gang.started(ordinal)
        for ordinal in ready_replicas(self._facts, self.rules) if self._ordered else ():
            gang.ready(ordinal)
        ended = set()
        for end in sorted(self._ends(), key=self._place):
            if end.succeeded and gang.needs(end.ordinal):
                self.early.add(end.ordinal)
                end = end._replace(why=f"failed: {ENDED_WHILE_NEEDED}")
            if self._begins_run(end):
                self._requeue = end
                gang.used_retries[DISRUPTED] = gang.used_retries.get(DISRUPTED, 0) + 1
                return
            actions = []
            if end.is_due and not self.noticed:
                actions = self._notify(end)
            stopped = end.stopped or (end.is_due and not self._limits.rule.notice)
            actions += gang.exited(end.ordinal, end.succeeded, stopped, end.verdict)
            ended.add(end.ordinal)
            self._note(actions, end)
        if self.noticed:
            self._end_others(ended)

    def _place(self, end: End) -> tuple[bool, float, bool, End]:
        """Returns the place of an end among the others.

        As for local jobs, ends of services follow those of ordinary roles at the same time; ends by torchx
        are consequences of the others.
        """
        return self._ordered and end.stopped, end.at, self.gang.is_service(end.ordinal), end

    def _begins_run(self, end: End) -> bool:
        """Returns True for a disruption after which the next run begins."""
        open_run = not self.noticed and not self.gang.decided and self.gang.first_failure is None
        return end.is_lost and self._limits.follows_disruptions and open_run

    def _notify(self, end: End) -> list[Action]:
        """Handles the begin of the notice, or the time limit without one."""
        if self._limits.rule.notice and end.succeeded:
            return []  # it was about to end anyway
        self.noticed = True
        if self._limits.rule.notice:
            self.gang.notice()
            return []
        return self.gang.expire()

    def _end_others(self, ended: set[int]) -> None:
        """Ends the replicas that need not end by themselves: those that have not started, or all."""
        left = {n for rule in self.rules for n in rule.replicas} - ended
        if self._limits.rule.notice and not left.isdisjoint(self._started()):
            return
        for ordinal in left:
            self._note(self.gang.exited(ordinal, False, stopped=True), End(0.0, ordinal, is_due=True))

    def _note(self, actions: list[Action], end: End) -> None:
        for action in actions:
            if isinstance(action, Retry) and self._first is None:
                self._first = action, end
            if isinstance(action, Requeue):
                self._requeue = end._replace(is_due=True)

    def _started(self) -> set[int]:
        """Returns the replicas whose newest pods have started."""
        return {
            self.rules[number].replicas.start + index
            for main in self._facts.mains
            if (number := role_index(main)) is not None and number < len(self.rules)
            for index, pod in self._pods[main["metadata"]["name"]].items()
            if started_at(pod)
        }

    def _ends(self) -> Iterator[End]:
        """Yields the ends of replicas in the newest attempt of their roles."""
        for main in self._facts.mains:
            number = role_index(main)
            if number is not None and number < len(self.rules):
                yield from self._ends_of(main, self.rules[number])

    def _ends_of(self, main: Object, rule: RoleRules) -> Iterator[End]:
        """Yields the ends of the replicas of a role."""
        if is_released(main):
            yield from (End(0.0, ordinal, stopped=True) for ordinal in rule.replicas)
            return
        pods, noted = self._pods[main["metadata"]["name"]], taken.noted(main)
        completed, failed = ended_indexes(main)
        by_hand = _deleted_by_hand(main, pods)
        counts = rule.max_retries or self._limits.follows_disruptions
        for index, ordinal in enumerate(rule.replicas):
            pod, notes = pods.get(index), noted.get(index)
            if index in completed:
                at = succeeded_at(main, pod) if self._ordered else 0.0
                yield End(at, ordinal, succeeded=True)
            elif counts and taken.was_disrupted(notes, pod):
                yield self._loss_of(pod, notes, ordinal)
            elif pod is not None and pod["metadata"]["name"] in by_hand:
                yield End(0.0, ordinal, why=f"failed: {taken.BY_HAND}")
            elif pod is not None:
                yield from self._end_of(main, pod, ordinal)
            elif index in failed:
                yield End(0.0, ordinal, why=f"failed: {notes[-1].text if notes else taken.GONE}")

    def _loss_of(self, pod: Object | None, notes: list[Reason] | None, ordinal: int) -> End:
        """Returns the end of a replica that was disrupted."""
        at = _lost_at(pod)
        is_due = pod is not None and self._limits.is_due(pod, at)
        return End(at, ordinal, verdict=FREE, why=_lost_why(pod, notes), is_due=is_due, is_lost=True)

    def _end_of(self, main: Object, pod: Object, ordinal: int) -> Iterator[End]:
        """Yields the end of a pod, if it has ended."""
        if self._ordered and ended_by_us(pod) and not is_over(pod):
            return  # only its phase shows whether it has ended by itself
        attempt = attempts_of(pod, 1)[-1]
        at = or_zero(attempt.ended_at).timestamp()
        is_due = self._limits.is_due(pod, at)
        if attempt.state is AppState.SUCCEEDED:
            yield End(at, ordinal, succeeded=True, is_due=is_due)
        elif ended_by_us(pod):
            if attempt.state is not AppState.RUNNING:
                yield End(at, ordinal, stopped=True)
        elif attempt.state is AppState.FAILED and not _is_started_again(main, pod):
            code = attempt.signal or f"exit code {attempt.exit_code}"
            verdict = NEVER if refusal(self._causes, pod) else COUNTED
            yield End(at, ordinal, verdict=verdict, why=f"failed: {attempt.msg or code}", is_due=is_due)


def _deleted_by_hand(main: Object, pods: Mapping[int, Object]) -> set[str]:
    """Returns the names of the pods of a job that are being deleted by hand."""
    if value_at(main, "spec", "suspend") or _ENDS & true_conditions(main).keys():
        return set()
    return taken.deleted_by_hand(main, pods.values())


def _is_started_again(main: Object, pod: Object) -> bool:
    """Returns True if a job replaces a pod that has failed."""
    if taken.disruption(pod) and taken.spares_disrupted(main):
        return True
    limit = value_at(main, "spec", "backoffLimitPerIndex") or 0
    return (count_of(annotation(pod, FAILURE_COUNT)) or 0) < limit


replay_of = functools.lru_cache(maxsize=1)(Replay)


def _newest_pods(facts: Facts, main: Object) -> dict[int, Object]:
    """Returns the newest pods of a job by replica."""
    own = sorted((pod for pod in facts.pods if owns(main, pod)), key=pod_order)
    return {replica_of(pod)[1]: pod for pod in own}


def _rules(facts: Facts) -> list[RoleRules]:
    """Returns the rules of all roles; a Job with further attempts restarts its replicas itself."""
    mains = {role_index(main): main for main in facts.mains}
    by_jobs = {role_index(m) for m in facts.mains if value_at(m, "spec", "backoffLimitPerIndex") != 0}
    rules: list[RoleRules] = []
    first = 0
    for number, role in enumerate(facts.roles):
        count = int(role.get("num_replicas") or 1)
        policy = str(role.get("retry_policy") or APPLICATION)
        # counted by the name of the role
        if count == 1 and policy == REPLICA:
            policy = ROLE
        if number in by_jobs:
            retries = 0
        else:
            retries = int(role.get("max_retries") or 0)
        rule = RoleRules(str(role["name"]), range(first, first + count), retries, policy)
        rules.append(with_order(rule, role, mains.get(number)))
        first += count
    return rules


def _lost_why(pod: Object | None, notes: list[Reason] | None) -> str:
    why = ""
    if pod is not None:
        why = taken.disruption(pod)
    if notes:
        why = notes[-1].text
    return f"was lost: {why or 'taken from its node'}"


def _lost_at(pod: Object | None) -> float:
    condition = {} if pod is None else true_conditions(pod).get("DisruptionTarget", {})
    at = time_of(condition.get("lastTransitionTime"))
    return at.timestamp() if at is not None else 0.0
