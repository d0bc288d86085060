"""Run the programs of Grid Engine, with a timeout and without a shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from torchx.errors import AbsentError, StateError
from torchx.machine import processes
from torchx.schedulers.shared.batch.errors import NoAnswerError as NoAnswerError
from torchx.schedulers.shared.batch.errors import ProgramError as ProgramError

TIMEOUT = 30.0
"""Seconds after which a call times out."""
OF_JOBS = (
    r"(SGE_TASK_\w+|SGE_JOB_\w+|SGE_CWD_PATH|SGE_STD\w+_PATH|JOB_\w+|PE|PE_\w+|NSLOTS|NHOSTS|NQUEUES|"
    r"QUEUE|REQ\w+|RESTARTED)"
)
"""The variables that Grid Engine sets inside a job, which change the effect of its programs."""
_UNREACHABLE = (
    r"(?i)unable to (contact|send message to) qmaster|commlib error|can't connect|got no connection|"
    r"can't resolve"
)
_NOT_CONFIGURED = r"(?i)SGE_ROOT|cell directory|critical error: .*(act_qmaster|bootstrap)"


def require(program: str) -> None:
    """Checks that a program of Grid Engine is installed.

    Raises:
        AbsentError: it is not on PATH.
    """
    if shutil.which(program) is None:
        raise AbsentError(
            f"Grid Engine is not installed: `{program}` is not on PATH",
            hint="use a submit host of the cluster, or source its settings.sh",
        )


def clean_env() -> dict[str, str]:
    """Returns the environment without the variables of a job that this process may be part of."""
    env = {name: value for name, value in os.environ.items() if not re.fullmatch(OF_JOBS, name)}
    env["LC_ALL"] = "C"
    return env


def call(argv: Sequence[str], *, timeout: float = TIMEOUT) -> str:
    """Runs a program of Grid Engine and returns its output.

    Raises:
        AbsentError: the program is not installed, or no cluster is configured.
        NoAnswerError: the master does not respond in time.
        ProgramError: the program fails.
    """
    require(argv[0])
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env=clean_env(),
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswerError(
            f"the Grid Engine master does not answer: `{argv[0]}` timed out after {timeout:.0f} s",
            hint="check it with: qstat -f",
        ) from None
    except OSError as error:
        raise StateError(f"cannot run `{argv[0]}`: {processes.start_error(error)}") from error
    if done.returncode == 0:
        return done.stdout
    output = (done.stderr.strip() or done.stdout).strip()
    if re.search(_UNREACHABLE, output):
        raise NoAnswerError(
            f"the Grid Engine master does not answer ({one_line(output)})",
            output=output,
            hint="check it with: qstat -f",
        )
    if re.search(_NOT_CONFIGURED, output):
        raise AbsentError(
            f"Grid Engine is installed, but no cluster is configured: {one_line(output)}",
            hint="use a submit host of the cluster, or source its settings.sh",
        )
    raise ProgramError(f"{argv[0]}: {one_line(output) or f'exit code {done.returncode}'}", output=output)


def one_line(output: str) -> str:
    r"""Returns the messages of a program as one line.

    >>> one_line('Unable to run job: unknown resource "gpu".\nExiting.')
    'unknown resource "gpu"'
    """
    text = " ".join(output.split()).removesuffix("Exiting.").strip()
    return re.sub(r"^(error: )?(Unable to run job: )?(denied: )?", "", text).removesuffix(".")[:300]
