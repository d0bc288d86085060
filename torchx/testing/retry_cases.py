"""Conformance tests of retries with random applications, compared with a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from torchx.errors import UsageError
from torchx.json_limits import Object
from torchx.scheduling.base import AnyScheduler, DescribeAppResponse, Waits
from torchx.specs.app import AppDef, RetryPolicy
from torchx.specs.mounts import BindMount
from torchx.specs.status import AppState
from torchx.testing.harness import Ability, Harness, Meaning
from torchx.testing.retry_model import Case, Outcome, exit_code, make_case, predict, script, shuffled_case

ORDERED = 150
"""The first case whose failures have any order, which only replicas that share a folder can follow."""
ALL = range(ORDERED + 50)
"""All cases."""
LEAST = int(os.environ.get("TORCHX_RETRY_CASES", "0"))
"""The minimum number of cases on every scheduler; ``TORCHX_RETRY_CASES=200`` for all of them."""
PARTS = LEAST // 10 or 5
"""The number of tests of each scheduler, which share its cases."""


def case_of(seed: int) -> Case:
    """Returns a case by its number."""
    if seed < ORDERED:
        return make_case(seed)
    return shuffled_case(seed)


def sample(count: int) -> list[int]:
    """Returns cases with failures: by turns one of each policy, and two with several; then all others.

    Args:
        count: their number; more of them if `TORCHX_RETRY_CASES` is set.

    >>> [len({case_of(seed).policies for seed in sample(count)}) for count in (1, 4)]
    [1, 4]
    """
    kinds: dict[object, list[int]] = {(policy,): [] for policy in RetryPolicy}
    for seed in ALL:
        case = case_of(seed)
        if case.failures:
            kinds.setdefault(case.policies if len(case.policies) == 1 else seed < ORDERED, []).append(seed)
    turns = [seed for turn in range(len(ALL)) for seeds in kinds.values() for seed in seeds[turn : turn + 1]]
    return [*turns, *(seed for seed in ALL if seed not in turns)][: max(count, LEAST)]


class RetryCases(Harness):
    """Tests of random cases of retries; see :class:`Harness` for the other attributes to set.

    Attributes:
        retry_cases: the numbers of the cases, of :data:`ALL`.
        at_once: the number of cases that run at the same time.
        shares_files: replicas see the files of this machine, if need be through mounts. Otherwise each
            failure waits for ``begins_within`` seconds, which is slow.
    """

    retry_cases: ClassVar[Sequence[int]] = sample(10)
    at_once: ClassVar[int] = 5
    shares_files: ClassVar[bool] = False

    def expresses(self, case: Case) -> bool:
        """Returns True if the scheduler follows the model in a case; otherwise it rejects or notes it."""
        fields = (f"retry_policy={policy.value}" for policy in case.policies)
        return all(self.meaning(field) is Meaning.HONOURED for field in fields)

    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("part", range(PARTS))
    def test_retries_agree_with_the_model(self, scheduler: AnyScheduler, part: int, tmp_path: Path) -> None:
        seeds = list(self.retry_cases)[part::PARTS]
        seeds = [seed for seed in seeds if seed < ORDERED or self.shares_files]
        with ThreadPoolExecutor(self.at_once) as pool:
            reports = list(pool.map(lambda seed: self._compare(scheduler, seed, tmp_path), seeds))
        assert not any(reports), "\n".join(filter(None, reports))

    def _compare(self, scheduler: AnyScheduler, seed: int, folder: Path) -> str:
        """Runs a case; returns its differences from the model, or an empty string."""
        case = case_of(seed)
        outcome = predict(case)
        own = folder / str(seed)
        own.mkdir()
        app = self._app(case, outcome, str(own) if self.shares_files else "")
        if not self.expresses(case):
            self._is_reported(scheduler, app, f"case {seed}: {case}")
            return ""
        app_id = self.submit(scheduler, app)
        if isinstance(scheduler, Waits):
            scheduler.wait(app_id, self.patience)
        status = self.until_ended(scheduler, app_id)
        wanted, found = expected(outcome), described(status)
        if outcome.first is not None and Ability.EARLIER_LOGS in self.lacks:
            # the engine may have removed the replicas that it has ended
            found["attempts"] = {**wanted["attempts"], **found["attempts"]}
        scheduler.delete(app_id)
        self._submitted.remove(app_id)
        if found == wanted:
            return ""
        return f"case {seed} as {app_id}: {case}\n  expected {wanted}\n  found    {found}"

    def _is_reported(self, scheduler: AnyScheduler, app: AppDef, name: str) -> None:
        """Checks that a submission rejects an application, or has a note about its retries."""
        try:
            notes = scheduler.submit_dryrun(app, self.cfg).notes
        except UsageError as error:
            lines = [*str(error).splitlines(), *(error.hint or "").splitlines()]
            assert len(lines) <= 2, f"{name}: the error has more than two lines"
            notes = lines
        about = [note for note in notes if "restart" in note or "retr" in note]
        assert about, f"{name} is neither rejected nor noted, but has {notes}"

    def _app(self, case: Case, outcome: Outcome, folder: str) -> AppDef:
        mounted = folder and self.meaning("mounts") is Meaning.HONOURED
        roles = []
        for number, role in enumerate(case.roles):
            each = [script(outcome, (number, id), folder, self.begins_within) for id in range(role.replicas)]
            choices = " ".join(f"{id}) {command};;" for id, command in enumerate(each))
            roles.append(
                self.role(
                    f'case "$ID" in {choices} esac',
                    name=f"r{number}",
                    num_replicas=role.replicas,
                    max_retries=role.max_retries,
                    retry_policy=role.policy,
                    env={"ID": "${replica_id}"},
                    mounts=[BindMount(folder, folder)] if mounted else [],
                )
            )
        return self.app(*roles)


def expected(outcome: Outcome) -> Object:
    """Returns the values of a status that a case leads to."""
    failed = None
    if outcome.first is not None:
        attempt = outcome.attempts[outcome.first]
        failed = (f"r{outcome.first[0]}", outcome.first[1], attempt, exit_code(outcome.first, attempt))
    attempts = {f"r{role}/{id}": count for (role, id), count in outcome.attempts.items()}
    return {"failed": failed, "attempts": attempts}


def described(status: DescribeAppResponse) -> Object:
    """Returns the same values of a status."""
    first = status.first_failure
    if first is None:
        failed = None
    else:
        failed = (first.role, first.replica, first.attempt, first.exit_code)
    assert (failed is None) == (status.state is AppState.SUCCEEDED), f"{status.state}: {status.msg}"
    attempts = {f"{r.role}/{r.id}": r.attempts[-1].number for r in status.replicas if r.attempts}
    return {"failed": failed, "attempts": attempts}
