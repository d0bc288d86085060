"""The runs of an application: their number, and the ends of replicas because of the time limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.objects import Object, annotation, indexes, owns, time_of, value_at
from torchx.schedulers.kubernetes.gang.records import restart_from
from torchx.schedulers.kubernetes.limits import DISRUPTIONS, rule_of
from torchx.schedulers.kubernetes.names import LATE, RETRIES
from torchx.schedulers.kubernetes.objects import Facts
from torchx.schedulers.kubernetes.state.attempts import ended_by_us, finished_after_notice
from torchx.schedulers.kubernetes.state.reasons import JobFacts
from torchx.schedulers.kubernetes.state.replicas import Member, replica_of
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.observation import Replica
from torchx.specs.status import AppState, EndCause, FirstFailure
from torchx.supervisor.policy import REQUEUED

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
