"""Conformance tests of time limits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from torchx.errors import UsageError
from torchx.exit_codes import TIMED_OUT
from torchx.runner.changes import changes
from torchx.scheduling.base import AnyScheduler, DescribeAppResponse, Reports
from torchx.scheduling.events import AppEvent
from torchx.specs.status import AppState, code_of
from torchx.testing.harness import Ability, Harness


class LimitConformance(Harness):
    """Tests of time limits and requeues, unless the ability is declared as lacking; see :class:`Harness`."""

    def test_a_time_limit_is_checked_before_the_submission(self, scheduler: AnyScheduler) -> None:
        options = dict(scheduler.run_opts())
        has = "time_limit" in options
        assert has is (Ability.TIME_LIMIT not in self.lacks), (
            f"run option `time_limit` is {'there' if has else 'missing'}, but `lacks` declares otherwise"
        )
        if has:
            with pytest.raises(UsageError, match="time_limit"):
                scheduler.submit_dryrun(self.app(self.role("true")), {**self.cfg, "time_limit": "soon"})

    def test_run_ends_at_its_limit_and_next_begins(self, scheduler: AnyScheduler) -> None:
        if Ability.TIME_LIMIT in self.lacks or not self.shortest_limit:
            return
        app = self.app(self.role('[ "$TORCHX_ATTEMPT" != 1 ] || sleep 600', num_replicas=2))
        again = self.submit(scheduler, app, time_limit=self.shortest_limit, requeue_on="time-limit:9")
        once = self.submit(scheduler, "sleep 600", time_limit=self.shortest_limit)
        ended = self.until_ended(scheduler, once)
        assert ended.state is AppState.FAILED
        first = ended.first_failure
        assert "time limit" in ended.msg + (first.msg if first is not None else ""), "it is the named cause"
        assert code_of(ended.state, ended.cause, first) == TIMED_OUT
        self.check_ends(scheduler, again, AppState.SUCCEEDED)

    def test_events_of_requeue_are_those_of_every_engine(self, scheduler: AnyScheduler) -> None:
        if Ability.TIME_LIMIT in self.lacks or not self.shortest_limit:
            return
        saves = "trap 'exit 75' USR1; echo up; while [ $TORCHX_RUN = 1 ]; do sleep 0.1; done"
        app = self.app(self.role(saves, num_replicas=2))
        status = self.run(scheduler, app, time_limit="100s", notice="90s:USR1", requeue_on="time-limit:4")
        assert (status.state, status.run) == (AppState.SUCCEEDED, 2), status.msg
        check_requeue(events_of(scheduler, status.app_id, status))


def events_of(scheduler: AnyScheduler, app_id: str, status: DescribeAppResponse) -> list[AppEvent]:
    """Returns the events of an application that has ended.

    Args:
        scheduler: its scheduler.
        app_id: the application.
        status: its status.
    """
    events = changes(lambda: status)
    if isinstance(scheduler, Reports):
        events = iter(scheduler.app_events(app_id))
    return [event for event in events if event is not None and event.kind != "measured"]


def check_requeue(events: Sequence[AppEvent]) -> None:
    """Checks the events of two replicas that run again after a notice, and then succeed."""
    kinds = [event.kind for event in events]
    first, second = kinds[: kinds.index("requeued")], kinds[kinds.index("requeued") + 1 :]
    # a busy engine may start the second replica after the notice, or after the end of the first one
    assert sorted(first) == sorted(["submitted", "started", "started", "ready", "notice", "ended", "ended"])
    assert sorted(second) == sorted(["started", "started", "ready", "ended", "ended", "ended"])
    assert (kinds[0], first.index("notice") < first.index("ended")) == ("submitted", True)
    requeued = next(event for event in events if event.kind == "requeued")
    assert requeued.message == "run 2 begins after the time limit"
    assert (requeued.role, requeued.details) == ("", {"number": 1, "allowed": 4, "run": 2})
