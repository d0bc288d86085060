"""Conformance tests of runs that an engine starts itself, as one object: a job array, an indexed job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from torchx.errors import TorchxError
from torchx.scheduling.base import AnyScheduler, ManyRuns, SubmitsMany
from torchx.specs.status import AppState, is_terminal
from torchx.testing.harness import Ability, Harness


class ManyConformance(Harness):
    """Tests of the ability to submit many runs, unless it is declared as lacking."""

    @pytest.fixture
    def many(self, scheduler: AnyScheduler) -> Iterator[SubmitsMany | None]:
        """The scheduler, if it has the ability; the runs of a test are deleted afterwards."""
        if self.without(scheduler, Ability.SUBMITS_MANY):
            yield None
            return
        assert isinstance(scheduler, SubmitsMany)
        self._runs: list[str] = []
        yield scheduler
        scheduler.cancel_many(self._runs, now=True)
        scheduler.delete_many(self._runs)

    def runs(self, *commands: str, key: str = "", **changes: Any) -> ManyRuns:
        """Returns runs with a number, an argument and a variable for each shell command."""
        name = self.own_name()
        apps = {
            2 * n + 1: self.app(self.role(each, env={"NUMBER": str(2 * n + 1)}), name=name)
            for n, each in enumerate(commands)
        }
        return ManyRuns(key or f"{name}-{os.urandom(4).hex()}", apps, self.cfg, **changes)

    def submit_runs(self, many: SubmitsMany, runs: ManyRuns) -> Mapping[int, str]:
        """Submits runs, which are deleted after the test."""
        assert many.rejects_many(runs) == ""
        ids = many.submit_many(runs)
        self._runs += ids.values()
        return ids

    def states(self, many: SubmitsMany, ids: Sequence[str]) -> list[AppState]:
        """Returns the states of runs."""
        found = many.glance_many(ids)
        return [found[app_id].state if app_id in found else AppState.UNKNOWN for app_id in ids]

    def until_all_ended(self, many: SubmitsMany, ids: Sequence[str]) -> list[AppState]:
        """Waits for the ends of runs, and returns their states."""

        def ended() -> list[AppState] | None:
            states = self.states(many, ids)
            if all(map(is_terminal, states)):
                return states
            return None

        return self.until(ended, f"{', '.join(ids)} have ended")

    def test_many_runs_are_applications(self, scheduler: AnyScheduler, many: SubmitsMany | None) -> None:
        """Each has its arguments and environment, its end and its log; a second call submits nothing."""
        if many is None:
            return
        runs = self.runs("echo one $NUMBER", 'echo two "$NUMBER"; exit 3')
        ids = self.submit_runs(many, runs)
        assert many.submit_many(runs) == ids, "the same key is the same object"
        one, two = ids[1], ids[3]
        assert self.until_all_ended(many, [one, two]) == [AppState.SUCCEEDED, AppState.FAILED]
        assert self.log(scheduler, one) == ["one 1\n"]
        assert self.log(scheduler, two) == ["two 3\n"]
        status = scheduler.describe(two)
        first = self.failure_of(status)
        assert status is not None
        assert (status.app_id, first.exit_code) == (two, 3)
        assert [role.name for role in status.roles] == ["worker"]
        assert {one, two} <= {line.app_id for line in scheduler.list(self.cfg)}
        assert set(many.usage_many([one, two])) <= {one, two}
        assert many.submit_many(runs) == ids, "ended runs are not submitted again"
        many.delete_many([one])
        assert list(many.glance_many([one, two])) == [two]
        assert not scheduler.exists(one)

    def test_a_limit_holds_and_runs_are_cancelled(
        self, scheduler: AnyScheduler, many: SubmitsMany | None
    ) -> None:
        if many is None:
            return
        ids = [*self.submit_runs(many, self.runs(*["exec sleep 600"] * 3, at_once=1)).values()]

        def running() -> list[str]:
            return [
                app_id
                for app_id, state in zip(ids, self.states(many, ids), strict=True)
                if state is AppState.RUNNING
            ]

        (first,) = self.until(running, "a run is running")
        scheduler.cancel(first)
        self.until(lambda: is_terminal(self.states(many, [first])[0]), "it has ended")
        (second,) = self.until(running, "another run is running")
        assert first != second
        many.limit_many(ids, 0)
        self.until(lambda: len(running()) == 2, "both others are running")
        many.cancel_many(ids)
        assert self.until_all_ended(many, ids) == [AppState.CANCELLED] * 3

    def test_runs_start_after_others(self, scheduler: AnyScheduler, many: SubmitsMany | None) -> None:
        """If the engine accepts conditions, it starts nothing if one is not met."""
        if many is None:
            return
        first = self.submit(scheduler, "exec sleep 600")
        runs = self.runs("true", after=[(first, "ok")])
        if many.rejects_many(runs):
            return
        ids = [*self.submit_runs(many, runs).values()]
        other = [*self.submit_runs(many, self.runs("true", after=[(first, "any")])).values()]
        self.until_state(scheduler, first, AppState.RUNNING)
        assert not any(map(is_terminal, self.states(many, ids + other)))
        scheduler.cancel(first)
        assert self.until_all_ended(many, other) == [AppState.SUCCEEDED]
        assert self.until_all_ended(many, ids) == [AppState.CANCELLED]
        status = many.glance_many(ids)[ids[0]]
        assert status.started_at is None, "it never started"

    def test_rejected_runs_leave_nothing(self, scheduler: AnyScheduler, many: SubmitsMany | None) -> None:
        if many is None:
            return
        runs = self.runs("true", "true\0")
        with pytest.raises(TorchxError):
            many.submit_many(runs)
        assert self.listed(scheduler, runs.first.name) == []
