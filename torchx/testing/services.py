"""Conformance tests of services: the table of ends, the order of starts, readiness."""

from __future__ import annotations

import socket
from typing import Any, ClassVar

import pytest

from torchx.runner.changes import changes
from torchx.scheduling.base import AnyScheduler, DescribeAppResponse, LogChunks
from torchx.scheduling.logs import LogQuery
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.app_metadata import after, service
from torchx.specs.status import AppState, ReplicaStatus
from torchx.testing.harness import Ability, Harness, Meaning

UP = "echo is-up"
"""The command that makes a service ready by the probe `IS_UP`."""

IS_UP = "log:is-up"
HELD = "exec sleep 600"
ENDS = {"exit 0": "exit 0", "failure": "exit 3", "kill": "kill -KILL $$$$"}
"""The ends of a program by itself; macros turn two dollar signs into one."""

READY, STARTED = ("ready", "server"), ("started", "trainer")

RESULTS = {"exit 0": 0, "failure": 3, "kill": 128 + 9}


def replica_of(status: DescribeAppResponse, role: str) -> ReplicaStatus:
    """Returns the first replica of a role."""
    return next(each.replicas[0] for each in status.roles_statuses if each.role == role)


def states_of(status: DescribeAppResponse) -> dict[str, set[AppState]]:
    """Returns the states of the replicas of each role."""
    return {each.role: {AppState(r.state) for r in each.replicas} for each in status.roles_statuses}


def ready_of(status: DescribeAppResponse) -> dict[str, int | None]:
    """Returns the number of ready replicas of each role."""
    return {each.role: each.ready for each in status.roles_statuses}


def reasons_of(status: DescribeAppResponse) -> str:
    """Returns the messages of an application and of its first failure."""
    first = status.first_failure
    return f"{status.msg}; {first.msg if first is not None else ''}"


def free_port() -> int:
    """Returns a port that no program of this machine uses."""
    with socket.socket() as unused:
        unused.bind(("", 0))
        return int(unused.getsockname()[1])


