"""Decides which restart of a gang is due, from its objects; has no side effects.

The ends of the replicas of the newest attempts are replayed through the rules of local jobs
(:class:`torchx.supervisor.policy.Gang`), so every machine finds the same restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    count_of,
    indexes,
    label,
    owns,
    short,
    time_of,
    true_conditions,
)
from torchx.schedulers.kubernetes.api.shape import AnyOf, check
from torchx.schedulers.kubernetes.gang.attempts import attempt_of
from torchx.schedulers.kubernetes.gang.causes import refusal, rules_of
from torchx.schedulers.kubernetes.limits import requeues_of
from torchx.schedulers.kubernetes.manifests.names import ATTEMPT, RESTARTED, RETRIES
from torchx.schedulers.kubernetes.objects import CANCELLED, HELD, STOPPED, Facts, role_index
from torchx.schedulers.kubernetes.state import taken
from torchx.schedulers.kubernetes.state.attempts import FAILURE_COUNT, attempts_of, ended_by_us
from torchx.schedulers.kubernetes.state.replicas import replica_of, run_of
from torchx.scheduling.retry_rules import RetryRules
from torchx.specs.status import AppState
from torchx.supervisor.policy import APPLICATION, COUNTED, FREE, NEVER, Action, Gang, Retry, RoleRules

_SHAPE = {"roles": {"*": int}, "used": {"*": int}, "why": str, "at": AnyOf(int, float), "done": bool}


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
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or check(data, _SHAPE) or not {"roles", "used"} <= data.keys():
        return None
    counts = [*data["roles"].values(), *data["used"].values()]
    if any(count_of(role) is None for role in data["roles"]) or not all(0 <= n < 10**6 for n in counts):
        return None
    roles = {int(role): attempt for role, attempt in data["roles"].items()}
    restart = Restart(roles, data["used"], short(data.get("why")), float(data.get("at") or 0.0), True)
    return restart, bool(data.get("done"))


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
    if any(annotation(main, STOPPED) for main in facts.mains):
        return None
    return _begun(facts) or _planned(facts)


def _begun(facts: Facts) -> Restart | None:
    """Returns the restart that was begun and is not done."""
    for main in facts.mains:
        held = annotation(main, HELD) and attempt_of(main) > 1
        for key in (RESTARTED, *((RETRIES,) if held else ())):
            found = restart_from(annotation(main, key))
            if found is not None and not found[1]:
                return found[0]
    return None


def used_retries(facts: Facts) -> dict[str, int]:
    """Returns the retries that an application has used, by their scope."""
    used: dict[str, int] = {}
    for main in facts.mains:
        found = restart_from(annotation(main, RETRIES))
        for scope, count in found[0].used.items() if found is not None else ():
            used[scope] = max(count, used.get(scope, 0))
    return used


class End(NamedTuple):
    """The end of a replica in its newest attempt.

    Attributes:
        at: its time, seconds since the epoch.
        ordinal: the replica.
        succeeded: it has succeeded.
        stopped: torchx has ended it.
        verdict: how a failure is retried.
        why: the reason of a failure, as a phrase.
    """

    at: float
    ordinal: int
    succeeded: bool = False
    stopped: bool = False
    verdict: str = COUNTED
    why: str = ""


def _planned(facts: Facts) -> Restart | None:
    """Returns the restart that the rules of retries require."""
    roles = (facts.record.get("app") or {}).get("roles") or []
    cfg = facts.record.get("cfg") or {}
    rules = _rules(roles, facts, requeues_of(cfg))
    used: dict[str | int, int] = dict(used_retries(facts).items())
    backoff = cfg.get("retry_backoff")
    gang = Gang(
        rules,
        facts.fails_fast,
        float(backoff) if isinstance(backoff, (int, float)) else 1.0,
        used_retries=used,
    )
    gang.begin()
    for rule in rules:
        for ordinal in rule.replicas:
            gang.started(ordinal)
    first: tuple[Retry, End] | None = None
    for end in sorted(_ends(facts, rules)):
        actions: list[Action] = gang.exited(end.ordinal, end.succeeded, end.stopped, end.verdict)
        retry = next((action for action in actions if isinstance(action, Retry)), None)
        first = first or (None if retry is None else (retry, end))
    if first is None or not gang.restarting:
        return None
    numbers = {n for n, rule in enumerate(rules) if not gang.restarting.isdisjoint(rule.replicas)}
    mains = {role_index(main): main for main in facts.mains}
    attempts = {number: attempt_of(mains[number]) for number in sorted(numbers) if number in mains}
    retry, end = first
    name = next(rule.name for rule in rules if end.ordinal in rule.replicas)
    replica = end.ordinal - next(rule.replicas.start for rule in rules if end.ordinal in rule.replicas)
    why = f"{name}/{replica} {end.why}"
    scopes = {str(scope): count for scope, count in gang.used_retries.items()}
    return Restart(attempts, scopes, why, end.at + retry.delay)


def _rules(roles: list[Mapping[str, Any]], facts: Facts, requeues: int) -> list[RoleRules]:
    """Returns the rules of all roles; a Job with further attempts restarts its replicas itself.

    Args:
        roles: the roles in the record.
        facts: the application.
        requeues: the requeues after a time limit, which count as retries.
    """
    by_jobs = {role_index(m) for m in facts.mains if (m.get("spec") or {}).get("backoffLimitPerIndex") != 0}
    rules: list[RoleRules] = []
    first = 0
    for number, role in enumerate(roles):
        count = int(role.get("num_replicas") or 1)
        policy = str(role.get("retry_policy") or APPLICATION)
        retries = 0 if number in by_jobs else int(role.get("max_retries") or 0) + requeues
        rules.append(RoleRules(str(role["name"]), range(first, first + count), retries, policy))
        first += count
    return rules


def _ends(facts: Facts, rules: list[RoleRules]) -> Iterator[End]:
    """Yields the ends of replicas in the newest attempt of their roles."""
    causes = rules_of(facts.record.get("cfg") or {})
    for main in facts.mains:
        number = role_index(main)
        if number is None or number >= len(rules):
            continue
        own = sorted((pod for pod in facts.pods if owns(main, pod)), key=run_of)
        pods = {replica_of(pod)[1]: pod for pod in own}
        status = main.get("status") or {}
        completed, failed = (indexes(status.get(key)) for key in ("completedIndexes", "failedIndexes"))
        noted = taken.noted(main)
        by_hand = set()
        if not (main.get("spec") or {}).get("suspend"):
            by_hand = taken.deleted_by_hand(main, pods.values())
        rule = rules[number]
        for index, ordinal in enumerate(rule.replicas):
            if index in completed:
                yield End(0.0, ordinal, succeeded=True)
                continue
            pod: Object | None = pods.get(index)
            lost = rule.max_retries and (noted.get(index) or (pod is not None and _was_lost(pod)))
            if lost:
                yield End(_lost_at(pod), ordinal, verdict=FREE, why=_lost_why(pod, noted.get(index)))
            elif pod is not None:
                yield from _end_of(main, pod, ordinal, pod["metadata"]["name"] in by_hand, causes)
            elif index in failed:
                yield End(0.0, ordinal, why=f"failed: {taken.GONE}")


def _was_lost(pod: Object) -> bool:
    """Returns True if a replica was disrupted in this attempt."""
    return not ended_by_us(pod) and bool(taken.disruption(pod) or taken.count_before(pod))


def _lost_why(pod: Object | None, notes: list[str] | None) -> str:
    why = notes[-1] if notes else taken.disruption(pod) if pod is not None else ""
    return f"was lost: {why or 'taken from its node'}"


def _lost_at(pod: Object | None) -> float:
    condition = {} if pod is None else true_conditions(pod).get("DisruptionTarget", {})
    at = time_of(condition.get("lastTransitionTime"))
    return at.timestamp() if at is not None else 0.0


def _end_of(main: Object, pod: Object, ordinal: int, by_hand: bool, causes: RetryRules) -> Iterator[End]:
    """Yields the end of a pod, if it has ended."""
    if by_hand:
        yield End(0.0, ordinal, why=f"failed: {taken.BY_HAND}")
        return
    attempt = attempts_of(pod, 1)[-1]
    at = attempt.ended_at.timestamp() if attempt.ended_at is not None else 0.0
    if attempt.state is AppState.SUCCEEDED:
        yield End(at, ordinal, succeeded=True)
    elif ended_by_us(pod):
        if attempt.state is not AppState.RUNNING:
            yield End(at, ordinal, stopped=True)
    elif attempt.state is AppState.FAILED:
        limit = (main.get("spec") or {}).get("backoffLimitPerIndex") or 0
        if (count_of(annotation(pod, FAILURE_COUNT)) or 0) < limit:
            return  # the Job starts it again
        code = attempt.signal or f"exit code {attempt.exit_code}"
        verdict = NEVER if refusal(causes, pod) else COUNTED
        yield End(at, ordinal, verdict=verdict, why=f"failed: {attempt.msg or code}")
