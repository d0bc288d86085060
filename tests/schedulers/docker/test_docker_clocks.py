"""Durations of running containers after a change of the clock, and of engines with another clock."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest
from containers import Jobs, describe, replicas, running, scheduler, sh

from torchx.schedulers.shared.clock import EngineClock
from torchx_cli.terminal.times import span

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
@pytest.mark.parametrize("kind", ["set", "other"])
def test_a_running_job_lasts_as_long_by_any_clock(
    kind: str, step: float, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this machine was set since the start, or that of the engine is another one."""
    app_id = jobs.submit(sh("exec sleep 600", 2))
    running(app_id, 2)
    true = time.time
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: true() + step)
        if kind == "set":  # the engine has the same clock
            patched.setattr(EngineClock, "read", lambda *_: None)
        found = describe(app_id)
        listed = next(line for line in scheduler().list() if line.app_id == app_id)
        attempts = [replica.attempts[0].started_at for replica in replicas(found)]
        for started in (found.started_at, listed.started_at, *attempts):
            assert started is not None
            assert -5 < time.time() - started.timestamp() < 600
    assert found.submitted_at == describe(app_id).submitted_at


def test_a_duration_before_its_start_is_not_shown() -> None:
    assert span(running_since(3600.0), None) is None
    assert span(running_since(1.0), None) == 0.0
    assert span(running_since(-60.0), None) is not None


def running_since(seconds: float) -> datetime:
    return datetime.fromtimestamp(time.time() + seconds, timezone.utc)
