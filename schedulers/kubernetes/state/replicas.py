"""Derives the status of replicas from their pods and jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from torchx.json_limits import MOST_REPLICAS
from torchx.json_shape import typed_at
from torchx.printable import joined
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    count_of,
    indexes,
    label,
    short,
    text_at,
    value_at,
)
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.manifests.attempt_number import earlier_attempts
from torchx.schedulers.kubernetes.names import (
    ATTEMPT,
    CANCELLED,
    JOB_COMPLETION_INDEX,
    RELEASED,
    REPLICA_ID,
    ROLE_INDEX,
    ROLE_NAME,
    STOPPED,
)
from torchx.schedulers.kubernetes.state import taken
from torchx.schedulers.kubernetes.state.attempts import (
    FAILURE_COUNT,
    RESTART_ATTEMPT,
    attempts_of,
    container_of,
    ended_container,
)
from torchx.schedulers.kubernetes.state.outcome import Outcome
from torchx.scheduling.observation import Replica
from torchx.specs.status import NONE, AppState, AttemptStatus, EndCause, Reason, is_terminal

if TYPE_CHECKING:
    from torchx.schedulers.kubernetes.state.jobs import JobFacts


class Member(NamedTuple):
    """A replica of an application.

    Attributes:
        role: name of its role.
        role_index: the number of the role, from 0.
        replica: its id within the role.
        max_attempts: maximum number of attempts.
    """

    role: str
    role_index: int
    replica: int
    max_attempts: int = 1

    @property
    def key(self) -> tuple[int, int]:
        """The number of its role, and its id."""
        return self.role_index, self.replica


def members_of(facts: Facts) -> list[Member]:
    """Returns all replicas of an application in the order of its roles, from its record, else its jobs."""
    roles = facts.roles
    if not roles:
        roles = [
            {
                "name": label(main, ROLE_NAME) or main["metadata"]["name"],
                "num_replicas": min(value_at(main, "spec", "completions") or 1, MOST_REPLICAS),
                "max_retries": value_at(main, "spec", "backoffLimitPerIndex"),
            }
            for main in (facts.jobs or facts.mains)
        ]
    return [
        Member(str(role["name"]), number, replica, int(role.get("max_retries") or 0) + 1)
        for number, role in enumerate(roles)
        for replica in range(int(role.get("num_replicas") or 1))
    ]


def replica_of(pod: Object) -> tuple[int, int]:
    """Returns the role number and the replica id of a pod; -1 for a pod without an id."""
    index = (
        label(pod, REPLICA_ID) or annotation(pod, JOB_COMPLETION_INDEX) or label(pod, JOB_COMPLETION_INDEX)
    )
    replica = count_of(index)
    return _count(label(pod, ROLE_INDEX)), -1 if replica is None else replica


def run_of(pod: Object) -> tuple[int, int, str, str]:
    """Returns a sort key for the pods of one replica, oldest first."""
    restarts = max(_count(label(pod, RESTART_ATTEMPT)), _count(label(pod, ATTEMPT)) - 1)
    own = annotation(pod, FAILURE_COUNT)
    metadata = pod["metadata"]
    created, name = str(metadata.get("creationTimestamp", "")), str(metadata.get("name", ""))
    return restarts, _count(own), created, name


def by_replica(pods: Iterable[Object]) -> dict[tuple[int, int], list[Object]]:
    """Returns pods, oldest first, by the number of their role and the id of their replica."""
    groups: dict[tuple[int, int], list[Object]] = {}
    for pod in sorted(pods, key=run_of):
        groups.setdefault(replica_of(pod), []).append(pod)
    return groups


def _count(text: str) -> int:
    """Returns the number in a label, or 0."""
    return count_of(text) or 0


def number_of(pod: Object, place: int) -> int:
    """Returns the number of a pod's first attempt, from 1.

    Args:
        pod: the pod.
        place: the number of known older pods of the replica.
    """
    whole, own, _, _ = run_of(pod)
    containers = value_at(pod, "spec", "containers") or []
    earlier = max((earlier_attempts(container.get("env") or []) for container in containers), default=0)
    return max(whole, earlier + own, place) + 1


class Replicas:
    """The replicas of an application with their pods.

    Args:
        facts: the objects of the application.
        members: its replicas.
        now: seconds since the epoch.
        noted: its noted outcome.
        never_retried: the replicas whose last failure is not retried, by the number of their role and id.

    Attributes:
        members: its replicas.
        noted: its noted outcome.
        unproven: the replicas of which nothing but a failure is known, as their pods were removed.
        started: whether a pod has run.
        restarting: the numbers of the roles that are about to start again as a whole.
    """

    def __init__(
        self,
        facts: Facts,
        members: list[Member],
        now: float,
        noted: Outcome,
        never_retried: Collection[tuple[int, int]] = (),
    ) -> None:
        self.members, self._now, self._nodes = members, now, facts.nodes
        self.noted, self._never_retried = noted, never_retried
        self.unproven: set[tuple[str, int]] = set()
        self._pods = by_replica(facts.pods)
        self._marks = {
            _role(main): mark
            for main in facts.mains
            for mark in (RELEASED, STOPPED, CANCELLED)
            if annotation(main, mark)
        }
        self._cancelled = any(annotation(main, CANCELLED) for main in facts.mains)
        self._events: dict[str, list[Object]] = {}
        for event in facts.events:
            self._events.setdefault(str(value_at(event, "involvedObject", "name")), []).append(event)
        self._refused = _refused(facts)
        self._notes = _notes(facts.mains)
        self._noted_before = _notes(facts.earlier)
        self._suspended = {_role(main) for main in facts.mains if value_at(main, "spec", "suspend")}
        self._disruptions: dict[tuple[int, int], str] = {}
        self._by_hand = {
            name
            for main in facts.mains
            for name in taken.deleted_by_hand(main, [p for p in facts.pods if _is_of(main, p)])
        }
        self._single_jobs = facts.kind == "job"
        self._partial = facts.partial
        self.restarting: set[int] = set()
        self.started = any(_has_run(pod) for pod in facts.pods)

    def status(self, member: Member, job: JobFacts, whole: AppState) -> Replica:
        """Returns the status of a replica.

        Args:
            member: which one.
            job: the job that it belongs to.
            whole: the state of the application.
        """
        key = member.key
        pods = self._pods.get(key, [])
        no_reason = self._only_by_hand(member, job, whole)
        attempts: list[AttemptStatus] = []
        for place, pod in enumerate(pods):
            events = self._events.get(pod["metadata"].get("name"), ())
            by_hand = no_reason and str(pod["metadata"].get("name")) in self._by_hand
            attempts += attempts_of(pod, number_of(pod, place), events, by_hand=by_hand, now=self._now)
            self._disruptions[key] = self._taken_now(pod, by_hand)
        state = self._state(member, attempts, job, whole)
        if attempts and state is AppState.RUNNING:
            attempts[-1] = self._with_node_state(pods[-1], attempts[-1])
        elif not attempts:
            state, attempts = self._without_pod(member, state)
        newest = pods[-1] if pods else {}
        return Replica(
            member.role,
            member.replica,
            attempts,
            state,
            taken.node_of(newest),
            member.max_attempts,
            required=not self._partial and job.reason != "SuccessPolicy",  # which names the required replicas
            error_file=_error_file(newest),
        )

    def newest_pod(self, member: Member) -> Object | None:
        """Returns the newest pod of a replica, or None without one."""
        pods = self._pods.get(member.key)
        if pods:
            return pods[-1]
        return None

    def _only_by_hand(self, member: Member, job: JobFacts, whole: AppState) -> bool:
        """Returns True if neither torchx nor the Job has a reason to delete pods of a replica."""
        due = self._marks.get(member.role_index) or self._cancelled or member.role_index in self._suspended
        done = member.replica in indexes(job.details.get("completedIndexes"))
        return self._single_jobs and not (_is_over(job, whole) or due or done)

    def _with_node_state(self, pod: Object, attempt: AttemptStatus) -> AttemptStatus:
        """Returns a running attempt, with a message if its node is lost."""
        lost = self._lost_node(pod)
        return replace(attempt, msg=joined(lost, attempt.msg))

    def _without_pod(self, member: Member, state: AppState) -> tuple[AppState, list[AttemptStatus]]:
        """Returns the state and the attempt of a replica without a pod."""
        key = member.key
        notes, failure = self._notes.get(key), self.noted.failure
        if failure is not None and (failure.role, failure.replica) == (member.role, member.replica):
            number, code, signal = failure.attempt, failure.exit_code, failure.signal
            return AppState.FAILED, [
                AttemptStatus(number, AppState.FAILED, code, signal, msg=failure.msg, cause=failure.cause)
            ]
        if state is AppState.FAILED:
            if notes:
                return state, [AttemptStatus(1, state, msg=notes[-1].text, cause=notes[-1].cause)]
            self.unproven.add((member.role, member.replica))
            return state, [AttemptStatus(1, state, msg=taken.GONE, cause=EndCause.REMOVED)]
        refused = self._refused.get(key)
        if state is not AppState.SUBMITTED:
            return state, []
        if refused:
            msg = f"the cluster rejects its pod: {refused}"
        elif notes:
            msg = f"{notes[-1].text}; a new pod will follow"
        else:
            return state, []
        return AppState.PENDING, [AttemptStatus(1, AppState.PENDING, msg=msg)]

    def taken_away(self, over: bool) -> str:
        """Returns the disrupted replicas and the reasons in one line, or an empty string.

        Args:
            over: the application has ended: ignore current disruptions.
        """
        if is_terminal(self.noted.state):  # its message has them
            return ""
        reasons: dict[str, str] = {}
        for member in self.members:
            key = member.key
            pods = self._pods.get(key, [])
            if over:
                news = ""
            else:
                news = self._disruptions.get(key, "")
            before = max((taken.count_before(pod) for pod in pods), default=0)
            again = "taken from its node once"
            if before > 1:
                again = f"taken from its node {before} times"
            notes = self._notes.get(key) or self._noted_before.get(key)
            reason = news or (notes or [Reason(again if before else "")])[-1].text
            if reason:
                reasons[f"{member.role}/{member.replica}"] = reason
        if not reasons:
            return ""
        name, reason = next(iter(reasons.items()))
        more = ""
        if len(reasons) > 1:
            more = f" (and {len(reasons) - 1} more replicas)"
        return f"{name}: {reason}{more}"

    def _lost_node(self, pod: Object) -> str:
        events = self._events.get(str(pod["metadata"].get("name")), ())
        return taken.lost_node(pod, self._nodes, events, self._now)

    def _taken_now(self, pod: Object, by_hand: bool) -> str:
        return self._lost_node(pod) or taken.taken_away(pod, by_hand=by_hand)

    def _state(
        self, member: Member, attempts: list[AttemptStatus], job: JobFacts, whole: AppState
    ) -> AppState:
        """Returns the state of a replica from its attempts, its job and the application."""
        if member.role_index in self.restarting and attempts and is_terminal(attempts[-1].state):
            return AppState.PENDING
        if member.replica in indexes(job.details.get("completedIndexes")):
            return AppState.SUCCEEDED
        if not attempts:
            return self._state_without_attempt(member, job, whole)
        state = attempts[-1].state
        if state is AppState.FAILED and attempts[-1].number < member.max_attempts:
            return self._state_with_retries_left(member, job, whole)
        if state in (AppState.PENDING, AppState.RUNNING) and is_terminal(whole):
            return AppState.CANCELLED
        return state

    def _state_with_retries_left(self, member: Member, job: JobFacts, whole: AppState) -> AppState:
        """Returns the state of a replica whose last attempt has failed."""
        failed = indexes(job.details.get("failedIndexes"))
        if not _is_over(job, whole):
            refused = member.replica in failed or member.key in self._never_retried
            if refused:
                return AppState.FAILED
            return AppState.PENDING
        # the Job may have ended because of another replica, and have deleted the next pod of this one
        if failed and member.replica not in failed:
            return AppState.CANCELLED
        return AppState.FAILED

    def _state_without_attempt(self, member: Member, job: JobFacts, whole: AppState) -> AppState:
        """Returns the state of a replica that has no pod, or none that was read."""
        stopped = bool(self._marks.get(member.role_index))
        has_failed = member.replica in indexes(self.noted.failed.get(member.role))
        if not stopped or member.key in self._notes:
            has_failed = has_failed or member.replica in indexes(job.details.get("failedIndexes"))
        if job.state is AppState.SUCCEEDED and not self._single_jobs:  # others have no indexes
            state = AppState.SUCCEEDED
        elif has_failed:
            state = AppState.FAILED
        elif _is_over(job, whole) or stopped:
            state = AppState.CANCELLED
        elif self._partial and job.state is AppState.RUNNING:  # listings read no pods of running replicas
            state = AppState.RUNNING
        else:
            state = AppState.SUBMITTED
        return state


def _is_over(job: JobFacts, whole: AppState) -> bool:
    """Returns True if an application or a job of it has ended, or is ending."""
    return is_terminal(whole) or is_terminal(job.state) or job.ending


def _role(thing: Object) -> int:
    return _count(label(thing, ROLE_INDEX))


def _notes(jobs: list[Object]) -> dict[tuple[int, int], list[Reason]]:
    """Returns the noted disruptions of replicas."""
    return {(_role(job), index): why for job in jobs for index, why in taken.noted(job).items()}


def _is_of(main: Object, pod: Object) -> bool:
    """Returns True if a pod is of the role and the attempt of an object."""
    return _role(pod) == _role(main) and label(pod, ATTEMPT) == label(main, ATTEMPT)


def _has_run(pod: Object) -> bool:
    status = container_of(pod)
    state = status.get("state") or {}
    ended = value_at(state, "terminated", "startedAt")
    return bool(status.get("restartCount") or "running" in state or ended)


def _refused(facts: Facts) -> dict[tuple[int, int], str]:
    """Returns why the cluster rejects the pod of each replica, from the newest warning."""
    roles = {job["metadata"]["name"]: _role(job) for job in facts.jobs}
    refusals: dict[tuple[int, int], str] = {}
    for event in facts.events:
        match = re.search(r'pods "(\S+)-(\d+)-\w+" is forbidden: (.*)', text_at(event, "message"))
        if event.get("reason") == "FailedCreate" and match and match[1] in roles:
            refusals[roles[match[1]], _count(match[2])] = short(match[3])
    return refusals


def _error_file(pod: Object) -> str:
    """Returns the error file in the termination message of a replica, as JSON text."""
    ended = ended_container(pod)
    text = text_at(ended, "message")
    if not ended.get("exitCode") or not text.startswith("{"):
        return NONE
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return NONE
    if "message" in typed_at(data, dict):
        return text
    return NONE
