"""The replicas of an application on a cluster: which pods were theirs, and how they fare."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchx.schedulers.kubernetes_attempts import (
    FAILURE_COUNT,
    INDEX,
    RESTART_ATTEMPT,
    annotation,
    attempts_of,
    container_of,
    label,
    short,
)
from torchx.schedulers.kubernetes_client import Object
from torchx.schedulers.kubernetes_facts import CANCELLED, STOPPED, Facts, role_index
from torchx.schedulers.kubernetes_names import REPLICA_ID, ROLE_INDEX, ROLE_NAME
from torchx.schedulers.kubernetes_record import MOST_REPLICAS
from torchx.specs.status import NONE, AppState, AttemptStatus, ReplicaStatus, is_terminal

if TYPE_CHECKING:
    from torchx.schedulers.kubernetes_states import JobFacts


_INDEX = re.compile(r"\d{1,6}", re.ASCII)


@dataclass(frozen=True)
class Member:
    """One replica that an application has.

    Attributes:
        role: name of its role.
        role_index: the number of the role, from 0.
        replica: its id within the role.
        max_attempts: how many attempts it has in all.
    """

    role: str
    role_index: int
    replica: int
    max_attempts: int = 1


def members_of(facts: Facts, record: Mapping[str, Any]) -> list[Member]:
    """Returns all replicas that an application has, in the order of its roles.

    What was written down at its submission tells; else the jobs do.
    """
    roles = (record.get("app") or {}).get("roles") or []
    if not roles:
        roles = [
            {
                "name": label(main, ROLE_NAME) or main["metadata"]["name"],
                "num_replicas": min((main.get("spec") or {}).get("completions") or 1, MOST_REPLICAS),
            }
            for main in (facts.jobs or facts.mains)
        ]
    return [
        Member(str(role["name"]), number, replica, int(role.get("max_retries") or 0) + 1)
        for number, role in enumerate(roles)
        for replica in range(int(role.get("num_replicas") or 1))
    ]


def replica_of(pod: Object) -> tuple[int, int]:
    """Returns the number of the role and the replica that a pod is for."""
    index = label(pod, REPLICA_ID) or annotation(pod, INDEX) or label(pod, INDEX)
    return _count(label(pod, ROLE_INDEX)), _count(index)


def run_of(pod: Object) -> tuple[int, int, str, str]:
    """Returns what orders the pods of one replica: an older one comes first."""
    whole, own = label(pod, RESTART_ATTEMPT), annotation(pod, FAILURE_COUNT)
    metadata = pod["metadata"]
    created, name = str(metadata.get("creationTimestamp", "")), str(metadata.get("name", ""))
    return _count(whole), _count(own), created, name


def _count(text: str) -> int:
    """Returns the number that a label holds; 0 when it holds none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0


def number_of(pod: Object, place: int) -> int:
    """Returns the number of a pod's first attempt, from 1.

    Args:
        pod: the pod.
        place: how many pods of the same replica are known that are older.
    """
    whole, own, _, _ = run_of(pod)
    return max(whole, own, place) + 1


