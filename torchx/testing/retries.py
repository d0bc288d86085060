"""Conformance tests of retries and gangs: restarts, ends, and their reports."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, TimeoutError

import pytest

from torchx.runner.api import Runner
from torchx.scheduling.base import AnyScheduler, DescribeAppResponse
from torchx.scheduling.logs import LogQuery
from torchx.specs.app import RetryPolicy
from torchx.specs.handles import make_app_handle
from torchx.specs.run_options import OptionValues
from torchx.specs.status import AppState, Member, ReplicaStatus
from torchx.testing.harness import Ability, Harness, Meaning

AGAIN = {
    RetryPolicy.REPLICA: {("bad", 0)},
    RetryPolicy.ROLE: {("bad", 0), ("bad", 1)},
    RetryPolicy.APPLICATION: {("bad", 0), ("bad", 1), ("good", 0)},
}
"""The replicas that each policy restarts after ``bad/0`` has failed."""


def replicas_of(description: DescribeAppResponse) -> dict[Member, ReplicaStatus]:
    """Returns all replicas by role and id."""
    return {(replica.role, replica.id): replica for replica in description.replicas}


class RetryConformance(Harness):
    """Tests of retries by all policies, and of gangs; see :class:`Harness` for the attributes to set."""

    @pytest.mark.parametrize("policy", list(RetryPolicy), ids=lambda policy: policy.value)
    def test_a_policy_selects_the_restarted_replicas(
        self, scheduler: AnyScheduler, policy: RetryPolicy
    ) -> None:
        if self.meaning(f"retry_policy={policy.value}") is not Meaning.HONOURED:
            return  # covered by the test of the field
        settings = {"max_retries": 1, "retry_policy": policy}
        # the others start before it fails, and run on
        shows = "echo try $TORCHX_ATTEMPT"
        bad = f'{shows}; test "$ID" != 0 && exec sleep 600; sleep {self.begins_within}; exit 7'
        roles = [
            self.role(f"{shows}; exec sleep 600", name="good", **settings),
            self.role(bad, name="bad", num_replicas=2, env={"ID": "${replica_id}"}, **settings),
        ]
        status = self.run(scheduler, self.app(*roles))
        first = self.failure_of(status)
        assert (first.role, first.replica, first.exit_code) == ("bad", 0, 7)
        assert first.attempt == 2, "the failure of the last attempt counts"
        if Ability.EARLIER_LOGS in self.lacks:
            return
        keys = replicas_of(status)
        expected = {key: self._tries(2 if key in AGAIN[policy] else 1) for key in keys}
        runs = {key: self.log(scheduler, status.app_id, key[1], role=key[0]) for key in keys}
        assert runs == expected, f"the starts of each replica by {policy.value}"

    def _tries(self, count: int) -> list[str]:
        """Returns the lines of a replica that prints the number of each attempt."""
        lacks = Ability.ATTEMPT in self.lacks
        return ["try \n" if lacks else f"try {number}\n" for number in range(1, count + 1)]

    def test_a_retry_can_succeed(self, scheduler: AnyScheduler) -> None:
        spare = self.begins_within
        while True:
            # an attempt that starts before a moment waits for it and fails, a later one succeeds
            moment = f"{int(time.time() + spare) + 1}"
            script = (
                'early() { test $(date +%s) -lt "$MOMENT"; }; '
                "early || exit 0; while early; do sleep 0.1; done; exit 5"
            )
            role = self.role(script, env={"MOMENT": moment}, max_retries=3)
            status = self.succeeded(scheduler, role)
            assert status.first_failure is None, "a failure before a successful retry does not count"
            (replica,) = status.replicas
            if replica.attempts and replica.attempts[-1].number > 1:
                break
            assert spare < self.patience, "no retry is reported: `attempts` of the replica has no second one"
            spare *= 2  # it started too late
        assert replica.attempts[-1].state is AppState.SUCCEEDED

    def test_a_line_without_its_end_ends_with_its_attempt(self, scheduler: AnyScheduler) -> None:
        role = self.role("echo line; printf part; exit 3", max_retries=1)
        status = self.run(scheduler, role)
        if Ability.EARLIER_LOGS in self.lacks:
            return
        lines = [line.rstrip("\n") for line in self.log(scheduler, status.app_id)]
        assert lines == ["line", "part", "line", "part"]

    def test_retries_are_counted(self, scheduler: AnyScheduler) -> None:
        script = "echo try $TORCHX_ATTEMPT; exit 3"
        status = self.run(scheduler, self.role(script, max_retries=2))
        assert self.failure_of(status).attempt == 3, "three attempts: the first, and two retries"
        assert status.num_restarts in (2, -1), "restarts of the application; -1 if unknown"
        (replica,) = status.replicas
        assert replica.max_attempts == 3
        if Ability.EARLIER_LOGS not in self.lacks:
            assert self.log(scheduler, status.app_id) == self._tries(3)

    def test_a_log_is_followed_over_retries(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, self.role("echo try; sleep 1; exit 3", max_retries=1))
        if Ability.FOLLOW in self.lacks:
            self.refuses(Ability.FOLLOW, lambda: self.log(scheduler, app_id, should_tail=True))
            return
        assert self.log(scheduler, app_id, should_tail=True) == ["try\n"] * 2

    def test_a_success_is_not_retried(self, scheduler: AnyScheduler) -> None:
        status = self.succeeded(scheduler, self.role("echo once", max_retries=5))
        assert self.log(scheduler, status.app_id) == ["once\n"]

    def test_a_cancelled_application_is_not_retried(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, self.role("echo on; exec sleep 600", max_retries=5))
        self.check_cancel(scheduler, app_id)

    # --- gangs -----------------------------------------------------------------------------------

    def test_one_failure_ends_all(self, scheduler: AnyScheduler) -> None:
        good = self.role("exec sleep 600", name="good", num_replicas=2)
        bad = self.role(f"sleep {self.begins_within}; exit 6", name="bad")
        app = self.app(good, bad)
        if Ability.GANG in self.lacks:
            assert scheduler.submit_dryrun(app, self.cfg).notes, "a note must say that the others run on"
            return
        status = self.run(scheduler, app)
        assert status.state is AppState.FAILED
        states = {key: replica.state for key, replica in replicas_of(status).items()}
        assert states["bad", 0] is AppState.FAILED
        assert AppState.RUNNING not in states.values(), f"something runs on: {states}"
        assert states["good", 0] is not AppState.SUCCEEDED, "a stopped replica has not succeeded"

    @pytest.mark.parametrize("by", ["run --log", "log -f"])
    def test_following_the_log_ends_all(self, scheduler: AnyScheduler, by: str) -> None:
        if {Ability.GANG, Ability.FOLLOW} & set(self.lacks):
            return
        server, client = self.role("exec sleep 600", name="server"), self.role("exit 6", name="client")
        app_id = self.submit(scheduler, self.app(server, client))
        with ThreadPoolExecutor(1) as pool:
            if by == "run --log":
                follow = self._attached
            else:
                follow = self._follower
            reading = pool.submit(follow, scheduler, app_id)
            try:
                reading.result(self.patience)
            except TimeoutError:
                scheduler.cancel(app_id)  # otherwise the reader would continue
                pytest.fail(f"the server is still running and followed after {self.patience} s")
        first = self.failure_of(scheduler.describe(app_id))
        assert (first.role, first.exit_code) == ("client", 6)

    def _attached(self, scheduler: AnyScheduler, app_id: str) -> None:
        """Follows the log of all replicas, then waits, as an attached run does."""
        runner = Runner("conformance", {scheduler.backend: lambda session_name, **_: scheduler})
        handle = make_app_handle(scheduler.backend, "conformance", app_id)
        for _ in runner.log_chunks(handle, LogQuery(follow=True)):
            pass
        runner.wait(handle)

    def _follower(self, scheduler: AnyScheduler, app_id: str) -> None:
        """Follows one replica."""
        for _ in scheduler.log_iter(app_id, "server", 0, should_tail=True):
            pass

    def test_a_success_ends_no_other_replica(self, scheduler: AnyScheduler) -> None:
        quick, slow = self.role("true", name="quick"), self.role("sleep 1; echo done", name="slow")
        status = self.succeeded(scheduler, self.app(quick, slow))
        assert self.log(scheduler, status.app_id, role="slow") == ["done\n"]

    # --- causes ----------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("options", "script", "attempts", "reason"),
        [
            ({}, "echo 'ImportError: no module'; exit 1", 1, "not retried: import-error"),
            (
                {"retry_on": ["4-6", "SIGKILL"]},
                "exit $((3 + TORCHX_ATTEMPT * 2))",
                2,
                "not retried: exit code 7 is not in retry_on",
            ),
            (
                {"no_retry_on": ["log:bad luck"]},
                "echo some bad luck today; exit 3",
                1,
                "not retried: log:bad luck",
            ),
            ({"no_retry_on": ["none"]}, "echo 'ImportError: no module'; exit 1", 3, ""),
        ],
        ids=["a cause that remains", "only these", "not this text", "all"],
    )
    def test_the_cause_decides_about_a_retry(
        self,
        scheduler: AnyScheduler,
        options: OptionValues,
        script: str,
        attempts: int,
        reason: str,
    ) -> None:
        if "retry_on" not in scheduler.run_opts():
            return
        # two replicas: with one, an engine may retry by itself
        app = self.app(self.role(script, num_replicas=2, max_retries=2))
        first = self.failure_of(self.run(scheduler, app, **options))
        assert first.attempt == attempts
        assert reason in first.msg, first.msg
        assert bool(first.msg) == bool(reason)
