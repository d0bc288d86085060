"""The stacks of the processes of a Slurm job, taken on its nodes by a step beside those of the job."""

from __future__ import annotations

import sys
from collections.abc import Collection

from torchx.errors import StateError
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.parse import hosts_of
from torchx.schedulers.slurm.queue import find, require_own
from torchx.scheduling.checks import unknown_application
from torchx.scheduling.stack_program import TIMEOUT, answer, arguments, command, program
from torchx.scheduling.stacks import AppStacks, combine
from torchx.specs.handles import make_app_handle

LINE = 900
"""Characters of a line of output; srun splits longer ones when it labels them."""


def stacks(
    app_id: str, replicas: Collection[str] | None, ranks: Collection[int] | None, native: bool
) -> AppStacks:
    """Returns the stacks of the processes of a job.

    Raises:
        OwnershipError: the job belongs to another user.
        StateError: the job is unknown or not running, or Slurm rejects the step.
    """
    job = find(app_id)
    if job is None:
        raise unknown_application("slurm", app_id)
    require_own(job, "read")
    running = [part for part in job.queue if part.state == "RUNNING"]
    if not running:
        raise StateError(f"job {app_id} is not running")
    handle = make_app_handle("slurm", job.record.session, job.record.key)
    argument = arguments(handle, replicas, ranks, native)
    parts = []
    for part in running:
        group = []
        if len(job.queue) > 1:
            group = [f"--het-group={part.part}"]
        nodes = max(1, len(list(hosts_of(part.nodes))))
        step = [
            "--overlap",
            f"--jobid={part.job_id if part.task is None else part.own_id}",
            *group,
            f"--nodes={nodes}",
            f"--ntasks={nodes}",
            "--ntasks-per-node=1",
            "--cpus-per-task=1",
            "--mem=0",
        ]
        argv = ["srun", *step, "--quiet", "--label", *command(argument, sys.executable), str(LINE)]
        output = client.call(argv, text=program().decode(), timeout=TIMEOUT)
        answers: dict[str, str] = {}
        for line in output.splitlines():
            task, _, text = line.partition(": ")
            answers[task] = answers.get(task, "") + text
        parts += [answer(text.encode(), b"", 0) for text in answers.values()]
    return combine(parts, [role["name"] for role in job.record.app["roles"]])