class Replicas:
    """The replicas of an application with their pods.

    Args:
        facts: what the cluster has of it.
        members: the replicas that it has.

    Attributes:
        members: the replicas that it has.
        started: something of it has run.
    """

    def __init__(self, facts: Facts, members: list[Member]) -> None:
        self.members = members
        self._pods: dict[tuple[int, int], list[Object]] = {}
        for pod in sorted(facts.pods, key=run_of):
            self._pods.setdefault(replica_of(pod), []).append(pod)
        self._marks = {
            role_index(main) or 0: mark
            for main in facts.mains
            for mark in (STOPPED, CANCELLED)
            if annotation(main, mark)
        }
        self._cancelled = any(annotation(main, CANCELLED) for main in facts.mains)
        self._events: dict[str, list[Object]] = {}
        for event in facts.events:
            self._events.setdefault(str((event.get("involvedObject") or {}).get("name")), []).append(event)
        self._refused = _refused(facts)
        self._partial = facts.partial
        self.started = any(_has_run(pod) for pod in facts.pods)

    def status(self, member: Member, job: JobFacts, whole: AppState) -> ReplicaStatus:
        """Returns how a replica fares.

        Args:
            member: which one.
            job: the job that it belongs to.
            whole: the state of the application.
        """
        pods = self._pods.get((member.role_index, member.replica), [])
        attempts: list[AttemptStatus] = []
        for place, pod in enumerate(pods):
            attempts += attempts_of(
                pod, number_of(pod, place), self._events.get(pod["metadata"].get("name"), ())
            )
        state = self._state(member, attempts, job, whole)
        refused = self._refused.get((member.role_index, member.replica))
        if refused and state is AppState.SUBMITTED:
            state = AppState.PENDING
            attempts = [AttemptStatus(1, state, msg=f"the cluster refuses its pod: {refused}")]
        newest = pods[-1] if pods else {}
        return ReplicaStatus(
            id=member.replica,
            state=state,
            role=member.role,
            hostname=str((newest.get("spec") or {}).get("nodeName") or ""),
            structured_error_msg=_error_file(newest),
            attempts=attempts,
            max_attempts=member.max_attempts,
            required=not self._partial
            and job.reason != "SuccessPolicy",  # it names those that have to succeed
        )

    def _state(
        self, member: Member, attempts: list[AttemptStatus], job: JobFacts, whole: AppState
    ) -> AppState:
        if member.replica in indexes(job.details.get("completedIndexes")):
            return AppState.SUCCEEDED
        if not attempts:
            if job.state is AppState.SUCCEEDED and not job.details.get("completedIndexes"):
                return AppState.SUCCEEDED
            if member.replica in indexes(job.details.get("failedIndexes")):
                return AppState.FAILED
            over = is_terminal(whole) or is_terminal(job.state) or job.ending
            if over or self._marks.get(member.role_index):
                return AppState.CANCELLED
            # of those that run well a listing asks for no pods
            running = self._partial and job.state is AppState.RUNNING
            return AppState.RUNNING if running else AppState.SUBMITTED
        state = attempts[-1].state
        over = is_terminal(whole) or is_terminal(job.state) or job.ending
        if state is AppState.FAILED and not over and attempts[-1].number < member.max_attempts:
            return AppState.PENDING
        if state in (AppState.PENDING, AppState.RUNNING) and is_terminal(whole):
            return AppState.CANCELLED
        return state


def _has_run(pod: Object) -> bool:
    status = container_of(pod)
    state = status.get("state") or {}
    ended = (state.get("terminated") or {}).get("startedAt")
    return bool(status.get("restartCount") or "running" in state or ended)


def _refused(facts: Facts) -> dict[tuple[int, int], str]:
    """Returns why the cluster makes no pod for a replica, as its newest warning tells."""
    roles = {job["metadata"]["name"]: role_index(job) or 0 for job in facts.jobs}
    found: dict[tuple[int, int], str] = {}
    for event in facts.events:
        match = re.search(r'pods "(\S+)-(\d+)-\w+" is forbidden: (.*)', str(event.get("message") or ""))
        if event.get("reason") == "FailedCreate" and match and match[1] in roles:
            found[roles[match[1]], _count(match[2])] = short(match[3])
    return found


def _error_file(pod: Object) -> str:
    """Returns the error file that a replica left as its last word, as JSON text."""
    ended = (container_of(pod).get("state") or {}).get("terminated") or {}
    text = str(ended.get("message") or "")
    if not ended.get("exitCode") or not text.startswith("{"):
        return NONE
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return NONE
    return text if isinstance(found, dict) and "message" in found else NONE


@functools.lru_cache(maxsize=64)
def indexes(text: str | None) -> frozenset[int]:
    """Reads a list of indexes such as ``0-2,5``; those that no replica has are passed over.

    >>> sorted(indexes("0-2,5")), sorted(indexes(None)), sorted(indexes("1,x,3-99999999999999,2"))
    ([0, 1, 2, 5], [], [1, 2])
    """
    found: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if _INDEX.fullmatch(first) and _INDEX.fullmatch(last) and len(found) < MOST_REPLICAS:
            found.update(range(int(first), min(int(last), MOST_REPLICAS) + 1))
    return frozenset(found)
