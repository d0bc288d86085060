"""Conformance tests of every scheduler: life cycle, results, cancel, delete, bad input.

A scheduler's tests are one class::

    class TestMine(SchedulerConformance):
        factory = staticmethod(create_my_scheduler)
        image = "busybox"
        fields = {"mounts": Meaning.REJECTED}
        lacks = {Ability.STREAMS}
"""

from __future__ import annotations

import copy
import dataclasses
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from torchx.errors import TorchxError, UsageError
from torchx.json_limits import Object
from torchx.scheduling.base import AnyScheduler, Glances, ListAppResponse, Selects
from torchx.scheduling.query import AppQuery
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.app_metadata import note_of, set_tags
from torchx.specs.macro import macros
from torchx.specs.mounts import BindMount
from torchx.specs.resources import Resource
from torchx.specs.run_options import OptionValues
from torchx.specs.status import AppState, is_terminal
from torchx.testing.changes import recorded_changes
from torchx.testing.fields import FieldConformance
from torchx.testing.harness import NAMED, Ability, Meaning
from torchx.testing.logs import UNKNOWN_APP, LogConformance
from torchx.testing.retries import RetryConformance


def describe_state(factory: Callable[[], AnyScheduler], app_id: str) -> str:
    """Returns the name of an application's state; called in another process."""
    status = factory().describe(app_id)
    if status is None:
        return "not known"
    return status.state.name


def cancel(factory: Callable[[], AnyScheduler], app_id: str) -> None:
    """Cancels an application; called in another process."""
    factory().cancel(app_id)


def submit(factory: Callable[[], AnyScheduler], app: AppDef, cfg: OptionValues) -> str:
    """Submits an application; called in another process, which then ends."""
    return factory().submit(app, cfg)


def log_of(factory: Callable[[], AnyScheduler], app_id: str) -> list[str]:
    """Returns the log of the first worker; called in another process."""
    return list(factory().log_iter(app_id, "worker", 0))