class ServiceConformance(Harness):
    """Tests for schedulers that run services; see :class:`Harness` for the other attributes to set.

    Attributes:
        http_server: a command that serves HTTP on the port `$PORT`; empty if the image has none.
    """

    http_server: ClassVar[str] = 'python3 -m http.server "$PORT"'

    def server(self, script: str, ready: str = IS_UP, **settings: Any) -> Role:
        """Returns a service that runs a shell command."""
        options = {name: settings.pop(name) for name in ("within", "after", "critical") if name in settings}
        return service(self.role(script, name="server", **settings), ready, **options)

    def trainer(self, script: str, *, waits: bool = True, **settings: Any) -> Role:
        """Returns an ordinary role, which starts after the service."""
        role = self.role(script, name="trainer", **settings)
        if waits:
            return after(role, ["server"])
        return role

    def beginning(self, scheduler: AnyScheduler, app_id: str) -> tuple[DescribeAppResponse, set[AppState]]:
        """Waits for the end of an application; returns its status, and all states of its trainer."""
        seen: list[AppState] = []
        status = self.until_ended(
            scheduler, app_id, lambda status: seen.append(AppState(replica_of(status, "trainer").state))
        )
        return status, set(seen)

    # --- the table of ends -----------------------------------------------------------------------

    def test_service_that_ends_before_it_is_ready_has_failed(self, scheduler: AnyScheduler) -> None:
        apps = {end: self.app(self.server(ENDS[end]), self.trainer(HELD)) for end in ENDS}
        ids = {end: self.submit(scheduler, app) for end, app in apps.items()}
        for end, app_id in ids.items():
            status, seen = self.beginning(scheduler, app_id)
            self.check_failed_service(status, end)
            assert AppState.RUNNING not in seen, "the trainer starts when the service is ready"
            assert not replica_of(status, "trainer").attempts, "it has no attempt"

    def test_service_that_ends_while_it_is_needed_has_failed(self, scheduler: AnyScheduler) -> None:
        spare = dict.fromkeys(ENDS, self.begins_within)
        while spare:
            ids = {end: self.submit(scheduler, self._ending(end, seconds)) for end, seconds in spare.items()}
            for end, app_id in ids.items():
                status, seen = self.beginning(scheduler, app_id)
                self.check_failed_service(status, end)
                assert spare[end] < self.patience, (
                    f"the trainer never runs after the service is ready: {seen}"
                )
                spare[end] *= 2
                if AppState.RUNNING in seen:  # else the service ended too early
                    del spare[end]

    def _ending(self, end: str, seconds: float) -> AppDef:
        """Returns an application whose service ends some seconds after it is ready."""
        return self.app(self.server(f"{UP}; sleep {seconds}; {ENDS[end]}"), self.trainer(HELD))

    def check_failed_service(self, status: DescribeAppResponse, end: str) -> None:
        """Checks the status of an application whose service has ended by itself."""
        first = self.failure_of(status)
        assert (first.role, first.result) == ("server", RESULTS[end]), end
        assert states_of(status) == {"server": {AppState.FAILED}, "trainer": {AppState.CANCELLED}}, end
        if end == "exit 0":
            assert "a service ended by itself while it was needed" in reasons_of(status)

    @pytest.mark.parametrize("early", [True, False], ids=["before ready", "after ready"])
    def test_ordinary_roles_decide_on_the_result(self, scheduler: AnyScheduler, early: bool) -> None:
        server = self.server(HELD if early else f"{UP}; {HELD}", num_replicas=2)
        apps = {end: self.app(server, self.trainer(ENDS[end], waits=not early)) for end in ENDS}
        ids = {end: self.submit(scheduler, app) for end, app in apps.items()}
        for end, app_id in ids.items():
            status = self.until_ended(scheduler, app_id)
            if end == "exit 0":
                expected = AppState.SUCCEEDED
                assert (status.state, status.first_failure) == (expected, None), status.msg
            else:
                expected = AppState.FAILED
                first = self.failure_of(status)
                assert (first.role, first.result) == ("trainer", RESULTS[end]), end
            assert states_of(status) == {"server": {AppState.CANCELLED}, "trainer": {expected}}, end
            self.check_readiness(status, ready=not early)

    def check_readiness(self, status: DescribeAppResponse, *, ready: bool) -> None:
        """Checks when the replicas of the service were ready, and the events about it.

        Args:
            status: the status of an application that has ended, whose trainer waited for the service if
                this was ready.
            ready: the service was ready.
        """
        server = next(role for role in status.roles_statuses if role.role == "server")
        times = [attempt.ready_at for replica in server.replicas for attempt in replica.attempts[-1:]]
        assert [at is not None for at in times] == [ready] * len(times), f"ready at {times}"
        assert not ready or len(times) == len(server.replicas)
        events = [e for e in changes(lambda: status) if e is not None]
        kinds = [(event.kind, event.role) for event in events]
        first = [kind for kind in kinds if kind in (READY, STARTED)]
        assert first == [READY] * (len(times) if ready else 0) + [STARTED], kinds

    def test_a_service_that_ignores_term_is_killed(self, scheduler: AnyScheduler) -> None:
        if "grace_period" not in scheduler.run_opts():
            return
        deaf = self.server(f"trap '' TERM; {UP}; while true; do sleep 0.2; done")
        status = self.run(scheduler, self.app(deaf, self.trainer("true")), grace_period=1.0)
        assert status.state is AppState.SUCCEEDED, status.msg
        assert states_of(status)["server"] == {AppState.CANCELLED}

    def test_a_service_with_retries_is_started_again(self, scheduler: AnyScheduler) -> None:
        if Ability.ATTEMPT in self.lacks:
            return
        policy = RetryPolicy.ROLE
        if self.meaning(f"retry_policy={policy.value}") is not Meaning.HONOURED:
            policy = RetryPolicy.APPLICATION
        script = f'[ "$TORCHX_ATTEMPT" != 1 ] || exit 0; {UP}; {HELD}'
        server = self.server(script, max_retries=1, retry_policy=policy)
        status = self.succeeded(scheduler, self.app(server, self.trainer("true")))
        replica = replica_of(status, "server")
        assert (replica.attempt, replica.state) == (2, AppState.CANCELLED)

    def test_an_uncritical_service_may_end(self, scheduler: AnyScheduler) -> None:
        server = self.server("exit 3", critical=False)
        status = self.succeeded(scheduler, self.app(server, self.trainer("echo done")))
        assert status.first_failure is None
        assert self.log(scheduler, status.app_id, role="trainer") == ["done\n"]

    def test_cancel_ends_services_and_waiting_roles(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, self.app(self.server(HELD), self.trainer("true")))
        self.check_cancel(scheduler, app_id)
        status = self.until_ended(scheduler, app_id)
        assert states_of(status) == {"server": {AppState.CANCELLED}, "trainer": {AppState.CANCELLED}}

    # --- readiness and order ---------------------------------------------------------------------

    def test_ready_replicas_are_counted(self, scheduler: AnyScheduler) -> None:
        # one of them becomes ready
        late = self.server(f'[ "$ID" = 0 ] || {UP}; {HELD}', num_replicas=2, env={"ID": "${replica_id}"})
        both = self.server(f"{UP}; {HELD}", num_replicas=2)
        ids = [self.submit(scheduler, self.app(server, self.trainer(HELD))) for server in (late, both)]
        for app_id, count, trains in zip(ids, (1, 2), (AppState.PENDING, AppState.RUNNING), strict=True):

            def reached(app_id: str = app_id, count: int = count, trains: AppState = trains) -> bool:
                scheduler.reconcile(app_id)
                status = self.until_state(scheduler, app_id, AppState.RUNNING)
                shown = ready_of(status) == {"server": count, "trainer": None}
                return shown and states_of(status)["trainer"] == {trains}

            self.until(reached, f"{count} replicas of the service are ready, the trainer is {trains}")
            scheduler.cancel(app_id)
        for app_id in ids:
            self.check_ends(scheduler, app_id, AppState.CANCELLED)

    def test_not_ready_in_time_names_probe_and_its_answer(self, scheduler: AnyScheduler) -> None:
        # some engines report the output of a program, others its exit code
        failing = "cmd:sh -c 'echo exit 7; exit 7'"
        answers = {"log:never": "no line matched", failing: "exit 7", "tcp:9": ""}
        apps = {
            ready: self.app(self.server(HELD, ready, within="2s"), self.trainer("true")) for ready in answers
        }
        ids = {ready: self.submit(scheduler, app) for ready, app in apps.items()}
        for ready, app_id in ids.items():
            status, seen = self.beginning(scheduler, app_id)
            assert status.state is AppState.FAILED, f"{ready}: {status.state}"
            _, found, answer = reasons_of(status).partition(f"not ready within 2s: probe {ready}: ")
            assert found and answer.startswith(answers[ready]) and answer, reasons_of(status)
            assert states_of(status) == {"server": {AppState.FAILED}, "trainer": {AppState.CANCELLED}}
            assert AppState.RUNNING not in seen

    def test_the_probes_of_ports_and_programs(self, scheduler: AnyScheduler) -> None:
        if not self.http_server:
            return
        script = f'PORT="$TORCHX_PORT_WEB"; exec {self.http_server}'
        web = service(self.role(script, "web", port_map={"web": free_port()}), "http:web/")
        listens = script.replace("PORT_WEB", "PORT_RAW")
        raw = service(self.role(listens, "raw", port_map={"raw": free_port()}), "tcp:raw", after=["web"])
        probe = """cmd:sh -c 'test "$COLOUR" = "sea green"'"""
        green = self.server(HELD, probe, env={"COLOUR": "sea green"}, after=["raw"])
        status = self.succeeded(scheduler, self.app(self.trainer("echo done"), green, raw, web))
        assert self.log(scheduler, status.app_id, role="trainer") == ["done\n"]

    def test_role_waits_for_success_of_ordinary_role(self, scheduler: AnyScheduler) -> None:
        for code, state in ((0, AppState.SUCCEEDED), (3, AppState.FAILED)):
            prepare = self.role(f"exit {code}", "prepare", num_replicas=2)
            trainer = after(self.role("echo done", "trainer"), ["prepare"])
            status = self.run(scheduler, self.app(trainer, prepare))
            assert status.state is state, f"{status.state}: {status.msg}"
            attempts = len(replica_of(status, "trainer").attempts)
            assert attempts == (0 if code else 1), "it starts only after a success"

    def test_all_logs_are_followed_over_the_starts(self, scheduler: AnyScheduler) -> None:
        if Ability.LOG_CHUNKS in self.lacks:
            return
        assert isinstance(scheduler, LogChunks)
        server = self.server(f"sleep 1; {UP}; {HELD}")
        app_id = self.submit(scheduler, self.app(server, self.trainer("echo done", num_replicas=2)))
        followed = list(scheduler.log_chunks(app_id, LogQuery(follow=True)))
        lines = sorted((chunk.role, chunk.replica, chunk.data) for chunk in followed)
        assert lines == [("server", 0, b"is-up\n"), ("trainer", 0, b"done\n"), ("trainer", 1, b"done\n")]
        self.check_ends(scheduler, app_id, AppState.SUCCEEDED)
