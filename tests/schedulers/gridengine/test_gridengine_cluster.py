"""Jobs on a real Grid Engine: what a person does with them, and what happens to them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from gridengines import gridengine, output, role, state
from support import wait_until

from torchx.errors import StateError, UsageError
from torchx.schedulers.gridengine.jobs import find_record
from torchx.schedulers.gridengine.scheduler import GridEngineScheduler
from torchx.scheduling.streams import Streams
from torchx.specs import AppDef, AppState, RetryPolicy

pytestmark = pytest.mark.gridengine

ODD = "a,b; 'q' \"w\" $HOME `date` \\ \n\nEND\n é 🙂 #x\n"
MPI = {"pe": "mpi"}
UP = "echo up; while :; do sleep 0.1; done"


def started(scheduler: GridEngineScheduler, app_id: str, lines: int) -> None:
    wait_until(lambda: output(scheduler, app_id).count(b"up") >= lines, "all replicas are up", timeout=60)


def test_odd_values_arrive_and_nobody_sees_them(scheduler: GridEngineScheduler) -> None:
    text = ODD.replace("$", "$$")
    one = role('printf %s "$1$ODD"; sleep 3', "r% ö", env={"ODD": text})
    one.args += ["sh", text]
    two = role(
        "echo $$TORCHX_RANK0_HOST $$TORCHX_REPLICA $$TORCHX_JOB_ID ${replica_id}", "b b", num_replicas=2
    )
    app_id = scheduler.submit(AppDef("näme, 'x'", [one, two]), MPI)
    shown = gridengine("qstat", "-j", app_id)
    assert "🙂" not in shown
    assert os.environ["TORCHX_HOME"] + "/secret" not in shown
    assert scheduler.wait(app_id, 60)
    assert output(scheduler, app_id, replicas={"r% ö": frozenset()}) == (ODD + ODD).encode()
    lines = output(scheduler, app_id, replicas={"b b": frozenset([1])}).split()
    assert lines[0].startswith(b"genode")
    assert lines[1:] == [b"b", b"b/1", f"gridengine://torchx/{app_id}".encode(), b"1"]


def test_replicas_run_on_several_hosts(scheduler: GridEngineScheduler) -> None:
    app_id = scheduler.submit(AppDef("hosts", [role("hostname", num_replicas=6)]), MPI)
    assert scheduler.wait(app_id, 60)
    assert sorted(set(output(scheduler, app_id).split())) == [b"genode1", b"genode2", b"genode3"]
    described = scheduler.describe(app_id)
    assert described is not None
    hosts = {replica.hostname for replica in described.roles_statuses[0].replicas}
    assert hosts == {"genode1", "genode2", "genode3"}


@pytest.mark.parametrize("by_hand", [False, True])
def test_cancelled_programs_may_clean_up(scheduler: GridEngineScheduler, by_hand: bool) -> None:
    command = f"trap 'echo clean; exit 0' TERM; trap 'echo usr2' USR2; {UP}"
    app_id = scheduler.submit(AppDef("end", [role(command, num_replicas=3)]), MPI)
    started(scheduler, app_id, 3)
    if by_hand:
        gridengine("qdel", app_id)
    else:
        scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    assert state(scheduler, app_id) is AppState.CANCELLED
    lines = output(scheduler, app_id).split()
    assert lines.count(b"clean") == 3
    assert b"usr2" not in lines


@pytest.mark.parametrize("now", [False, True])
def test_deaf_programs_are_killed(scheduler: GridEngineScheduler, tmp_path: Path, now: bool) -> None:
    command = f"trap '' TERM; echo $$$$ > {tmp_path}/$$TORCHX_REPLICA_ID; {UP}"
    app_id = scheduler.submit(AppDef("deaf", [role(command, num_replicas=3)]), {**MPI, "grace_period": 2.0})
    started(scheduler, app_id, 3)
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(pids) == 3
    if now:
        scheduler.kill(app_id)
    else:
        scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    assert state(scheduler, app_id) is AppState.CANCELLED
    wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "all programs have gone", timeout=30
    )


def test_a_suspended_job_stands_still(scheduler: GridEngineScheduler) -> None:
    command = "echo up; trap 'echo usr1' USR1; while :; do echo line; sleep 0.2; done"
    # Grid Engine suspends the processes on the host of the script only
    app_id = scheduler.submit(AppDef("still", [role(command, num_replicas=3)]), {"pe": "smp"})
    started(scheduler, app_id, 3)
    gridengine("qmod", "-sj", app_id)

    def has_stopped() -> bool:
        before = len(output(scheduler, app_id))
        time.sleep(1.5)  # several lines
        return len(output(scheduler, app_id)) == before

    wait_until(has_stopped, "the job stands still", timeout=90)
    described = scheduler.describe(app_id)
    assert described is not None
    assert (described.state, described.msg) == (AppState.RUNNING, "suspended")
    gridengine("qmod", "-usj", app_id)
    wait_until(lambda: not has_stopped(), "the job continues", timeout=60)
    assert b"usr1" not in output(scheduler, app_id)


@pytest.mark.parametrize("code", [99, 100])
def test_codes_of_the_engine_are_failures(scheduler: GridEngineScheduler, code: int) -> None:
    app_id = scheduler.submit(AppDef("code", [role(f"exit {code}")]), {})
    assert scheduler.wait(app_id, 60)
    described = scheduler.describe(app_id)
    assert described is not None
    assert described.state is AppState.FAILED
    assert described.first_failure is not None
    assert described.first_failure.exit_code == code


def test_retry_through_the_queue(scheduler: GridEngineScheduler) -> None:
    again = role(
        "echo $$TORCHX_ATTEMPT; sleep 2; test $$TORCHX_ATTEMPT = 2",
        num_replicas=2,
        max_retries=2,
        retry_policy=RetryPolicy.APPLICATION,
    )
    app_id = scheduler.submit(AppDef("again", [again]), {**MPI, "requeue": True})
    assert scheduler.wait(app_id, 120)
    described = scheduler.describe(app_id)
    assert described is not None
    assert (described.state, described.num_restarts) == (AppState.SUCCEEDED, 1)
    assert sorted(output(scheduler, app_id).split()) == [b"1", b"1", b"2", b"2"]


def test_a_killed_script_is_found_in_the_accounting(scheduler: GridEngineScheduler) -> None:
    app_id = scheduler.submit(AppDef("killed", [role(UP)]), {})
    started(scheduler, app_id, 1)
    found = subprocess.run(
        ["pgrep", "-f", f"job_scripts/{app_id}$"], capture_output=True, text=True, check=True
    )
    for pid in found.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    assert scheduler.wait(app_id, 90)
    described = scheduler.describe(app_id)
    assert described is not None
    assert described.state is AppState.FAILED
    assert described.msg == "its batch script was killed by SIGKILL"


def test_waiting_jobs_say_why(scheduler: GridEngineScheduler) -> None:
    app_id = scheduler.submit(AppDef("big", [role("true", num_replicas=90)]), {"pe": "smp"})

    def reason() -> str:
        described = scheduler.describe(app_id)
        assert described is not None
        return described.msg

    wait_until(lambda: 'cannot run in PE "smp"' in reason(), "the reason is known", timeout=30)
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    assert state(scheduler, app_id) is AppState.CANCELLED


def test_wrong_names_are_named(scheduler: GridEngineScheduler) -> None:
    for cfg, why in (
        ({"pe": "nope"}, 'parallel environment "nope" does not exist'),
        ({"resources": ["gpus=1"]}, 'unknown resource "gpus"'),
    ):
        with pytest.raises(UsageError, match=why):
            scheduler.submit(AppDef("wrong", [role("true")]), cfg)
    with pytest.raises(StateError, match="Grid Engine rejected the job"):
        scheduler.submit(AppDef("wrong", [role("true")]), {"queue": "nope.q"})
    assert list(scheduler.list()) == []


def test_a_program_runs_beside_a_replica(scheduler: GridEngineScheduler) -> None:
    app_id = scheduler.submit(AppDef("beside", [role(UP, num_replicas=3, env={"MINE": "v"})]), MPI)
    started(scheduler, app_id, 3)
    described = scheduler.describe(app_id)
    assert described is not None
    for replica in described.roles_statuses[0].replicas:
        out, err = io.BytesIO(), io.BytesIO()
        command = ["sh", "-c", 'echo "$(hostname) $MINE $TORCHX_REPLICA_ID"; echo error >&2; exit 3']
        assert scheduler.execute(app_id, "r", replica.id, command, Streams(out, err)) == 3
        assert out.getvalue() == f"{replica.hostname} v {replica.id}\n".encode()
        assert err.getvalue() == b"error\n"
    record = find_record(app_id)
    assert record is not None
    assert not list((record.paths.folder / ".node").glob("exec-*"))
