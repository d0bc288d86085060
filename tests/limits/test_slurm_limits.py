"""Time limits of jobs on a cluster: the script, and real jobs, whose limits are whole minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from program import torchx
from slurms import begin_again, output, role, sixth_node, slurm, what_is_missing
from support import wait_until

from torchx.errors import UsageError
from torchx.schedulers.slurm.limits import check_limits, limits_of
from torchx.schedulers.slurm.scheduler import SlurmScheduler, create_scheduler
from torchx.specs.app import AppDef
from torchx.specs.run_options import CfgVal
from torchx.specs.status import AppState
from torchx.testing.limits import check_requeue, events_of

SAVES = """
place=$TORCHX_CHECKPOINT_DIR/$TORCHX_REPLICA
mkdir -p "$place"
n=$(cat "$place/n" 2> /dev/null || echo 0)
echo "run $TORCHX_RUN from $n"
[ $n -lt 1 ] || exit 0
trap 'echo $((n + 1)) > "$place/n"; sleep 1; echo saved; exit 75' USR1
while :; do sleep 0.05; done
"""


def script(*flags: str) -> str:
    done = torchx("run", "--dryrun", "-s", "slurm", *flags, "utils.sh", "true")
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_limit_is_an_option_of_sbatch_for_the_script() -> None:
    text = script("--time-limit", "90s", "--warn-before", "30s:USR2", "--requeue", "time-limit:3,preempted")
    assert "\n#SBATCH --time=2\n" in text
    assert "\n#SBATCH --signal=B:USR1@30\n" in text
    assert "\n#SBATCH --requeue\n" in text
    assert "\nlimit=90 notice=30 signal=USR2 requeues=3 preempted=yes\n" in text
    assert "note: the time limit is 2m: Slurm counts minutes" in text
    assert "note: Slurm requeues after preemptions and after failures of nodes alike" in text


def test_the_signal_of_sbatch_is_forwarded_to_the_programs() -> None:
    """Slurm would send it to all processes, and end the shells and agents that do not handle it."""
    text = script("-cfg", "signal=USR1@90,time=10")
    assert "\n#SBATCH --signal=B:USR1@90\n" in text
    assert "\nlimit=600 notice=90 signal=USR1 requeues=0 preempted=no\n" in text
    assert "\n#SBATCH --signal=B:USR2@90\n" in script("-cfg", "signal=B:USR2@90"), "for the script alone"
    assert '/.node/limits.sh"' not in script()


def test_script_without_limit_of_torchx_is_short() -> None:
    assert limits_of({}).is_empty


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        (
            {"time_limit": "1h", "time": "60"},
            "`time_limit` cannot be combined with run option `time` of slurm",
        ),
        (
            {"time": "60", "notice": "1m", "signal": "USR1"},
            "`notice` cannot be combined with run option `signal`",
        ),
        (
            {"requeue_on": "node", "requeue": False},
            "`requeue_on` cannot be combined with run option `requeue=false`",
        ),
        ({"requeue_on": "node:3"}, "takes no number for `node`"),
        ({"notice": "1m"}, "`notice` requires a time limit"),
    ],
)
def test_contradictions_are_rejected(cfg: dict[str, CfgVal], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_limits(cfg)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmScheduler]:
    if reason := what_is_missing():
        pytest.skip(reason)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    yield create_scheduler("torchx")


@pytest.mark.slurm
def test_notice_reaches_every_replica_and_next_run_continues(
    cluster: SlurmScheduler,
) -> None:
    # the first shell of a replica has no handler; the second replica still saves when the first one has ended
    job = role('sh -c "$PROGRAM"; exit $?', num_replicas=2, env={"PROGRAM": SAVES})
    app_id = cluster.submit(
        AppDef("limits", [job]), {"time_limit": "1m", "notice": "45s", "requeue_on": "time-limit:4"}
    )
    assert cluster.wait(app_id, 400.0)
    done = cluster.describe(app_id)
    assert done is not None
    lines = output(cluster, app_id).decode().splitlines()
    assert (done.state, done.run) == (AppState.SUCCEEDED, 2), (done, lines)
    assert sorted(lines) == sorted(["run 1 from 0", "saved", "run 2 from 1"] * 2)
    check_requeue(events_of(cluster, app_id, done))


PATIENT = """
echo "run $TORCHX_RUN"
while [ ! -e "$TORCHX_CHECKPOINT_DIR/go" ]; do sleep 0.05; done
echo "done in run $TORCHX_RUN"
"""


def states(job: str) -> str:
    return slurm("squeue", "--noheader", "--format=%T", "--me", "--states=all", f"--jobs={job}")


@pytest.mark.slurm
def test_a_preempted_job_returns(cluster: SlurmScheduler, tmp_path: Path) -> None:
    """The next run after PreemptMode=REQUEUE uses up no retry; after SUSPEND the same run continues."""
    with sixth_node():
        preempt(cluster, tmp_path / "a", "requeued", "PENDING", runs=2)
        preempt(cluster, tmp_path / "b", "suspended", "SUSPENDED", runs=1)


def preempt(cluster: SlurmScheduler, folder: Path, partition: str, preempted: str, runs: int) -> None:
    cfg: dict[str, CfgVal] = {"partition": partition, "requeue_on": "preempted"}
    app_id = cluster.submit(AppDef("preempted", [role(PATIENT)]), {**cfg, "checkpoint_dir": str(folder)})
    wait_until(lambda: b"run 1" in output(cluster, app_id), "it runs")
    script = f"#!/bin/sh\ntouch {folder}/taken\nwhile [ ! -e {folder}/end ]; do sleep 0.1; done\n"
    flags = ("--partition=urgent", "--cpus-per-task=2", "--mem=100", "--output=/dev/null")
    first = slurm("sbatch", "--parsable", *flags, text=script).strip()
    try:
        wait_until((folder / "taken").exists, "the other job has taken the node")
        wait_until(lambda: preempted in states(app_id), "it is preempted")
    finally:
        (folder / "end").touch()
    wait_until(lambda: "RUNNING" not in states(first), "the other job has ended")
    if runs > 1:
        begin_again(app_id)
        wait_until(lambda: b"run 2" in output(cluster, app_id), "the next run begins")
    (folder / "go").touch()
    assert cluster.wait(app_id, 400.0)
    done = cluster.describe(app_id)
    assert done is not None
    # a shell whose `sleep` ends by the signal first writes "Terminated"
    lines = [line for line in output(cluster, app_id).decode().splitlines() if line != "Terminated"]
    assert (done.state, done.run) == (AppState.SUCCEEDED, runs), (done, lines)
    lines = [line for line in lines if line != "Terminated"]  # of the shell, whose `sleep` may end first
    assert lines == [*(f"run {n}" for n in range(1, runs + 1)), f"done in run {runs}"]


@pytest.mark.slurm
@pytest.mark.long
def test_program_that_outlives_term_is_requeued_at_limit(cluster: SlurmScheduler) -> None:
    """Slurm kills the script that requeues the job, too."""
    deaf = role("trap '' TERM; [ $TORCHX_RUN -lt 2 ] || exit 0; while :; do sleep 0.05; done")
    app_id = cluster.submit(AppDef("deaf", [deaf]), {"time_limit": "1m", "requeue_on": "time-limit:1"})
    wait_until(lambda: states(app_id).strip() == "PENDING" and attempts(cluster, app_id), "it is requeued")
    begin_again(app_id)
    assert cluster.wait(app_id, 400.0)
    done = cluster.describe(app_id)
    assert done is not None
    assert (done.state, done.run) == (AppState.SUCCEEDED, 2), done


def attempts(cluster: SlurmScheduler, app_id: str) -> int:
    described = cluster.describe(app_id)
    assert described is not None
    return sum(len(replica.attempts) for role in described.roles_statuses for replica in role.replicas)
