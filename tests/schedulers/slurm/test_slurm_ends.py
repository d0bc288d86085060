"""The ends of roles that their job, its time limit or a preemption causes, and retries, on this machine.

The `srun` of these tests cancels the whole job when it gets a signal, as that of Slurm 25.11 and later may.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from slurmscripts import SH
from slurmsteps import StepJob, case_differences, states
from support import wait_until

from torchx.specs import AppDef, AppState, RetryPolicy, Role
from torchx.testing.retry_cases import ALL, sample

TOOLS = (
    "awk bash cat cp date env find grep head id mkdir mv rm sed sh sleep sort stat tail test timeout touch "
    "true uniq wc"
)
"""The programs of a node without Python."""


def role(name: str, script: str, policy: RetryPolicy = RetryPolicy.APPLICATION, retries: int = 0) -> Role:
    args = ["-c", script.replace("$", "$$")]
    return Role(name, "", entrypoint=SH, args=args, retry_policy=policy, max_retries=retries)


def without_python(home: Path) -> str:
    """Returns a PATH without Python."""
    folder = home / "tools"
    folder.mkdir()
    for name in TOOLS.split():
        (folder / name).symlink_to(shutil.which(name) or name)
    return f"{home}/bin:{folder}"


DEAF = "trap '' TERM; (while :; do echo deaf; sleep 0.1; done) & touch {home}/up; while :; do sleep 0.1; done"
"""A program that outlives TERM, with a child that does so, too, and prints."""


@pytest.mark.parametrize("python", [True, False])
def test_role_that_outlives_grace_period_changes_no_result(tmp_path: Path, python: bool) -> None:
    """Its agent kills it, without a signal to srun, and the retry follows."""
    fails = f"until [ -e {tmp_path}/up ]; do sleep 0.05; done; rm {tmp_path}/up; exit 7"
    roles = role("deaf", DEAF.format(home=tmp_path)), role("fails", fails, retries=1)
    job = StepJob(AppDef("a", list(roles)), tmp_path, requeue=False, grace_period=1)
    assert job.run(**({} if python else {"PATH": without_python(tmp_path)})) == 7
    assert "srun signalled" not in job.calls.read_text()
    status = job.status()
    assert states(status) == {"deaf": ["CANCELLED"], "fails": ["FAILED"]}
    assert [len(each.replicas[0].attempts) for each in status.roles_statuses] == [2, 2]
    last = status.roles_statuses[0].replicas[0].attempts[-1]
    assert python is False or last.signal == "SIGKILL"


@pytest.mark.parametrize("python", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_replica_that_has_missed_the_signal_is_ended(tmp_path: Path, python: bool) -> None:
    """Slurm signals the processes of a step that exist: a step may still start its tasks."""
    job = StepJob(AppDef("a", [role("late", "exec sleep 600")]), tmp_path, requeue=False)
    extra = {} if python else {"PATH": without_python(tmp_path)}
    text = (tmp_path / "job.sh").read_text()
    (tmp_path / "job.sh").write_text(
        text.replace("\nrun_job\n", '\nrun_roles() { touch "$folder/stopping"; role_0; }\nrun_job\n')
    )
    assert job.run(**extra) in (143, 137)


def at_limit(home: Path, script: str) -> StepJob:
    """Returns a job whose time limit ends now, and may requeue it."""
    cfg = {"time_limit": "1h", "requeue_on": "time-limit:1", "grace_period": 60}
    return StepJob(AppDef("a", [role("r", f"{script}; while :; do sleep 0.1; done")]), home, **cfg)


def start(job: StepJob, home: Path) -> subprocess.Popen[bytes]:
    process = job.start(SLURM_JOB_END_TIME=str(int(time.time()) + 8))
    wait_until((home / "up").exists, "the program has started")
    return process


def requeues(job: StepJob) -> int:
    return job.calls.read_text().count("requeue 77\n")


def test_job_is_requeued_at_limit_while_program_outlives_term(tmp_path: Path) -> None:
    job = at_limit(tmp_path, f"trap '' TERM; touch {tmp_path}/up")
    with start(job, tmp_path) as process:
        os.kill(process.pid, signal.SIGTERM)
        wait_until(lambda: requeues(job) == 1, "the job is requeued")
        assert process.poll() is None, "the program has the time until Slurm kills it"
        process.kill()  # the script first: it would end the job otherwise
        job.end_steps(signal.SIGKILL)
    assert (job.folder / ".requeued").read_text() == "1\n"


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "trap - TERM; kill $$"])
def test_program_may_end_before_script_gets_signal(tmp_path: Path, end: str) -> None:
    job = at_limit(tmp_path, f"trap '{end}' TERM; touch {tmp_path}/up")
    with start(job, tmp_path) as process:
        job.end_steps(signal.SIGTERM)
        assert process.wait(60) == 143 or end == "exit 3"
    assert requeues(job) == 1
    assert not (job.folder / "over").exists()


def test_the_signals_of_one_end_requeue_once(tmp_path: Path) -> None:
    job = at_limit(tmp_path, f"trap 'sleep 1; exit 0' TERM; touch {tmp_path}/up")
    with start(job, tmp_path) as process:
        for _ in range(3):
            os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.1)
        job.end_steps(signal.SIGTERM)
        process.wait(60)
    assert requeues(job) == 1


def test_a_requeue_for_a_retry_is_no_end(tmp_path: Path) -> None:
    """Slurm signals the script and scontrol before scontrol has the answer, most often of two roles."""
    job = StepJob(AppDef("a", [role("r", "exit 3", retries=1)]), tmp_path)
    assert job.run() == 3
    assert requeues(job) == 1
    assert not (job.folder / "over").exists()
    assert job.status().state is AppState.RUNNING


def test_program_that_fails_at_limit_by_itself_fails(tmp_path: Path) -> None:
    job = at_limit(tmp_path, f"touch {tmp_path}/up; exit 3")
    with start(job, tmp_path) as process:
        assert process.wait(60) == 3
    assert requeues(job) == 0
    assert job.status().state is AppState.FAILED


def test_a_signal_long_before_the_limit_is_a_cancellation(tmp_path: Path) -> None:
    job = at_limit(tmp_path, f"touch {tmp_path}/up")
    with job.start() as process:
        wait_until((tmp_path / "up").exists, "the program has started")
        os.kill(process.pid, signal.SIGTERM)
        job.end_steps(signal.SIGTERM)
        assert process.wait(60) == 143
    assert requeues(job) == 0


def compare(seeds: list[int], home: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda seed: case_differences(seed, home / str(seed)), seeds))
    assert not any(reports), "\n".join(filter(None, reports))


def test_retries_in_the_script_agree_with_the_model(tmp_path: Path) -> None:
    compare(sample(4), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(5))
def test_all_cases_of_retries_agree_with_the_model(tmp_path: Path, part: int) -> None:
    compare(list(ALL)[part::5], tmp_path)
