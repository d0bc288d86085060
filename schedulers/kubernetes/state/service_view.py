"""The status of an application with services, or roles that start after others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    deleted,
    owns,
    time_of,
    true_conditions,
)
from torchx.schedulers.kubernetes.facts import Facts, is_ended_by_us, role_index
from torchx.schedulers.kubernetes.names import CANCELLED
from torchx.schedulers.kubernetes.state.attempts import live
from torchx.schedulers.kubernetes.state.jobs import REPLICA_FAILURES, JobFacts
from torchx.schedulers.kubernetes.state.replicas import replica_of
from torchx.schedulers.kubernetes.state.restarts import replay_of
from torchx.schedulers.kubernetes.state.services import (
    awaits,
    before_of,
    has_order,
    is_ready,
    is_released,
    names_of,
    ready_since,
    services_of,
)
from torchx.scheduling.observation import Replica, while_needed
from torchx.services import NO_LONGER_NEEDED
from torchx.services.probe import ServiceRule
from torchx.specs.status import AppState, AttemptStatus, is_terminal

STILL_RUN = "it has succeeded, and its services still run: `torchx wait` ends them"
BEING_ENDED = "it has succeeded, and its services are being ended"


class ServiceView:
    """The services of an application, as its status shows them; without any, nothing changes.

    Args:
        facts: the application.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._services: dict[int, ServiceRule] = {}
        self._names = names_of(facts)
        self._mains = {role_index(main): main for main in facts.mains}
        self._released = False
        self._early: set[tuple[int, int]] = set()
        if not has_order(facts):
            return
        self._services = services_of(facts)
        replay = replay_of(facts)
        self._released = replay.gang.released
        self._early = {
            (number, ordinal - rule.replicas.start)
            for number, rule in enumerate(replay.rules)
            for ordinal in rule.replicas
            if ordinal in replay.early
        }

    def jobs(self, jobs: list[JobFacts]) -> list[JobFacts]:
        """Returns the states of jobs, as far as they count for the application."""
        return [self._job(main, job) for main, job in zip(self._facts.mains, jobs, strict=True)]

    def _job(self, main: Object, job: JobFacts) -> JobFacts:
        if awaits(main) and not is_ended_by_us(main):
            return replace(job, state=AppState.PENDING, reason="")
        rule = self._services.get(job.role)
        if rule is None or (job.state is AppState.CANCELLED and not is_released(main)):
            return job
        if is_released(main) and not annotation(main, CANCELLED):
            if self._has_ended(main, job):
                state = AppState.SUCCEEDED
            else:
                state = AppState.RUNNING
            return replace(job, state=state, reason="")
        if not rule.critical:  # its failure is none of the application
            return replace(job, state=AppState.SUCCEEDED if is_terminal(job.state) else job.state, reason="")
        if job.state is AppState.SUCCEEDED and any(role == job.role for role, _ in self._early):
            return replace(job, state=AppState.FAILED, reason=REPLICA_FAILURES[0])
        return job

    def _has_ended(self, main: Object, job: JobFacts) -> bool:
        """Returns True if a service that is no longer needed has ended, with all its pods."""
        if not (is_terminal(job.state) or "Suspended" in true_conditions(main)):
            return False
        runs = (live(pod) for pod in self._facts.pods if owns(main, pod))
        return not (job.details.get("terminating") or any(runs))

    def message(self, state: AppState) -> str:
        """Returns why an application has not ended, although its ordinary roles have succeeded."""
        if state is not AppState.RUNNING or not self._released:
            return ""
        mains = [main for number, main in self._mains.items() if number in self._services]
        if all(map(is_released, mains)):
            return BEING_ENDED
        return STILL_RUN

    def replicas(self, statuses: list[Replica]) -> list[Replica]:
        """Returns the status of all replicas, with the ends of services and the waits for other roles."""
        numbers = {name: number for number, name in enumerate(self._names)}
        ready = {number: self._ready(number, rule) for number, rule in self._services.items()}
        return [self._replica(status, numbers.get(status.role, -1), ready) for status in statuses]

    def _replica(
        self, status: Replica, number: int, ready: Mapping[int, Mapping[int, datetime | None]]
    ) -> Replica:
        main = self._mains.get(number)
        if number in ready:
            status = replace(status, ready=status.id in ready[number])
        if main is not None and awaits(main) and status.state is AppState.SUBMITTED:
            msg = f"it starts after {', '.join(before_of(self._facts.roles[number]))}"
            waiting = AttemptStatus(1, AppState.PENDING, msg=msg)
            return replace(status, state=AppState.PENDING, attempts=[waiting])
        if number not in ready:
            return status
        released = main is not None and is_released(main)
        early = (number, status.id) in self._early
        last = len(status.attempts) - 1
        attempts = [
            _attempt(attempt, early=early or place < last, released=released and place == last)
            for place, attempt in enumerate(status.attempts)
        ]
        if attempts and attempts[-1].state is AppState.RUNNING and attempts[-1].ready_at is None:
            attempts[-1] = replace(attempts[-1], ready_at=ready[number].get(status.id))
        state = status.state
        if state is AppState.SUCCEEDED and attempts:
            state = attempts[-1].state
        return replace(status, state=state, attempts=attempts)

    def _ready(self, number: int, rule: ServiceRule) -> dict[int, datetime | None]:
        """Returns since when the replicas of a service are ready, of those that are."""
        pods = [pod for pod in self._pods(number) if is_ready(pod, rule)]
        return {replica_of(pod)[1]: time_of(ready_since(pod)) for pod in pods}

    def _pods(self, number: int) -> Iterator[Object]:
        main = self._mains.get(number)
        if main is not None:
            yield from (pod for pod in self._facts.pods if owns(main, pod) and not deleted(pod))

    def counting(self, statuses: Iterable[Replica]) -> list[Replica]:
        """Returns the replicas whose failure is one of the application."""
        return [status for status in statuses if self._counts(status)]

    def _counts(self, status: Replica) -> bool:
        rule: ServiceRule | None = None
        if status.role in self._names:
            rule = self._services.get(self._names.index(status.role))
        return rule is None or rule.critical


def _attempt(attempt: AttemptStatus, *, early: bool, released: bool) -> AttemptStatus:
    """Returns an attempt of a service; an end by itself is a failure, also with exit code 0."""
    by_itself = attempt.state is AppState.FAILED and attempt.exit_code is not None and not attempt.msg
    if by_itself or (attempt.state is AppState.SUCCEEDED and early):
        return while_needed(attempt)
    if attempt.state is AppState.CANCELLED and released:
        return replace(attempt, msg=NO_LONGER_NEEDED)
    return attempt
