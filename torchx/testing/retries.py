"""What holds for retries and for gangs: what is started again, what is ended, and how it is told."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from typing import Any

import pytest

from torchx.runner.api import Runner
from torchx.scheduling.base import DescribeAppResponse, Scheduler
from torchx.scheduling.logs import LogQuery
from torchx.specs.app import RetryPolicy
from torchx.specs.handles import make_app_handle
from torchx.specs.status import AppState, ReplicaStatus
from torchx.testing.harness import Ability, Harness, Meaning

AGAIN = {
    RetryPolicy.REPLICA: {("bad", 0)},
    RetryPolicy.ROLE: {("bad", 0), ("bad", 1)},
    RetryPolicy.APPLICATION: {("bad", 0), ("bad", 1), ("good", 0)},
}
"""Which replicas are started again when ``bad/0`` fails."""


def replicas_of(told: DescribeAppResponse) -> dict[tuple[str, int], ReplicaStatus]:
    """Returns all replicas by role and id."""
    return {(r.role, r.id): r for role in told.roles_statuses for r in role.replicas}


class RetryConformance(Harness):
    """Retries by all policies, and the end of the others; see :class:`Harness` for what to fill in."""

    @pytest.mark.parametrize("policy", list(RetryPolicy), ids=lambda policy: policy.value)
    def test_a_policy_says_what_is_started_again(
        self, scheduler: Scheduler[Any], policy: RetryPolicy
    ) -> None:
        if self.meaning(f"retry_policy={policy.value}") is not Meaning.HONOURED:
            return  # what happens in place of it is held by the test of the field
        settings = {"max_retries": 1, "retry_policy": policy}
        # the others have begun before it fails, and have not ended
        bad = f'echo try; test "$ID" != 0 && exec sleep 600; sleep {self.begins_within}; exit 7'
        roles = [
            self.role("echo try; exec sleep 600", name="good", **settings),
            self.role(bad, name="bad", num_replicas=2, env={"ID": "${replica_id}"}, **settings),
        ]
        told = self.run(scheduler, self.app(*roles))
        assert told.state is AppState.FAILED, told.msg
        first = told.first_failure
        assert first is not None, "it is not told what failed first"
        assert (first.role, first.replica, first.exit_code) == ("bad", 0, 7)
        assert first.attempt == 2, "the failure that counts is that of the last attempt"
        if Ability.EARLIER_LOGS in self.lacks:
            return
        expected = {key: 2 if key in AGAIN[policy] else 1 for key in replicas_of(told)}
        runs = {key: len(self.log(scheduler, told.app_id, key[1], role=key[0])) for key in expected}
        assert runs == expected, f"how often each replica was started by {policy.value}"

    def test_a_retry_may_save_it(self, scheduler: Scheduler[Any]) -> None:
        spare = self.begins_within
        while True:
            # an attempt that begins before a moment waits for it and fails, one that begins later is good
            moment = f"{int(time.time() + spare) + 1}"
            script = (
                'early() { test $(date +%s) -lt "$MOMENT"; }; '
                "early || exit 0; while early; do sleep 0.1; done; exit 5"
            )
            role = self.role(script, env={"MOMENT": moment}, max_retries=3)
            told = self.run(scheduler, self.app(role))
            assert told.state is AppState.SUCCEEDED, f"{told.state}: {told.msg}"
            assert told.first_failure is None, "what was made good by a retry is no failure"
            (replica,) = told.roles_statuses[0].replicas
            if replica.attempts and replica.attempts[-1].number > 1:
                break
            assert spare < self.patience, "no retry is told of: `attempts` of its replica has no second one"
            spare *= 2  # it began too late
        assert replica.attempts[-1].state is AppState.SUCCEEDED

    def test_retries_are_counted(self, scheduler: Scheduler[Any]) -> None:
        script = "echo try $TORCHX_ATTEMPT; exit 3"
        told = self.run(scheduler, self.app(self.role(script, max_retries=2)))
        assert told.state is AppState.FAILED
        assert told.first_failure is not None
        assert told.first_failure.attempt == 3, "three attempts: the first, and two retries"
        assert told.num_restarts in (2, -1), "the restarts of the application; -1 when not known"
        (replica,) = told.roles_statuses[0].replicas
        assert replica.max_attempts == 3
        if Ability.EARLIER_LOGS not in self.lacks:
            lines = self.log(scheduler, told.app_id)
            assert lines in (["try 1\n", "try 2\n", "try 3\n"], ["try \n"] * 3), "never a wrong number"

    def test_a_log_is_followed_over_retries(self, scheduler: Scheduler[Any]) -> None:
        app_id = self.submit(scheduler, self.app(self.role("echo try; sleep 1; exit 3", max_retries=1)))
        if Ability.FOLLOW in self.lacks:
            self.refuses(Ability.FOLLOW, lambda: self.log(scheduler, app_id, should_tail=True))
            return
        assert self.log(scheduler, app_id, should_tail=True) == ["try\n"] * 2

    def test_what_needs_no_retry_has_none(self, scheduler: Scheduler[Any]) -> None:
        told = self.run(scheduler, self.app(self.role("echo once", max_retries=5)))
        assert told.state is AppState.SUCCEEDED
        assert self.log(scheduler, told.app_id) == ["once\n"]

    def test_a_cancel_is_no_failure_to_retry(self, scheduler: Scheduler[Any]) -> None:
        app_id = self.submit(scheduler, self.app(self.role("echo on; exec sleep 600", max_retries=5)))
        self.until_state(scheduler, app_id, AppState.RUNNING)
        scheduler.cancel(app_id)
        assert self.until_ended(scheduler, app_id).state is AppState.CANCELLED

    # --- gangs -----------------------------------------------------------------------------------

    def test_one_failure_ends_all(self, scheduler: Scheduler[Any]) -> None:
        good = self.role("exec sleep 600", name="good", num_replicas=2)
        bad = self.role(f"sleep {self.begins_within}; exit 6", name="bad")
        app = self.app(good, bad)
        if Ability.GANG in self.lacks:
            assert scheduler.submit_dryrun(app, self.cfg).notes, "a note has to say that the others run on"
            return
        told = self.run(scheduler, app)
        assert told.state is AppState.FAILED
        states = {key: replica.state for key, replica in replicas_of(told).items()}
        assert states["bad", 0] is AppState.FAILED
        assert AppState.RUNNING not in states.values(), f"something runs on: {states}"
        assert states["good", 0] is not AppState.SUCCEEDED, "what was stopped has not succeeded"

    @pytest.mark.parametrize("by", ["run --log", "log -f"])
    def test_to_follow_the_log_is_enough_to_end_all(self, scheduler: Scheduler[Any], by: str) -> None:
        if {Ability.GANG, Ability.FOLLOW} & set(self.lacks):
            return
        server, client = self.role("exec sleep 600", name="server"), self.role("exit 6", name="client")
        app_id = self.submit(scheduler, self.app(server, client))
        with ThreadPoolExecutor(1) as pool:
            follow = self._attached if by == "run --log" else self._follower
            reading = pool.submit(follow, scheduler, app_id)
            try:
                reading.result(self.patience)
            except TimeoutError:
                scheduler.cancel(app_id)  # else the reader reads on
                pytest.fail(f"after {self.patience} s the server runs on, and is followed")
        told = scheduler.describe(app_id)
        assert told is not None
        assert (told.state, told.first_failure is not None) == (AppState.FAILED, True), told.msg
        assert told.first_failure is not None
        assert (told.first_failure.role, told.first_failure.exit_code) == ("client", 6)

    def _attached(self, scheduler: Scheduler[Any], app_id: str) -> None:
        """Does what an attached run does: it shows the log of all, then waits."""
        runner = Runner("conformance", {scheduler.backend: lambda session_name, **_: scheduler})
        handle = make_app_handle(scheduler.backend, "conformance", app_id)
        for _ in runner.log_chunks(handle, LogQuery(follow=True)):
            pass
        runner.wait(handle)

    def _follower(self, scheduler: Scheduler[Any], app_id: str) -> None:
        """Follows one replica."""
        for _ in scheduler.log_iter(app_id, "server", 0, should_tail=True):
            pass

    def test_one_that_has_succeeded_ends_nothing(self, scheduler: Scheduler[Any]) -> None:
        quick, slow = self.role("true", name="quick"), self.role("sleep 1; echo done", name="slow")
        told = self.run(scheduler, self.app(quick, slow))
        assert told.state is AppState.SUCCEEDED
        assert self.log(scheduler, told.app_id, role="slow") == ["done\n"]
