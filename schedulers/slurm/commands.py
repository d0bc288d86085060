"""Run Slurm's programs, with a timeout and without a shell; check that they and the controller exist."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from torchx.errors import AbsentError, StateError
from torchx.lazy import lazy_imports
from torchx.machine import processes
from torchx.schedulers.shared.batch.errors import NoAnswerError as NoAnswerError
from torchx.schedulers.shared.batch.errors import ProgramError as ProgramError

with lazy_imports:
    import socket
    import subprocess

TIMEOUT = 30.0
"""Seconds after which a call times out."""
LIST_TIMEOUT = 10.0
"""Timeout for listings, which query several engines in parallel."""
PROBE_AFTER = 0.5
"""Seconds after which the controller is probed."""
_DATABASE_PROGRAMS = ("sacct", "sacctmgr")
_KEPT_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK_SOCKET")
_VARIABLES = (
    r"(SLURM|SLURMD|SRUN|SALLOC|SACCT|SACCTMGR|SCANCEL|SCONTROL|SINFO|SQUEUE|SSTAT|"
    r"PMI|PMI2|PMIX|PRTE|OMPI_COMM|OMPI_UNIVERSE|MPI_LOCALNRANKS|MPI_LOCALRANKID)(_|$)"
)
"""Start of the variables that Slurm and starters of MPI set inside a job, such as CPU masks and ranks, and of
defaults of options of Slurm's programs."""
PORT = 6817
"""Default port of a controller."""
_CONFIG_FILES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
_LINE = r"(?i)^\s*(SlurmctldHost|SlurmctldPort|ControlMachine|ControlAddr)\s*=\s*(\S+)"
_UNREACHABLE = (
    r"(?i)unable to contact|connection (refused|timed out|reset)|connect failure|timed? ?out|"
    r"Communication connection|unable to establish|not responding|resolve|controller addr"
)


def call(
    argv: Sequence[str],
    *,
    text: str | None = None,
    timeout: float = TIMEOUT,
    env: dict[str, str] | None = None,
    held: Sequence[int] = (),
) -> str:
    """Runs a Slurm program and returns its output; see :func:`begin`."""
    return begin(argv, text=text, timeout=timeout, env=env, held=held)()


def change_jobs(argv: Sequence[str], over: str = "already complet") -> None:
    """Runs a Slurm program that changes jobs, which may have ended meanwhile.

    Args:
        argv: the program and its arguments.
        over: the error of the program for a job that has ended.
    """
    try:
        call(argv)
    except NoAnswerError:
        raise
    except ProgramError as error:
        if "nvalid job" not in error.output and over not in error.output:
            raise


def begin(
    argv: Sequence[str],
    *,
    text: str | None = None,
    timeout: float = TIMEOUT,
    env: dict[str, str] | None = None,
    held: Sequence[int] = (),
) -> Callable[[], str]:
    """Starts a Slurm program, so that the caller can work while it runs.

    Args:
        argv: the program and its arguments.
        text: its stdin.
        timeout: seconds until it is killed, from the call of the result.
        env: its environment (default: :func:`clean_env`).
        held: descriptors of locks that are held until it has ended, even if this process is killed.

    Returns:
        A function that waits for its end and returns its output. It must be called once.

    Raises:
        AbsentError: the program is not installed, or no cluster is configured (the latter by the function).
        NoAnswerError: the controller does not respond in time (by the function).
        ProgramError: the program fails (by the function).
    """
    require_slurm(argv[0])
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
            env=clean_env() if env is None else env,
            pass_fds=held,
        )
    except OSError as error:
        raise StateError(f"cannot run `{argv[0]}`: {processes.start_error(error)}") from error
    return lambda: _output(process, argv, text, timeout)


def _output(process: subprocess.Popen[str], argv: Sequence[str], text: str | None, timeout: float) -> str:
    """Returns the output of a program after its end; see :func:`begin`."""
    try:
        done = _wait(process, argv, text, timeout)
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
    if re.search(_UNREACHABLE, output):
        service = "controller"
        if argv[0] in _DATABASE_PROGRAMS:
            service = "accounting database"
        raise NoAnswerError(
            f"the Slurm {service} does not answer ({error_line(output)})",
            output=output,
            hint="check it with: scontrol ping",
        )
    raise ProgramError(f"{argv[0]}: {error_line(output) or f'exit code {done.returncode}'}", output=output)


