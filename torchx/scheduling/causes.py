"""The cause of the state of an application: one table of causes, with their evidence and advice.

A cause is a fact that the engine reports, or a line that the program has printed; never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from torchx.exit_codes import KILLED
from torchx.specs.status import AppState, FirstFailure


class Cause(NamedTuple):
    """The cause of the state of an application.

    Attributes:
        name: the cause, one of :data:`ADVICE`.
        source: the origin of the evidence: ``engine``, ``exit`` (exit code or signal) or ``output``.
        evidence: the facts, one line.
        line: the line of the output that names the cause; empty if none does.
    """

    name: str
    source: str
    evidence: str
    line: str = ""

    @property
    def advice(self) -> str:
        """The usual remedy, or an empty text."""
        return ADVICE[self.name]


ADVICE = {
    "succeeded": "",
    "running": "to wait for its end: torchx wait",
    "waiting": "it starts when the engine has free resources; torchx doctor checks the engine",
    "unknown": "torchx doctor checks the engine",
    "cancelled": "torchx rerun submits it again",
    "out_of_memory": "request more memory, or reduce the memory that the program needs",
    "time_limit": "request more time, or save checkpoints and continue from them",
    "preempted": "submit it again, or allow retries; save checkpoints and continue from them",
    "node_lost": "submit it again, or allow retries: the program did not cause this",
    "supervisor_lost": "another process ended the supervisor of the application: submit it again",
    "image": "check the name of the image, and the access to its registry",
    "missing_program": "check the program, its interpreter, and PATH in the image or on the node",
    "not_started": "check the request: torchx describe shows it",
    "signal": "",
    "cuda_out_of_memory": "reduce the batch size, or use GPUs with more memory",
    "cuda_error": "check GPUs and driver with nvidia-smi; CUDA_LAUNCH_BLOCKING=1 shows the failing call",
    "nccl_timeout": "find the replica that did not join: compare the last lines of all replicas",
    "nccl_error": "NCCL_DEBUG=INFO shows the cause; check the network between the nodes",
    "import_error": "install the module where the program runs, or check PYTHONPATH and the workspace",
    "disk_full": "free space, or write elsewhere",
    "port_in_use": "end the process that uses the port, or choose another port",
    "usage_error": "check the arguments of the program",
    "allocation_failed": "the program could not allocate memory: request more, or reduce its use",
    "assertion": "the program checked a condition that does not hold",
    "exception": "",
    "exit_code": "",
}
"""Each cause with its usual remedy."""

SIGNALS = {
    "SIGKILL": KILLED,
    "SIGSEGV": "invalid memory access, usually a bug in native code",
    "SIGABRT": "aborted, usually by a failed assertion in native code",
    "SIGBUS": "usually a full /dev/shm, or a mapped file that was truncated",
    "SIGILL": "the program uses instructions that this processor does not support",
    "SIGFPE": "usually an integer division by zero in native code",
    "SIGTERM": "another process terminated it",
    "SIGXCPU": "the CPU time limit was reached",
}
"""Usual causes of fatal signals: advice, never the cause itself."""

_MESSAGES = (
    # the messages that engines report for a replica or an application
    ("out_of_memory", r"^out of memory\b"),
    ("time_limit", r"^(time limit reached|the CPU time limit|it timed out|its deadline passed)"),
    ("preempted", r"^preempted\b"),
    (
        "node_lost",
        r"^(a node (failed|could not be)|evicted\b|taken (from|before)|node \S+ no longer exists|"
        r"it was lost with its node|its pod no longer exists|the machine was restarted)",
    ),
    ("supervisor_lost", r"^its supervisor (was killed|failed)"),
    ("image", r"image cannot be pulled|\b(ErrImagePull|ImagePullBackOff|InvalidImageName)\b"),
    ("missing_program", r"executable file not found|[Ee]xec format error"),
    ("not_started", r"^it could not be started|could not be started: |^its init container .* ended with"),
)

_LINES = (
    ("cuda_out_of_memory", r"(CUDA|HIP) out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"),
    ("nccl_timeout", r"collective operation timeout|ProcessGroupNCCL.*\btimed out\b"),
    ("nccl_error", r"\bNCCL error\b|\bnccl(\w+)Error\b|\bDistBackendError\b"),
    (
        "cuda_error",
        r"\bCUDA error\b|\bcudaError\w+|\bCU(BLAS|DNN)_STATUS_(?!SUCCESS)\w+|device-side assert|"
        r"[Nn]o CUDA GPUs are available|Found no NVIDIA driver",
    ),
    ("import_error", r"^(ModuleNotFoundError|ImportError)\b"),
    ("disk_full", r"No space left on device|Disk quota exceeded"),
    ("port_in_use", r"[Aa]ddress already in use|EADDRINUSE"),
    (
        "allocation_failed",
        r"^(\w+\.)*_?(ArrayMemoryError|MemoryError)\b|std::bad_alloc|[Cc]an(not|'t) allocate memory",
    ),
    ("assertion", r"^AssertionError\b|: Assertion .* failed"),
)

_TABLE = {
    table: tuple((name, re.compile(pattern)) for name, pattern in rows)
    for table, rows in (("messages", _MESSAGES), ("lines", _LINES))
}
_USAGE = re.compile(r"^usage: |\berror: (argument |the following arguments |unrecognized arguments)", re.I)
_NOT_FOUND = re.compile(r"not found|No such file|[Pp]ermission denied|bad interpreter|cannot execute", re.I)
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Expired|Timeout|Iteration)(?::|$)"
)
_WRAPPERS = re.compile(
    r"^(?:\w+\.)*(ChildFailedError|SystemExit|CalledProcessError|ProcessExitedException)\b"
)
_PREFIX = re.compile(r"^(?:\[[\w /.:-]{1,40}\]:? ?)+")
_NOT_RUN = (126, 127)
"""The exit codes of a shell that cannot run a program."""

_LONGEST = 240
"""Maximum characters of a quoted line."""


def classify(
    state: AppState,
    msg: str,
    first: FirstFailure | None,
    lines: Sequence[str] = (),
    error: Sequence[str] = (),
) -> Cause:
    """Returns the cause of the state of an application.

    Args:
        state: its state.
        msg: the reason that the engine gives.
        first: the replica that failed first.
        lines: the last lines of the output of that replica, without control codes.
        error: the message in its error file, line by line.

    >>> failure = FirstFailure("w", 0, 1, exit_code=1)
    >>> classify(AppState.FAILED, "", failure, ["ModuleNotFoundError: No module named 'x'"])[::2]
    ('import_error', "exit code 1; the last lines name ModuleNotFoundError: No module named 'x'")
    >>> classify(AppState.FAILED, "", FirstFailure("w", 0, 1, signal="SIGKILL")).name
    'signal'
    """
    reasons = [text for text in (first.msg if first is not None else "", msg) if text and text != KILLED]
    if state is AppState.FAILED:
        return _reported(reasons, first) or _printed(first, [*lines, *error]) or _exit_status(first, reasons)
    if state in (AppState.SUBMITTED, AppState.PENDING):
        found = _reported(reasons, None)
        if found is not None and found.name in ("image", "missing_program", "not_started"):
            return found
        return Cause("waiting", "engine", reasons[-1] if reasons else f"it is {state.name}")
    name = state.name.lower() if state.name.lower() in ADVICE else "unknown"
    evidence = "" if msg == name else msg
    return Cause(name, "engine", evidence or f"its state is {state.name}")


def _reported(reasons: Sequence[str], first: FirstFailure | None) -> Cause | None:
    """Returns the cause that the engine reports."""
    not_run = first is not None and first.exit_code in _NOT_RUN
    for reason in reasons:
        found = (name for name, pattern in _TABLE["messages"] if pattern.search(reason))
        name = next(found, "missing_program" if not_run and _NOT_FOUND.search(reason) else "")
        if name:
            how = _how(first)
            return Cause(name, "engine", f"{how}: {reason}" if how else reason)
    return None


def _printed(first: FirstFailure | None, lines: Sequence[str]) -> Cause | None:
    """Returns the cause that the last lines of the output name.

    After a signal, the program has printed its cause only if it has aborted itself.
    """
    if first is None or (first.signal is not None and first.signal != "SIGABRT"):
        return None
    plain = [_PREFIX.sub("", line).strip() for line in lines]
    if first.exit_code in _NOT_RUN:
        line = next((line for line in reversed(plain) if _NOT_FOUND.search(line)), "")
        return _named("missing_program", first, line)
    raised = [line for line in plain if _EXCEPTION.search(line)]
    own = [line for line in raised if not _WRAPPERS.search(line)]
    for line in (own or raised)[-1:]:  # the last one has ended the program
        return _named(_cause_of(line) or "exception", first, line)
    if first.exit_code == 2:
        line = next((line for line in reversed(plain) if _USAGE.search(line)), "")
        if line:
            return _named("usage_error", first, line)
    for line in reversed(plain):
        name = _cause_of(line)
        if name is not None:
            return _named(name, first, line)
    return None


def _cause_of(line: str) -> str | None:
    return next((name for name, pattern in _TABLE["lines"] if pattern.search(line)), None)


def _named(name: str, first: FirstFailure, line: str) -> Cause:
    line = line if len(line) <= _LONGEST else line[: _LONGEST - 2] + ".."
    source = "output" if line else "exit"
    return Cause(name, source, f"{_how(first)}; the last lines name {line}" if line else _how(first), line)


def _exit_status(first: FirstFailure | None, reasons: Sequence[str]) -> Cause:
    if first is None:
        return Cause("unknown", "engine", reasons[0] if reasons else "the engine reports no failed replica")
    reported = "; ".join(dict.fromkeys(reasons))
    if first.signal:
        return Cause("signal", "exit", _how(first))
    if first.exit_code is None:
        return Cause("not_started", "engine", reported or "it has no exit code")
    return Cause("exit_code", "exit", _how(first) + (f": {reported}" if reported else ""))


def _how(first: FirstFailure | None) -> str:
    if first is None or (first.exit_code is None and not first.signal):
        return ""
    return f"killed by {first.signal}" if first.signal else f"exit code {first.exit_code}"
