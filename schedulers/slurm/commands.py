"""Run Slurm's programs, with a timeout and without a shell."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from functools import cache

from torchx.errors import AbsentError, StateError
from torchx.schedulers.slurm.controller import refusing_addresses, require_slurm
from torchx.scheduling.protocols import UnavailableError

TIMEOUT = 30.0
"""Seconds after which a call times out."""
LIST_TIMEOUT = 10.0
"""Timeout for listings, which query several engines in parallel."""
PROBE_AFTER = 0.5
"""Seconds after which the controller is probed."""
_DATABASE_PROGRAMS = ("sacct", "sacctmgr")
_KEPT_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
_UNREACHABLE = re.compile(
    r"unable to contact|connection (refused|timed out|reset)|connect failure|timed? ?out|"
    r"Communication connection|unable to establish|not responding|resolve|controller addr",
    re.IGNORECASE,
)


class SlurmError(StateError):
    """A Slurm program failed.

    Attributes:
        output: its unmodified output.
    """

    def __init__(self, message: str, *, output: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.output = output


class NoAnswerError(SlurmError, UnavailableError):
    """The controller or the accounting database does not respond."""


def call(
    argv: Sequence[str],
    *,
    text: str | None = None,
    timeout: float = TIMEOUT,
    env: dict[str, str] | None = None,
) -> str:
    """Runs a Slurm program and returns its output.

    Args:
        argv: the program and its arguments.
        text: its stdin.
        timeout: seconds until it is killed.
        env: its environment (default: :func:`clean_env`).

    Raises:
        AbsentError: the program is not installed, or no cluster is configured.
        NoAnswerError: the controller does not respond in time.
        SlurmError: the program fails.
    """
    require_slurm(argv[0])
    try:
        done = _run(argv, text, timeout, clean_env() if env is None else env)
    except OSError as error:
        raise StateError(f"cannot run `{argv[0]}`: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise NoAnswerError(
            f"the Slurm controller does not answer: `{argv[0]}` timed out after {timeout:.0f} s",
            hint="check it with: scontrol ping",
        ) from None
    if done.returncode == 0:
        return done.stdout
    output = (done.stderr or done.stdout).strip()
    if "configuration source" in output:
        raise AbsentError(
            "Slurm is installed, but no cluster is configured: slurm.conf not found",
            hint="use a login node of the cluster, or set SLURM_CONF",
        )
    if _UNREACHABLE.search(output):
        service = "accounting database" if argv[0] in _DATABASE_PROGRAMS else "controller"
        raise NoAnswerError(
            f"the Slurm {service} does not answer ({error_line(output)})",
            output=output,
            hint="check it with: scontrol ping",
        )
    raise SlurmError(f"{argv[0]}: {error_line(output) or f'exit code {done.returncode}'}", output=output)


def _run(
    argv: Sequence[str], text: str | None, timeout: float, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; probes the controller if that takes long.

    Raises:
        NoAnswerError: the controller refuses connections.
        subprocess.TimeoutExpired: the program timed out.
        OSError: the program cannot be run.
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
                out, err = process.communicate(text, timeout=min(PROBE_AFTER, timeout))
            except subprocess.TimeoutExpired:
                if argv[0] not in _DATABASE_PROGRAMS and (addresses := refusing_addresses()):
                    raise NoAnswerError(
                        f"the Slurm controller does not answer: connection refused at {addresses}",
                        hint="check it with: scontrol ping",
                    ) from None
                out, err = process.communicate(timeout=max(timeout - PROBE_AFTER, 0.0))
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def error_line(output: str) -> str:
    """Returns the last line of an output that mentions an error, or its last line.

    >>> error_line("sbatch: note\\nsbatch: error: Batch job submission failed: Invalid qos specification")
    'Batch job submission failed: Invalid qos specification'
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    return re.sub(r"^(\w+: )?(error: )?", "", errors[-1]) if errors else ""


def full_error(output: str) -> str:
    """Returns all error lines of an output as one line, the summary first.

    >>> full_error("sbatch: error: it has DOS line breaks\\nsbatch: error: instead of UNIX line breaks.")
    'it has DOS line breaks instead of UNIX line breaks.'
    >>> full_error("sbatch: error: no x\\nsbatch: error: Batch job submission failed: Invalid qos")
    'Invalid qos (no x)'
    """
    lines = [error_line(line) for line in output.splitlines() if "error" in line.lower()]
    if not lines:
        return error_line(output)
    *more, last = lines
    summary = last.removeprefix("Batch job submission failed: ")
    if summary == last or not more:
        return " ".join([*more, summary])
    return f"{summary} ({'; '.join(more)})"


def clean_env() -> dict[str, str]:
    """Returns the environment without the variables that Slurm sets inside a job."""
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("SLURM_", "SLURMD_", "SRUN_")) or k in _KEPT_VARIABLES
    }
    env["SLURM_TIME_FORMAT"] = "%s"
    return env


def submit_env(options: Sequence[str]) -> dict[str, str]:
    """Returns the environment for sbatch, without variables that would override options of the script.

    Args:
        options: the options in the script.
    """
    env = clean_env()
    del env["SLURM_TIME_FORMAT"]
    for option in options:
        env.pop(f"SBATCH_{option.replace('-', '_').upper()}", None)
    if "time" in options:
        env.pop("SBATCH_TIMELIMIT", None)
    for name in ("REQUEUE", "NO_REQUEUE", "ARRAY_INX", "OUTPUT", "ERROR", "WAIT"):
        env.pop(f"SBATCH_{name}", None)
    return env


@cache
def options_of(program: str) -> frozenset[str] | None:
    """Returns the long options in the help of a Slurm program, or None if it cannot be run."""
    try:
        text = call([program, "--help"], timeout=LIST_TIMEOUT)
    except StateError:
        return None
    return frozenset(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", text))


@cache
def version() -> tuple[int, int] | None:
    """Returns the installed release of Slurm, e.g. ``(22, 5)``, or None if unknown."""
    try:
        match = re.search(r"(\d+)\.(\d+)", call(["squeue", "--version"], timeout=LIST_TIMEOUT))
    except StateError:
        return None
    return (int(match[1]), int(match[2])) if match else None