def _wait(
    process: subprocess.Popen[str], argv: Sequence[str], text: str | None, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Waits for the end of a program; probes the controller if that takes long.

    Raises:
        NoAnswerError: the controller refuses connections.
        subprocess.TimeoutExpired: the program timed out.
    """
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
    if errors:
        return re.sub(r"^(\w+: )?(error: )?", "", errors[-1])
    return ""


def full_error(output: str) -> str:
    """Returns all error lines of an output as one line, the summary first; all lines if there are none.

    >>> full_error("sbatch: error: it has DOS line breaks\\nsbatch: error: instead of UNIX line breaks.")
    'it has DOS line breaks instead of UNIX line breaks.'
    >>> full_error("sbatch: error: no x\\nsbatch: error: Batch job submission failed: Invalid qos")
    'Invalid qos (no x)'
    >>> full_error("sbatch: unrecognized option --no\\nTry sbatch --help")
    'unrecognized option --no Try sbatch --help'
    """
    lines = [error_line(line) for line in output.splitlines() if "error" in line.lower()]
    if not lines:
        return re.sub(r"^\w+: ", "", " ".join(output.split()))
    *more, last = lines
    summary = last.removeprefix("Batch job submission failed: ")
    if summary == last or not more:
        return " ".join([*more, summary])
    return f"{summary} ({'; '.join(more)})"


def clean_env() -> dict[str, str]:
    """Returns the environment without variables that change the effect or the output of Slurm programs.

    Those of the site, such as ``SLURM_CONF``, and the defaults of sbatch remain.
    """
    env = {k: v for k, v in os.environ.items() if not re.match(_VARIABLES, k) or k in _KEPT_VARIABLES}
    env["SLURM_TIME_FORMAT"] = "%s"
    return env


def submit_env(options: Sequence[str]) -> dict[str, str]:
    """Returns the environment for sbatch, without variables that would override options of the script.

    Args:
        options: the options in the script.
    """
    names = [*options, "requeue", "no-requeue", "array-inx", "input", "output", "error", "wait"]
    if "time" in options:
        names.append("timelimit")
    if any(option in ("mem", "mem-per-cpu", "mem-per-gpu") for option in options):
        names += ["mem-per-node", "mem-per-cpu", "mem-per-gpu"]
    dropped = {f"SBATCH_{name.replace('-', '_').upper()}" for name in names} | {"SLURM_TIME_FORMAT"}
    return {name: value for name, value in clean_env().items() if name not in dropped}


def answer(argv: Sequence[str]) -> str:
    """Returns the output of a Slurm program, or an empty string if it fails."""
    try:
        return call(argv, timeout=LIST_TIMEOUT)
    except StateError:
        return ""


@cache
def options_of(program: str) -> frozenset[str]:
    """Returns the long options in the help of a Slurm program; empty if it cannot be run."""
    return frozenset(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", answer([program, "--help"])))


@cache
def version() -> tuple[int, int] | None:
    """Returns the installed release of Slurm, e.g. ``(22, 5)``, or None if unknown."""
    match = re.search(r"(\d+)\.(\d+)", answer(["squeue", "--version"]))
    if match:
        return (int(match[1]), int(match[2]))
    return None


def require_slurm(program: str) -> None:
    """Checks that a Slurm program is installed.

    Raises:
        AbsentError: the program is not on PATH, or the file in ``SLURM_CONF`` does not exist.
    """
    path = os.environ.get("SLURM_CONF")
    if path and not Path(path).exists():  # Slurm's programs would wait a minute for it
        raise AbsentError(f"Slurm is not configured: SLURM_CONF={path} does not exist")
    if shutil.which(program) is None:
        raise AbsentError(
            f"Slurm is not installed: `{program}` is not on PATH",
            hint="use a login node of the cluster",
        )


def refusing_addresses() -> str:
    """Returns the addresses of the configured controllers if all of them refuse connections.

    Returns an empty string if one accepts a connection, or if the addresses or their state are unknown.
    """
    try:
        addresses = list(_controllers(_configuration()))
    except (OSError, ValueError):
        return ""
    for host, port in addresses:
        try:
            socket.create_connection((host, port), 1.0).close()
        except ConnectionRefusedError:
            continue
        except OSError:
            return ""
        return ""
    return ", ".join(f"{host}:{port}" for host, port in addresses)


def _configuration() -> str:
    path = os.environ.get("SLURM_CONF") or next((p for p in _CONFIG_FILES if Path(p).exists()), "")
    if path:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""


def _controllers(text: str) -> Iterator[tuple[str, int]]:
    """Yields the addresses of all controllers.

    >>> list(_controllers("SlurmctldHost=a(10.0.0.1)\\nSlurmctldHost=b\\nSlurmctldPort=6820-6822\\n"))
    [('10.0.0.1', 6820), ('b', 6820)]
    """
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := re.match(_LINE, line.partition("#")[0]):
            settings.setdefault(match[1].lower(), []).append(match[2])
    port = int(settings.get("slurmctldport", [str(PORT)])[-1].partition("-")[0])
    hosts = (
        settings.get("slurmctldhost") or settings.get("controladdr") or settings.get("controlmachine") or []
    )
    for host in hosts:
        name, _, address = host.partition("(")
        yield address.rstrip(")") or name, port
