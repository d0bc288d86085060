"""Conformance tests of time limits."""

from __future__ import annotations

from typing import Any

import pytest

from torchx.errors import UsageError
from torchx.scheduling.base import Scheduler
from torchx.specs.status import AppState
from torchx.testing.harness import Ability, Harness


class LimitConformance(Harness):
    """Tests of time limits and requeues, unless the ability is declared as lacking; see :class:`Harness`."""

    def test_a_time_limit_is_checked_before_the_submission(self, scheduler: Scheduler[Any]) -> None:
        options = dict(scheduler.run_opts())
        has = "time_limit" in options
        assert has is (Ability.TIME_LIMIT not in self.lacks), (
            f"run option `time_limit` is {'there' if has else 'missing'}, but `lacks` declares otherwise"
        )
        if has:
            with pytest.raises(UsageError, match="time_limit"):
                scheduler.submit_dryrun(self.app(self.role("true")), {**self.cfg, "time_limit": "soon"})

    def test_a_run_ends_at_its_time_limit_and_the_next_one_begins(self, scheduler: Scheduler[Any]) -> None:
        if Ability.TIME_LIMIT in self.lacks or not self.shortest_limit:
            return
        limit = {**self.cfg, "time_limit": self.shortest_limit}
        app = self.app(self.role('[ "$TORCHX_ATTEMPT" != 1 ] || sleep 600', num_replicas=2))
        again = scheduler.submit(app, {**limit, "requeue_on": "time-limit:9"})
        once = scheduler.submit(self.app(self.role("sleep 600")), limit)
        self._submitted += [again, once]
        ended = self.until_ended(scheduler, once)
        assert ended.state is AppState.FAILED
        first = ended.first_failure
        assert "time limit" in ended.msg + (first.msg if first is not None else ""), "it is the named cause"
        assert self.until_ended(scheduler, again).state is AppState.SUCCEEDED
