"""Recipes from public bug reports of tools of this kind, on a real cluster."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from program import ROOT, environment, torchx
from slurms import output, role, slurm, state, state_folder
from support import wait_until

from torchx.errors import StateError
from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.specs import AppDef, AppState, RetryPolicy

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(600)]
AT_ONCE = 3
SEED = int(os.environ.get("TORCHX_SEED", "1"))
TRIALS = int(os.environ.get("TORCHX_TRIALS", "6"))
"""Trials of random moments; 100 of them take eight minutes."""


def attempts(app_id: str) -> int:
    record = Records("slurm").find(app_id)
    assert record is not None
    return len(list(record.paths.folder.glob("*/*/attempt-*")))


def in_queue(app_id: str) -> str:
    argv = ("squeue", "--noheader", "--states=all", f"--jobs={app_id}", "--format=%T")
    return slurm(*argv)


def cancel_during_restarts(scheduler: SlurmScheduler, trial: int) -> list[object]:
    """Cancels a job whose program fails again and again; returns what is wrong."""
    chance = random.Random(SEED * 1000 + trial)
    policy = list(RetryPolicy)[trial % 3]
    settings = {"retry_policy": policy, "max_retries": 1000}
    roles = [role("sleep 0.05; exit 3", "a", **settings), role("exec sleep 600", "b", **settings)]
    app_id = scheduler.submit(
        AppDef("restarts", roles[: 1 + trial % 2]), {"requeue": False, "grace_period": 1}
    )
    wait_until(lambda: attempts(app_id), "the first attempt has begun")
    time.sleep(chance.random() * 2.0)
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    live = ("RUNNING", "COMPLETING")
    wait_until(lambda: not any(word in in_queue(app_id) for word in live), "all processes have ended")
    count = attempts(app_id)
    time.sleep(0.5)
    found = state(scheduler, app_id)
    return [each for each in (found.name, attempts(app_id) - count) if each not in ("CANCELLED", 0)]


def test_no_attempt_begins_after_a_cancel_during_restarts(scheduler: SlurmScheduler) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = list(pool.map(lambda trial: cancel_during_restarts(scheduler, trial), range(TRIALS)))
    assert wrong == [[]] * TRIALS


LINES = 200
PRINTS = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo $TORCHX_ATTEMPT $i; done; "


def log_at_the_end(scheduler: SlurmScheduler, trial: int) -> bool:
    """Follows a log from a random moment at the end of its job; returns True if it is complete."""
    # a failure ends the other replica, which may not have printed its lines yet
    failure = "[ $TORCHX_REPLICA_ID = 1 ] || exec sleep 600; exit 4"
    end, runs = [(failure, 1), ("[ $TORCHX_ATTEMPT -ge 3 ] || exit 9", 3), ("exec sleep 600", 1)][trial % 3]
    job = role(PRINTS + end, num_replicas=2, max_retries=runs - 1, retry_policy=RetryPolicy.REPLICA)
    app_id = scheduler.submit(AppDef("log", [job]), {"requeue": False})
    wait_until(lambda: attempts(app_id), "the first attempt has begun")
    if end.startswith("exec sleep"):
        wait_until(lambda: len(output(scheduler, app_id).split()) >= 4 * LINES, "all is printed")
        scheduler.cancel(app_id)
    time.sleep(random.Random(SEED * 1000 + trial).random())
    query = {"replicas": {"r": frozenset({1})}}
    expected = b"".join(b"%d %d\n" % (n, i) for n in range(1, runs + 1) for i in range(1, LINES + 1))
    followed = output(scheduler, app_id, follow=True, **query)
    return followed == expected == output(scheduler, app_id, **query)


def test_log_at_end_of_its_job_is_complete(scheduler: SlurmScheduler) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        complete = list(pool.map(lambda trial: log_at_the_end(scheduler, trial), range(TRIALS)))
    assert complete == [True] * TRIALS


INSIDE = """#!/bin/sh
cd {root}
{torchx} run -s slurm --log utils.sh 'echo inner $SLURM_NTASKS; exit 5' > {home}/log 2>&1
echo $? > {home}/code
{torchx} run -s slurm -d utils.sh 'until [ -e {home}/go ]; do sleep 0.1; done' > {home}/first 2> /dev/null
first=$(cat {home}/first)
{torchx} run -s slurm -d --each memMB=100,200 --after $first:ok utils.sh 'exit 4' > {home}/sweep 2> /dev/null
"""


def test_a_job_may_submit_others_and_end_before_them(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    text = INSIDE.format(root=ROOT, torchx=f"{sys.executable} -m torchx_cli", home=tmp_path)
    flags = ("--wait", "--ntasks=1", "--mem=700", "--output=/dev/null")
    slurm_env = {name: environment()[name] for name in ("PYTHONPATH", "TORCHX_HOME")}
    exports = "--export=ALL," + ",".join(f"{name}={value}" for name, value in slurm_env.items())
    slurm("sbatch", *flags, exports, text=text)
    assert (tmp_path / "code").read_text() == "5\n", (tmp_path / "log").read_text()
    assert "inner 1" in (tmp_path / "log").read_text()
    (tmp_path / "go").touch()
    done = torchx("wait", (tmp_path / "sweep").read_text().split()[0])
    assert done.returncode == 4, done.stderr


@pytest.mark.parametrize("clusters", [True, False])
def test_the_configuration_may_be_elsewhere(
    scheduler: SlurmScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clusters: bool
) -> None:
    """The variables of an outer job are removed, those that name the cluster are not."""
    lines = slurm("scontrol", "show", "config").splitlines()
    if clusters:
        name = next(line.split()[-1] for line in lines if line.startswith("ClusterName"))
        monkeypatch.setenv("SLURM_CLUSTERS", name)
    else:
        shutil.copy(state_folder() / "slurm.conf", tmp_path / "other.conf")
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "other.conf"))
    for variable, value in {"SLURM_JOB_ID": "99", "SLURM_NTASKS": "7", "SLURM_HET_SIZE": "2"}.items():
        monkeypatch.setenv(variable, value)
    if clusters and "slurmdbd" not in "".join(lines):  # sbatch looks up the cluster in the accounting
        with pytest.raises(StateError, match="can't be reached now"):
            scheduler.submit(AppDef("elsewhere", [role("true")]), {})
        return
    app_id = scheduler.submit(AppDef("elsewhere", [role("echo $SLURM_NTASKS; exit 3")]), {})
    assert scheduler.wait(app_id, 60)
    assert (state(scheduler, app_id), output(scheduler, app_id)) == (AppState.FAILED, b"1\n")
    assert app_id in [app.app_id for app in scheduler.list()]
    waits = scheduler.submit(AppDef("elsewhere", [role("exec sleep 600")]), {})
    scheduler.cancel(waits)
    assert scheduler.wait(waits, 60)
    assert state(scheduler, waits) is AppState.CANCELLED
