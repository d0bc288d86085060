"""Time limits of real containers: the notice, the end, the next run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from containers import Jobs, describe, ended, jobs_of_a_test, scheduler, sh, supervisor_of, text, until_logged
from support import wait_until

from torchx.machine.processes import Process, look_up, wait_end
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.specs.status import AppState

pytestmark = [pytest.mark.long, pytest.mark.docker]

SAVES = """
n=$(cat "$TORCHX_CHECKPOINT_DIR/n" 2> /dev/null || echo 0)
echo "run $TORCHX_RUN from $n"
[ $n -lt 2 ] || exit 0
trap 'echo $((n + 1)) > "$TORCHX_CHECKPOINT_DIR/n"; echo saved; exit 75' USR1
while :; do sleep 0.05; done
"""


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    with jobs_of_a_test() as jobs:
        yield jobs


def test_next_run_continues_from_checkpoint_without_losing_lines(jobs: Jobs) -> None:
    # the shell that starts the program has no handler, and must survive the notice
    role = sh('sh -c "$PROGRAM"; exit $?', env={"PROGRAM": SAVES})
    app_id = jobs.submit(role, time_limit="2m", notice="117s", requeue_on="time-limit:5")
    done = ended(app_id, 240.0)
    assert (done.state, done.run, done.num_restarts) == (AppState.SUCCEEDED, 3, 2), done
    assert text(app_id).splitlines() == ["run 1 from 0", "saved", "run 2 from 1", "saved", "run 3 from 2"]
    engine = Engine()
    engine.call("GET", f"/volumes/torchx-{app_id}")
    scheduler().delete(app_id)
    with pytest.raises(EngineError):
        engine.call("GET", f"/volumes/torchx-{app_id}")


def test_slow_starter_is_notified_when_it_handles_the_signal(jobs: Jobs) -> None:
    script = "sleep 4; trap 'echo saved; exit 0' USR1; echo up; while :; do sleep 0.05; done"
    app_id = jobs.submit(sh(script), time_limit="5m", notice="299s")
    assert ended(app_id, 240.0).state is AppState.SUCCEEDED
    assert text(app_id).splitlines() == ["up", "saved"]


def test_limit_ends_all_containers_and_is_named_cause(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("trap 'exit 0' TERM; while :; do sleep 0.05; done", 2), time_limit="3s")
    done = ended(app_id)
    assert (done.state, done.msg) == (AppState.FAILED, "time limit reached: 3s")
    last = [replica.attempts[-1] for replica in done.roles_statuses[0].replicas]
    assert [(attempt.state, attempt.msg) for attempt in last] == [(AppState.CANCELLED, "time limit")] * 2


def test_another_supervisor_keeps_limit_and_number_of_run(jobs: Jobs) -> None:
    script = "echo run $TORCHX_RUN; while [ $TORCHX_RUN = 1 ]; do sleep 0.05; done"
    app_id = jobs.submit(sh(script), time_limit="5s", requeue_on="time-limit:1")
    until_logged(app_id, "run 1")
    pid = wait_until(lambda: supervisor_of(app_id), "it has a supervisor")
    entry = look_up(pid)
    assert entry is not None
    os.kill(pid, signal.SIGKILL)
    assert wait_end(Process(pid, entry.process.start), 60.0)
    scheduler().reconcile(app_id)
    done = ended(app_id)
    assert (done.state, done.run) == (AppState.SUCCEEDED, 2)
    assert text(app_id).splitlines() == ["run 1", "run 2"]
    assert describe(app_id).num_restarts == 1
