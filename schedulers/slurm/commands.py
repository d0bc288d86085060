"""All calls of Slurm's programs: each with a time limit, none through a shell."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from functools import cache

from torchx.errors import AbsentError, StateError
from torchx.schedulers.slurm.controller import refused, require_slurm
from torchx.scheduling.protocols import AwayError

PATIENCE = 30.0
"""Seconds that one call may take."""
QUICK = 10.0
"""The same for a listing, which is asked of many engines at once."""
SOON = 0.5
"""Seconds after which it is looked whether there is a controller at all."""
_OF_DATABASE = ("sacct", "sacctmgr")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
_AWAY = re.compile(
    r"unable to contact|connection (refused|timed out|reset)|connect failure|timed? ?out|"
    r"Communication connection|unable to establish|not responding|resolve|controller addr",
    re.IGNORECASE,
)


class SlurmError(StateError):
    """A program of Slurm refused what it was asked for.

    Attributes:
        said: what it said, as it is.
    """

    def __init__(self, message: str, *, said: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.said = said


class NoAnswerError(SlurmError, AwayError):
    """The controller, or its database, does not answer."""


def call(
    argv: Sequence[str],
    *,
    text: str | None = None,
    patience: float = PATIENCE,
    env: dict[str, str] | None = None,
) -> str:
    """Runs a program of Slurm and returns what it printed.

    Args:
        argv: the program and its arguments.
        text: what it reads.
        patience: seconds that it may take.
        env: its environment; the caller's without what a job around it has left there unless given.

    Raises:
        AbsentError: this machine has no such program, or no cluster is set up for it.
        NoAnswerError: no controller answers, or not in time.
        SlurmError: it refuses what it was asked for.
    """
    require_slurm(argv[0])
    try:
        done = _run(argv, text, patience, clean_env() if env is None else env)
    except OSError as error:
        raise StateError(f"`{argv[0]}` cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise NoAnswerError(
            f"the Slurm controller does not answer: `{argv[0]}` took more than {patience:.0f} s",
            hint="see how it is: scontrol ping",
        ) from None
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or done.stdout).strip()
    if "configuration source" in said:
        raise AbsentError(
            "Slurm's programs are here, and no cluster is set up for them: there is no slurm.conf",
            hint="use a login node of the cluster, or set SLURM_CONF",
        )
    if _AWAY.search(said):
        who = "accounting database" if argv[0] in _OF_DATABASE else "controller"
        raise NoAnswerError(
            f"the Slurm {who} does not answer ({first_line(said)})",
            said=said,
            hint="see how it is: scontrol ping",
        )
    raise SlurmError(f"{argv[0]}: {first_line(said) or f'exit code {done.returncode}'}", said=said)


def _run(
    argv: Sequence[str], text: str | None, patience: float, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; when that takes long, looks whether there is anybody who could answer.

    Raises:
        NoAnswerError: nobody listens where the controller should.
        subprocess.TimeoutExpired: it has not ended in time.
        OSError: it cannot be run.
    """
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="surrogateescape",
        env=env,
    )
    with process:
        try:
            try:
                out, err = process.communicate(text, timeout=min(SOON, patience))
            except subprocess.TimeoutExpired:
                if argv[0] not in _OF_DATABASE and (where := refused()):
                    raise NoAnswerError(
                        f"the Slurm controller does not answer: nobody listens at {where}",
                        hint="see how it is: scontrol ping",
                    ) from None
                out, err = process.communicate(timeout=max(patience - SOON, 0.0))
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def first_line(said: str) -> str:
    """Returns the line of an answer that tells most: the last one that speaks of an error.

    >>> first_line("sbatch: note\\nsbatch: error: Batch job submission failed: Invalid qos specification")
    'Batch job submission failed: Invalid qos specification'
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()] or lines
    return re.sub(r"^(\w+: )?(error: )?", "", telling[-1]) if telling else ""


def whole_error(said: str) -> str:
    """Returns all lines of an answer that speak of an error, as one; the sum of them first.

    >>> whole_error("sbatch: error: it has DOS line breaks\\nsbatch: error: instead of UNIX line breaks.")
    'it has DOS line breaks instead of UNIX line breaks.'
    >>> whole_error("sbatch: error: no x\\nsbatch: error: Batch job submission failed: Invalid qos")
    'Invalid qos (no x)'
    """
    lines = [first_line(line) for line in said.splitlines() if "error" in line.lower()]
    if not lines:
        return first_line(said)
    *more, last = lines
    summed = last.removeprefix("Batch job submission failed: ")
    if summed == last or not more:
        return " ".join([*more, summed])
    return f"{summed} ({'; '.join(more)})"


def clean_env() -> dict[str, str]:
    """Returns the environment without what a job leaves in it: a job in a job is a job of its own."""
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SLURMD_", "SRUN_")) or k in _KEPT
    }
    env["SLURM_TIME_FORMAT"] = "%s"
    return env


def submit_env(options: Sequence[str]) -> dict[str, str]:
    """Returns the environment for sbatch: variables such as SBATCH_PARTITION would win over its script.

    Args:
        options: the options that the script has.
    """
    env = clean_env()
    del env["SLURM_TIME_FORMAT"]
    for option in options:
        env.pop(f"SBATCH_{option.replace('-', '_').upper()}", None)
    if "time" in options:
        env.pop("SBATCH_TIMELIMIT", None)
    for ours in (
        "SBATCH_REQUEUE",
        "SBATCH_NO_REQUEUE",
        "SBATCH_ARRAY_INX",
        "SBATCH_OUTPUT",
        "SBATCH_ERROR",
        "SBATCH_WAIT",
    ):
        env.pop(ours, None)
    return env


@cache
def options_of(program: str) -> frozenset[str] | None:
    """Returns the long options that a program on this machine takes, by its help; None when there is none."""
    try:
        told = call([program, "--help"], patience=QUICK)
    except StateError:
        return None
    return frozenset(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", told))


@cache
def version() -> tuple[int, int] | None:
    """Returns the release of Slurm on this machine, e.g. ``(22, 5)``; None when it does not tell."""
    try:
        found = re.search(r"(\d+)\.(\d+)", call(["squeue", "--version"], patience=QUICK))
    except StateError:
        return None
    return (int(found[1]), int(found[2])) if found else None
