"""Conformance tests of retries with random applications, compared with a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from torchx.scheduling.base import DescribeAppResponse, Scheduler
from torchx.specs.app import AppDef, RetryPolicy
from torchx.specs.status import AppState
from torchx.testing.harness import Ability, Harness
from torchx.testing.retry_model import Case, Outcome, exit_code, make_case, predict, script

PARTS = 5
ALL = range(150)
"""All cases."""


def few(each: int, policies: Sequence[RetryPolicy] = tuple(RetryPolicy)) -> list[int]:
    """Returns some cases with one policy, which every engine can restart.

    Args:
        each: the number of cases of each policy.
        policies: the policies.

    >>> len(few(2))
    6
    """
    plain = [seed for seed in ALL if make_case(seed).is_plain and make_case(seed).failures]
    of = {policy: [s for s in plain if make_case(s).roles[0].policy is policy] for policy in policies}
    return [seed for seeds in of.values() for seed in seeds[:each]]


class RetryCases(Harness):
    """Tests of random cases of retries; see :class:`Harness` for the other attributes to set.

    Attributes:
        retry_cases: the numbers of the cases, of :data:`ALL`.
    """

    retry_cases: ClassVar[Sequence[int]] = few(2)

    @pytest.mark.parametrize("part", range(PARTS))
    def test_retries_agree_with_the_model(self, scheduler: Scheduler[Any], part: int) -> None:
        seeds = list(self.retry_cases)[part::PARTS]
        for begin in range(0, len(seeds), PARTS):
            running = [
                (seed, *self._start(scheduler, make_case(seed))) for seed in seeds[begin : begin + PARTS]
            ]
            for seed, app_id, case, outcome in running:
                status = self.until_ended(scheduler, app_id)
                wanted, found = expected(outcome), described(status)
                if outcome.first is not None and Ability.EARLIER_LOGS in self.lacks:
                    # the engine may have removed the replicas that it has ended
                    found["attempts"] = {**wanted["attempts"], **found["attempts"]}
                assert found == wanted, f"case {seed}: {case}"

    def _start(self, scheduler: Scheduler[Any], case: Case) -> tuple[str, Case, Outcome]:
        outcome = predict(case)
        return self.submit(scheduler, self._app(case, outcome)), case, outcome

    def _app(self, case: Case, outcome: Outcome) -> AppDef:
        roles = []
        for number, role in enumerate(case.roles):
            each = [script(case, outcome, (number, id), self.begins_within) for id in range(role.replicas)]
            choices = " ".join(f"{id}) {command};;" for id, command in enumerate(each))
            roles.append(
                self.role(
                    f'case "$ID" in {choices} esac',
                    name=f"r{number}",
                    num_replicas=role.replicas,
                    max_retries=role.max_retries,
                    retry_policy=role.policy,
                    env={"ID": "${replica_id}"},
                )
            )
        return self.app(*roles)


def expected(outcome: Outcome) -> dict[str, Any]:
    """Returns the values of a status that a case leads to."""
    failed = None
    if outcome.first is not None:
        attempt = outcome.attempts[outcome.first]
        failed = (f"r{outcome.first[0]}", outcome.first[1], attempt, exit_code(outcome.first, attempt))
    attempts = {f"r{role}/{id}": count for (role, id), count in outcome.attempts.items()}
    return {"failed": failed, "attempts": attempts}


def described(status: DescribeAppResponse) -> dict[str, Any]:
    """Returns the same values of a status."""
    first = status.first_failure
    failed = None if first is None else (first.role, first.replica, first.attempt, first.exit_code)
    assert (failed is None) == (status.state is AppState.SUCCEEDED), f"{status.state}: {status.msg}"
    replicas = [replica for role in status.roles_statuses for replica in role.replicas]
    attempts = {f"{r.role}/{r.id}": r.attempts[-1].number for r in replicas if r.attempts}
    return {"failed": failed, "attempts": attempts}