class SchedulerConformance(LogConformance, RetryConformance, FieldConformance):
    """The tests of every scheduler, with those of logs, retries and fields.

    See :class:`Harness` and :class:`FieldConformance` for the attributes to set.
    """

    # --- life cycle ------------------------------------------------------------------------------

    def test_an_application_runs_and_succeeds(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, "true")
        assert scheduler.exists(app_id)
        status = self.until_ended(scheduler, app_id)
        assert (status.app_id, status.state) == (app_id, AppState.SUCCEEDED)
        assert status.first_failure is None
        (replica,) = status.replicas
        assert (replica.role, replica.id, replica.state) == ("worker", 0, AppState.SUCCEEDED)

    def test_it_is_visible_while_it_runs(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, "sleep 600")
        status = self.until_state(scheduler, app_id, AppState.RUNNING)
        assert not is_terminal(status.state)
        (replica,) = status.replicas
        assert replica.state is AppState.RUNNING

    def test_it_is_listed_once_until_its_deletion(self, scheduler: AnyScheduler) -> None:
        def rows() -> list[ListAppResponse]:
            return [row for row in scheduler.list(self.cfg) if row.app_id == app_id]

        app_id = self.submit(scheduler, "true")
        assert [row.is_own for row in rows()] == [True]
        self.until_ended(scheduler, app_id)
        assert [(row.state, row.is_own) for row in rows()] == [(AppState.SUCCEEDED, True)]
        scheduler.delete(app_id)
        assert rows() == []

    def test_times_are_in_order(self, scheduler: AnyScheduler) -> None:
        status = self.run(scheduler, "true")
        times = [status.submitted_at, status.started_at, status.ended_at]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
        assert all(time.tzinfo is not None for time in known), "a time without time zone"

    def test_applications_of_one_name_are_separate(self, scheduler: AnyScheduler) -> None:
        first, second = self.submit(scheduler, "exit 0"), self.submit(scheduler, "exit 3")
        assert first != second
        self.check_ends(scheduler, first, AppState.SUCCEEDED)
        self.check_ends(scheduler, second, AppState.FAILED)

    def test_queries_change_nothing(self, scheduler: AnyScheduler) -> None:
        ended = self.run(scheduler, "echo out").app_id
        running = self.submit(scheduler, "sleep 600")
        self.until_state(scheduler, running, AppState.RUNNING)
        with recorded_changes() as changes:
            for app_id in (ended, running, UNKNOWN_APP):
                scheduler.exists(app_id)
                scheduler.describe(app_id)
                scheduler.describe_native(app_id)
                if isinstance(scheduler, Glances):
                    scheduler.glance(app_id)
                self.check_usage(scheduler, app_id)
            assert self.log(scheduler, ended) == ["out\n"]
            assert {ended, running} <= {app.app_id for app in scheduler.list(self.cfg)}
            if isinstance(scheduler, Selects):
                assert [app.app_id for app in scheduler.select(AppQuery(called=running))] == [running]
            scheduler.run_opts()
        assert changes == []

    # --- results ---------------------------------------------------------------------------------

    def test_a_failure_has_its_exit_code(self, scheduler: AnyScheduler) -> None:
        first = self.failure_of(self.run(scheduler, "exit 3"))
        assert (first.role, first.replica, first.exit_code) == ("worker", 0, 3)

    def test_success_requires_exit_0_of_every_replica(self, scheduler: AnyScheduler) -> None:
        good = self.role("true", name="good", num_replicas=2)
        app_id = self.submit(scheduler, self.app(good, self.role("sleep 1; exit 3", name="bad")))
        seen: list[AppState] = []
        self.until_ended(scheduler, app_id, lambda status: seen.append(status.state))
        assert AppState.FAILED in seen
        assert AppState.SUCCEEDED not in seen

    def test_a_signal_is_reported(self, scheduler: AnyScheduler) -> None:
        status = self.run(scheduler, "kill -KILL $$$$")  # macros turn two dollar signs into one
        assert self.failure_of(status).result == 128 + 9

    def test_the_first_failure_is_reported(self, scheduler: AnyScheduler) -> None:
        good = self.role("sleep 600", name="good", num_replicas=2)
        bad = self.role('test "$NUMBER" != 1 || exit 4; sleep 600', name="bad", num_replicas=2)
        bad.env["NUMBER"] = macros.replica_id
        first = self.failure_of(self.run(scheduler, self.app(good, bad)))
        assert (first.role, first.replica, first.result) == ("bad", 1, 4)

    def test_a_missing_program_is_an_error_with_a_reason(self, scheduler: AnyScheduler) -> None:
        app = self.app(self.role("", entrypoint="no-such-program-here"))
        try:
            status = self.run(scheduler, app)
        except TorchxError as error:
            assert "no-such-program-here" in str(error)
        else:
            assert status.state is AppState.FAILED
            assert status.msg or status.first_failure

    # --- input of replicas -----------------------------------------------------------------------

    def test_arguments_and_environment_arrive_unchanged(self, scheduler: AnyScheduler) -> None:
        odd = "a b\t'\" \\ * ; | é $$HOME"
        role = self.role('printf "%s\\n" "$1" "$ODD"', env={"ODD": "x=1,y;z 'q' \"w\""})
        role.args += ["sh", odd]
        status = self.run(scheduler, role)
        lines = [line.rstrip("\n") for line in self.log(scheduler, status.app_id)]
        assert lines == [odd.replace("$$", "$"), role.env["ODD"]]

    def test_macros_are_replaced_for_each_replica(self, scheduler: AnyScheduler) -> None:
        script = f"echo {macros.app_id} {macros.replica_id} {NAMED} $${macros.rank0_env}"
        if Ability.ATTEMPT not in self.lacks:
            script += '; test "$TORCHX_ATTEMPT" = 1 || exit 9'
        status = self.run(scheduler, self.role(script, num_replicas=2))
        assert status.state is AppState.SUCCEEDED, "exit 9: TORCHX_ATTEMPT is not 1"
        for replica in (0, 1):
            (line,) = self.log(scheduler, status.app_id, replica)
            named = [f"worker/{replica}", "worker", str(replica), "2"]
            assert line.split()[:6] == [status.app_id, str(replica), *named]

    def test_input_objects_are_not_changed(self, scheduler: AnyScheduler) -> None:
        app = self.app(self.role(f"echo {macros.app_id}", env={"A": macros.replica_id}))
        cfg = dict(self.cfg)
        before = copy.deepcopy((app, cfg))
        self.run(scheduler, app)
        scheduler.submit_dryrun(app, cfg)
        assert (app, cfg) == before

    def test_a_dry_run_starts_nothing(self, scheduler: AnyScheduler) -> None:
        name = self.own_name()
        info = scheduler.submit_dryrun(self.app(self.role("echo dry"), name=name), self.cfg)
        assert "echo dry" in repr(info)
        assert self.listed(scheduler, name) == []

    def test_describe_loses_nothing(self, scheduler: AnyScheduler) -> None:
        changes: Object = {
            "mounts": [BindMount("/tmp", "/conformance", read_only=True)],  # noqa: S108
            "min_replicas": 1,
            "retry_policy": RetryPolicy.ROLE,
        }
        rejected = {name.partition("=")[0] for name, m in self.fields.items() if m is Meaning.REJECTED}
        role = self.role(
            "true # é $$HOME",
            env={"A": "1", "B": "x=y, 'é'"},
            num_replicas=2,
            max_retries=1,
            port_map={"web": 18081},
            resource=Resource(cpu=1, gpu=0, memMB=256, tags={"conformance": [1]}),
            metadata={"conformance": {"a": ["b"]}},
            **{name: value for name, value in changes.items() if name not in rejected},
        )
        app = self.app(role, self.role("true", name="other"), metadata={"team": "a", "note": "é, = 'x'"})
        set_tags(app, {"sweep": "lr", "baseline": ""}, note="é, = 'x'")
        status = self.run(scheduler, app)
        assert status.name in ("", app.name)
        assert [each.name for each in status.roles] == [role.name, "other"]
        for field in dataclasses.fields(Role):
            described, given = getattr(status.roles[0], field.name), getattr(role, field.name)
            if field.name == "env":  # the scheduler may add to it
                described = {name: value for name, value in described.items() if name in given}
            if field.name != "overrides":  # resolved at dry-run
                assert described == given, f"`describe` returns `{field.name}` as {described!r}"
        assert status.metadata.items() >= app.metadata.items()
        assert [row.tags for row in scheduler.list(self.cfg) if row.app_id == status.app_id] == [
            {"sweep": "lr", "baseline": ""}
        ], "`list` does not return the tags in the metadata, see torchx.specs.app_metadata.tags_of"
        if isinstance(scheduler, Glances):
            brief = scheduler.glance(status.app_id)
            assert brief is not None
            assert note_of(brief.metadata) == "é, = 'x'"

    def test_a_described_application_can_be_run_again(self, scheduler: AnyScheduler) -> None:
        status = self.run(scheduler, self.role(f"echo again {macros.replica_id}", env={"A": "1"}))
        again = self.run(scheduler, AppDef("conformance", status.roles, status.metadata))
        assert again.app_id != status.app_id
        assert again.state is AppState.SUCCEEDED
        assert self.log(scheduler, again.app_id) == ["again 0\n"]

    # --- cancel and delete -----------------------------------------------------------------------

    def test_cancel_ends_it(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, self.role("sleep 600", num_replicas=2))
        self.check_cancel(scheduler, app_id)
        scheduler.cancel(app_id)  # again: nothing happens
        self.check_ends(scheduler, app_id, AppState.CANCELLED)

    def test_cancel_does_not_change_an_ended_application(self, scheduler: AnyScheduler) -> None:
        status = self.run(scheduler, "true")
        scheduler.cancel(status.app_id)
        self.check_ends(scheduler, status.app_id, AppState.SUCCEEDED)

    def test_delete_leaves_nothing(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, "sleep 600")
        self.until_state(scheduler, app_id, AppState.RUNNING)
        scheduler.delete(app_id)
        self.until(lambda: not scheduler.exists(app_id), f"{app_id} is removed")
        assert scheduler.describe(app_id) is None
        scheduler.delete(app_id)  # again: nothing happens

    def test_an_unknown_application_is_no_error(self, scheduler: AnyScheduler) -> None:
        assert scheduler.describe(UNKNOWN_APP) is None
        assert not scheduler.exists(UNKNOWN_APP)
        scheduler.cancel(UNKNOWN_APP)
        scheduler.delete(UNKNOWN_APP)

    def test_another_process_sees_reads_and_cancels_it(self, scheduler: AnyScheduler) -> None:
        factory = type(self).factory
        app_id = self.submit(scheduler, "echo there; sleep 600")
        self.until_state(scheduler, app_id, AppState.RUNNING)
        self.until(lambda: self.log(scheduler, app_id), "its first line")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            assert other.submit(describe_state, factory, app_id).result(self.patience) == "RUNNING"
            assert other.submit(log_of, factory, app_id).result(self.patience) == ["there\n"]
            other.submit(cancel, factory, app_id).result(self.patience)
        self.check_ends(scheduler, app_id, AppState.CANCELLED)

    def test_it_outlives_the_process_that_submitted_it(self, scheduler: AnyScheduler) -> None:
        app = self.app(self.role("sleep 1; echo after"))
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            app_id = other.submit(submit, type(self).factory, app, dict(self.cfg)).result(self.patience)
        self._submitted.append(app_id)
        assert app_id in [line.app_id for line in scheduler.list(self.cfg)]
        self.check_ends(scheduler, app_id, AppState.SUCCEEDED)
        assert self.log(scheduler, app_id) == ["after\n"]

    # --- bad input -------------------------------------------------------------------------------

    def test_an_option_of_the_wrong_type_is_rejected(self, scheduler: AnyScheduler) -> None:
        options = list(scheduler.run_opts())
        if not options:
            return  # no options, no wrong values
        name = options[0][0]
        with pytest.raises(UsageError, match=name):
            scheduler.submit_dryrun(self.app(self.role("true")), {**self.cfg, name: object()})  # type: ignore[dict-item]

    def test_an_unknown_option_is_rejected(self, scheduler: AnyScheduler) -> None:
        with pytest.raises(UsageError, match="no_such_option"):
            scheduler.submit_dryrun(self.app(self.role("true")), {**self.cfg, "no_such_option": 1})

    def test_its_options_have_a_help_text(self, scheduler: AnyScheduler) -> None:
        for name, option in scheduler.run_opts():
            assert option.help, name

    def test_a_request_is_submitted_once(self, scheduler: AnyScheduler) -> None:
        info = scheduler.submit_dryrun(self.app(self.role("true")), self.cfg)
        first = scheduler.schedule(info)
        self._submitted.append(first)
        try:
            second = scheduler.schedule(info)
        except TorchxError:
            second = ""  # the better choice: it says that the application exists
        self._submitted += [second] * bool(second)
        assert second != first, "two submissions have one id"
        self.check_ends(scheduler, first, AppState.SUCCEEDED)

    def test_a_submission_that_fails_leaves_nothing(self, scheduler: AnyScheduler) -> None:
        good, bad = self.role("sleep 600", name="good"), self.role("", entrypoint="no-such-program-here")
        name = self.own_name()
        try:
            app_id = self.submit(scheduler, self.app(good, bad, name=name))
        except TorchxError:
            assert self.listed(scheduler, name) == []
        else:  # detected at its start: then the application fails as a whole
            self.check_ends(scheduler, app_id, AppState.FAILED)
