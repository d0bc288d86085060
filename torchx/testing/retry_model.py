"""A model of retries, independent of the rules that schedulers use: failures in, attempts and the end out."""

from __future__ import annotations

import random
import shlex
from dataclasses import dataclass
from typing import NamedTuple

from torchx.specs.app import RetryPolicy

Key = tuple[int, int]
"""A replica: the number of its role, and its id."""
BLOCKS = "exec sleep 600"


@dataclass(frozen=True)
class RoleCase:
    """A role of a case.

    Attributes:
        replicas: the number of its replicas.
        policy: the scope of its restarts.
        max_retries: the number of its retries.
    """

    replicas: int
    policy: RetryPolicy
    max_retries: int


@dataclass(frozen=True)
class Case:
    """An application, and the replicas that fail, one after the other.

    Attributes:
        roles: its roles.
        failures: the replicas that fail; a failure without retries left is the last one.
    """

    roles: tuple[RoleCase, ...]
    failures: tuple[Key, ...]

    @property
    def replicas(self) -> list[Key]:
        """All replicas."""
        return [(number, id) for number, role in enumerate(self.roles) for id in range(role.replicas)]

    @property
    def policies(self) -> tuple[RetryPolicy, ...]:
        """The policies of its roles."""
        return tuple(policy for policy in RetryPolicy if policy in {role.policy for role in self.roles})


class Outcome(NamedTuple):
    """The predicted end of a case.

    Attributes:
        attempts: the number of attempts of each replica.
        failed: the attempts of each replica that fail, with the attempts of all replicas at that moment.
        first: the replica that fails without retries left, or None if all succeed.
    """

    attempts: dict[Key, int]
    failed: dict[Key, dict[int, dict[Key, int]]]
    first: Key | None


def predict(case: Case) -> Outcome:
    """Returns the outcome of a case.

    >>> role = RoleCase(2, RetryPolicy.ROLE, 1)
    >>> predict(Case((role,), ((0, 1),))).attempts
    {(0, 0): 2, (0, 1): 2}
    >>> predict(Case((role,), ((0, 1),))).failed
    {(0, 0): {}, (0, 1): {1: {(0, 0): 1, (0, 1): 1}}}
    >>> predict(Case((role,), ((0, 1), (0, 0)))).first
    (0, 0)
    """
    attempts = dict.fromkeys(case.replicas, 1)
    failed: dict[Key, dict[int, dict[Key, int]]] = {key: {} for key in case.replicas}
    used: dict[object, int] = {}
    for key in case.failures:
        role = case.roles[key[0]]
        failed[key][attempts[key]] = dict(attempts)
        scope, members = {
            RetryPolicy.REPLICA: (key, [key]),
            RetryPolicy.ROLE: (key[0], [other for other in case.replicas if other[0] == key[0]]),
            RetryPolicy.APPLICATION: ("all", case.replicas),
        }[role.policy]
        if used.get(scope, 0) >= role.max_retries:
            return Outcome(attempts, failed, key)
        used[scope] = used.get(scope, 0) + 1
        for member in members:
            attempts[member] += 1
    return Outcome(attempts, failed, None)


def exit_code(key: Key, attempt: int) -> int:
    """Returns the exit code of a failure, which names replica and attempt."""
    return 10 + 50 * key[0] + 10 * key[1] + attempt


def script(outcome: Outcome, key: Key, folder: str, pause: float) -> str:
    """Returns the shell command of a replica.

    It fails in the attempts of the model, succeeds in its last one, and blocks in all others.

    Args:
        outcome: the outcome of its case.
        key: the replica.
        folder: a folder that all replicas see; it gets a file for each attempt, and a replica fails when the
            attempts of all replicas have begun. Empty if they share none.
        pause: without a folder, seconds before a failure, so that the others have begun.
    """
    ends = [
        f"{n}) {_until_begun(others, folder) if folder else f'sleep {pause}'}; exit {exit_code(key, n)};;"
        for n, others in outcome.failed[key].items()
    ]
    last = outcome.attempts[key]
    if outcome.first is None and last not in outcome.failed[key]:
        ends.append(f"{last}) exit 0;;")
    begin = ""
    if folder:
        begin = f': > {shlex.quote(folder)}/{key[0]}-{key[1]}-"$TORCHX_ATTEMPT"; '
    return f'{begin}case "$TORCHX_ATTEMPT" in {" ".join(ends)} *) {BLOCKS};; esac'


def _until_begun(attempts: dict[Key, int], folder: str) -> str:
    files = (f"{shlex.quote(folder)}/{role}-{id}-{attempt}" for (role, id), attempt in attempts.items())
    return f"until {' && '.join(f'[ -e {file} ]' for file in files)}; do sleep 0.05; done"


def shuffled_case(seed: int) -> Case:
    """Returns a random case whose failures have any order, for replicas that share a folder.

    >>> shuffled_case(1) == shuffled_case(1)
    True
    """
    chance = random.Random(seed)  # noqa: S311  # not a secret
    roles = tuple(
        RoleCase(chance.randint(1, 2), chance.choice(list(RetryPolicy)), chance.randint(1, 2))
        for _ in range(chance.randint(1, 3))
    )
    replicas = Case(roles, ()).replicas
    case = Case(roles, tuple(chance.choice(replicas) for _ in range(chance.randint(2, 5))))
    return Case(roles, case.failures[: sum(map(len, predict(case).failed.values()))])


def make_case(seed: int) -> Case:
    """Returns a random case.

    Failures of applications come first, then those of roles, then those of replicas: so each of them happens
    in an attempt that begins after the failures before it, and no order depends on time, even if the replicas
    share no folder.
    """
    chance = random.Random(seed)  # noqa: S311  # not a secret
    policies = list(RetryPolicy)
    if seed % 3:  # two of three have one policy
        policies = [policies[seed // 3 % len(policies)]]
    roles = tuple(
        RoleCase(chance.randint(1, 3), chance.choice(policies), chance.randint(0, 3))
        for _ in range(chance.randint(1, 2))
    )
    if len(policies) == 1:
        roles = tuple(RoleCase(role.replicas, role.policy, roles[0].max_retries) for role in roles)
    failures: list[Key] = []
    for policy in (RetryPolicy.APPLICATION, RetryPolicy.ROLE, RetryPolicy.REPLICA):
        numbers = [number for number, role in enumerate(roles) if role.policy is policy]
        for _ in range(chance.randint(1, 3) if numbers else 0):
            number = chance.choice(numbers)
            failures.append((number, chance.randrange(roles[number].replicas)))
    return _possible(Case(roles, tuple(failures)))


def _possible(case: Case) -> Case:
    """Returns a case without failures that would not happen in a certain order.

    A failure without retries left ends the others at any moment, so it is the only one after the restarts of
    applications; restarts of the application with fewer retries than another role are not counted twice.
    """
    whole = [key for key in case.failures if case.roles[key[0]].policy is RetryPolicy.APPLICATION]
    outcome = predict(case)
    if outcome.first is None:
        return case
    last = case.failures[sum(map(len, outcome.failed.values())) - 1]
    if case.roles[last[0]].policy is RetryPolicy.APPLICATION:
        return Case(case.roles, tuple(whole[: sum(map(len, outcome.failed.values()))]))
    same = case.failures[: sum(map(len, outcome.failed.values()))]
    role = case.roles[last[0]]
    if role.policy is RetryPolicy.ROLE:
        kept = [key for key in same if key in whole or key[0] == last[0]]
    else:
        kept = [key for key in same if key in whole or key == last]
    return Case(case.roles, tuple(kept))
