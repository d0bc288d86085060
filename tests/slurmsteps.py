"""Whole jobs of Slurm on this machine: programs that start and signal the tasks of steps as Slurm does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmscripts import SH, made

from torchx.schedulers.shared.batch.outcome import Outcome
from torchx.schedulers.shared.batch.paths import BatchPaths
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.slurm.outcome import outcome_of, outcome_without_slurm
from torchx.schedulers.slurm.status import describe
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs import AppDef, AppState, Role
from torchx.specs.serialize import app_to_dict
from torchx.testing.retry_cases import case_of, described, expected
from torchx.testing.retry_model import predict, script

SRUN = """
import os, signal, subprocess, sys
argv = sys.argv[1:]
options = dict(a[2:].split("=", 1) for a in argv if a.startswith("--"))
command = argv[len(options):]
mine = f"{os.environ['FAKE_STEPS']}/{os.getpid()}"
tasks = {}

def forward(number, send):
    for pid in tasks:
        try:
            os.killpg(pid, send)
        except OSError:
            pass

def cancel(number, frame):  # as Slurm 25.11 and later do with the job when its first role gets SIGKILL
    open(os.environ["FAKE_CALLS"], "a").write("srun signalled\\n")
    forward(number, signal.SIGKILL)
    os.kill(int(os.environ["FAKE_SCRIPT"]), signal.SIGKILL)

for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, cancel)
signals = {signal.SIGUSR1: signal.SIGKILL, signal.SIGUSR2: signal.SIGTERM, signal.SIGURG: signal.SIGURG}
for number, send in signals.items():
    signal.signal(number, lambda n, frame, send=send: forward(n, send))
for task in range(int(options["ntasks"])):
    env = {**os.environ, "SLURM_PROCID": str(task)}
    process = subprocess.Popen(command, env=env, start_new_session=True)
    tasks[process.pid] = process
open(mine, "w").close()
worst = 0
while tasks:
    pid, status = os.wait()
    try:
        os.killpg(pid, signal.SIGKILL)  # as the end of a step
    except OSError:
        pass
    tasks.pop(pid)
    code = os.waitstatus_to_exitcode(status)
    worst = max(worst, code if code >= 0 else 128 - code)
    if code and options["kill-on-bad-exit"] == "1":
        forward(0, signal.SIGKILL)
os.unlink(mine)
sys.exit(worst)
"""

SCANCEL = """
import os, signal, sys
send = {"TERM": signal.SIGUSR2, "URG": signal.SIGURG}[sys.argv[1].split("=")[1]]
for name in os.listdir(os.environ["FAKE_STEPS"]):
    try:
        os.kill(int(name), send)
    except OSError:
        pass
"""

SCONTROL = """
import os, signal, sys, time
with open(os.environ["FAKE_CALLS"], "a") as file:
    print(*sys.argv[1:], file=file)
if sys.argv[1] == "requeue":  # Slurm ends the script, perhaps before scontrol has its answer
    for pid in (int(os.environ["FAKE_SCRIPT"]), os.getppid(), os.getpid()):
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.3)
if sys.argv[1:3] == ["show", "hostnames"]:
    print("node1", "node2", sep="\\n")
"""


class StepJob:
    """A job whose script runs on this machine.

    Args:
        app: its application.
        home: a folder for its files.
        cfg: run options.
    """

    def __init__(self, app: AppDef, home: Path, **cfg: Any) -> None:
        self.app, self.cfg = app, cfg
        self.folder, self._programs = home / "jobs" / "a-b1", home / "bin"
        self.calls = home / "calls"
        (home / "steps").mkdir()
        self._programs.mkdir()
        for name, text in {"srun": SRUN, "scancel": SCANCEL, "scontrol": SCONTROL}.items():
            (self._programs / name).write_text(f"#!{sys.executable} -IS\n{text}")
            (self._programs / name).chmod(0o755)
        (home / "job.sh").write_text(made(app, str(self.folder), **cfg))
        env = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "node1", "FAKE_STEPS": str(home / "steps")}
        env |= {"FAKE_CALLS": str(self.calls), "PATH": f"{self._programs}:{os.environ['PATH']}"}
        env["SLURM_TASKS_PER_NODE"] = "2"
        self._argv = ["bash", "-c", f"export FAKE_SCRIPT=$$; exec bash {home}/job.sh"]
        self._env = env
        self._started_at = time.time()

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        """Starts the script."""
        return subprocess.Popen(self._argv, env={**self._env, **env}, start_new_session=True)

    def run(self, **env: str) -> int:
        """Runs the script to its end; returns its exit code."""
        with self.start(**env) as process:
            return process.wait(120)

    def end_steps(self, number: int) -> None:
        """Signals the tasks of all steps, as Slurm does."""
        for name in os.listdir(self._env["FAKE_STEPS"]):
            with suppress(OSError):
                os.kill(int(name), signal.SIGUSR2 if number == signal.SIGTERM else signal.SIGUSR1)

    def status(self) -> DescribeAppResponse:
        """Returns the status of the job by its files; it is running unless its script has ended."""
        record = BatchRecord(
            77, "b1", "a", "a-b1", "torchx", str(self.folder),
            submitted_at=self._started_at, app=app_to_dict(self.app, strict=False), cfg=self.cfg,
        )  # fmt: skip
        outcome = outcome_of(record, ()) or Outcome(AppState.RUNNING)
        assert outcome_without_slurm(record)
        return describe(record, "77", outcome, ())

    @property
    def paths(self) -> BatchPaths:
        """The files of the job."""
        return BatchPaths(self.folder)


def states(status: DescribeAppResponse) -> dict[str, list[str]]:
    """Returns the states of the replicas of each role."""
    return {role.role: [replica.state.name for replica in role.replicas] for role in status.roles_statuses}


def case_differences(seed: int, home: Path) -> str:
    """Runs a case of retries; returns its differences from the model, or an empty string."""
    case = case_of(seed)
    outcome = predict(case)
    home.mkdir()
    roles = []
    for number, role in enumerate(case.roles):
        each = [script(outcome, (number, id), str(home), 0.0) for id in range(role.replicas)]
        choices = " ".join(f"{id}) {command};;" for id, command in enumerate(each))
        text = f'case "$SLURM_PROCID" in {choices} esac'.replace("$", "$$")
        made_role = Role(f"r{number}", "", entrypoint=SH, args=["-c", text], num_replicas=role.replicas)
        roles.append(replace(made_role, retry_policy=role.policy, max_retries=role.max_retries))
    job = StepJob(AppDef("a", roles), home, requeue=False)
    job.run()
    wanted, found = expected(outcome), described(job.status())
    return "" if wanted == found else f"case {seed}: {case}\n  expected {wanted}\n  found    {found}"
