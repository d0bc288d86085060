"""The stacks of the processes of a local job."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from typing import TYPE_CHECKING

from torchx.errors import StateError
from torchx.machine import stack_taker
from torchx.scheduling.checks import unknown_application
from torchx.scheduling.stack_program import TIMEOUT, answer, arguments
from torchx.supervisor.process import python_command

if TYPE_CHECKING:
    from torchx.schedulers.local.status import LocalJobs
    from torchx.scheduling.stacks import AppStacks


def stacks(
    jobs: LocalJobs,
    app_id: str,
    replicas: Collection[str] | None,
    ranks: Collection[int] | None,
    native: bool,
) -> AppStacks:
    """Returns the stacks of the processes of a job.

    Raises:
        StateError: the job is unknown, or they cannot be taken.
    """
    view = jobs.find(app_id)
    if view is None:
        raise unknown_application(jobs.scheduler, app_id)
    argument = arguments(view.record.handle, replicas, ranks, native)
    argv = python_command(stack_taker.__name__, [argument])
    try:
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(f"the stacks cannot be taken: {error}") from error
    return answer(done.stdout, done.stderr, done.returncode)
