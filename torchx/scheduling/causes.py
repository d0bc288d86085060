"""The cause of the state of an application: one table of causes, with their evidence and advice.

A cause is a fact that the engine reports, or a line that the program has printed; never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torchx.end_causes import cause_in
from torchx.exit_codes import KILLED
from torchx.printable import shortened, table
from torchx.scheduling.failure_causes import printed_cause
from torchx.specs.status import AppState, EndCause, FirstFailure


class Cause(NamedTuple):
    """The cause of the state of an application.

    Attributes:
        name: the cause, one of :data:`ADVICE`.
        source: the origin of the evidence: ``engine``, ``exit`` (exit code or signal) or ``output``.
        evidence: the facts, one line.
        line: the line of the output that names the cause; empty if none does.
        signal: the signal, if it is all that is known.
    """

    name: str
    source: str
    evidence: str
    line: str = ""
    signal: str = ""

    @property
    def advice(self) -> str:
        """The usual remedy, or an empty string."""
        return ADVICE[self.name] or SIGNALS.get(self.signal, "")


UNKNOWN = Cause("unknown", "engine", "")

_ADVICE = """
succeeded:
running:
waiting: it starts when the engine has free resources; torchx doctor checks the engine
queued: torchx queue shows the order and the users of GPUs; torchx list --state running the jobs
held: it does not start until it is released
after: it starts as soon as this has happened
unknown: torchx doctor checks the engine
cancelled:
out_of_memory: request more memory, or reduce the memory that the program needs
time_limit: request more time, or save checkpoints and continue from them
preempted: submit it again, or allow retries; save checkpoints and continue from them
node_lost: submit it again, or allow retries: the program did not cause this
supervisor_lost: another process ended the supervisor of the application: submit it again
stalled: compare the last lines of all replicas; while it runs, torchx stacks shows its processes
removed: another command removed its container or pod, and its result with it: submit it again
dependency_failed: check the job that it depends on, then submit it again
service_ended: a service runs until the other roles have ended: check why its program ends
not_ready: check the service and its probe, or allow it more time with `within`
image: check the name of the image, and the access to its registry
preflight: check the host, or exclude it; torchx doctor --gpus checks the GPUs of this machine
setup_once: check the command of setup_once; the log has its output, in the lines with `torchx setup`
missing_program: check the program, its interpreter, and PATH in the image or on the node
not_started: check the request
signal:
cuda_out_of_memory: reduce the batch size, or use GPUs with more memory
cuda_error: check GPUs and driver with nvidia-smi; CUDA_LAUNCH_BLOCKING=1 shows the failing call
nccl_timeout: find the replica that did not join: compare the last lines of all replicas
nccl_error: NCCL_DEBUG=INFO shows the cause; check the network between the nodes
import_error: install the module where the program runs, or check PYTHONPATH and the workspace
syntax_error: correct the program, or run it with the Python that it is written for
disk_full: free space, or write elsewhere
permission_denied: check the owner and the mode of the file, and whether it is mounted read-only
port_in_use: end the process that uses the port, or choose another port
usage_error: check the arguments of the program
allocation_failed: the program could not allocate memory: request more, or reduce its use
assertion: the program checked a condition that does not hold
exception:
exit_code:
"""

ADVICE = table(_ADVICE)
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

_LONGEST = 240
"""Maximum characters of a quoted line."""


def classify(
    state: AppState,
    msg: str,
    first: FirstFailure | None,
    lines: Sequence[str] = (),
    error: Sequence[str] = (),
    known: EndCause | None = None,
) -> Cause:
    """Returns the cause of the state of an application.

    Args:
        state: its state.
        msg: the reason that the engine gives.
        first: the replica that failed first.
        lines: the last lines of the output of that replica, without control codes.
        error: the message in its error file, line by line.
        known: the cause of the state, if the engine or the supervisor knows it.

    >>> failure = FirstFailure("w", 0, 1, exit_code=1)
    >>> classify(AppState.FAILED, "", failure, ["ModuleNotFoundError: No module named 'x'"])[:3:2]
    ('import_error', "exit code 1; the log ends with ModuleNotFoundError: No module named 'x'")
    >>> classify(AppState.FAILED, "", FirstFailure("w", 0, 1, signal="SIGKILL")).name
    'signal'
    """
    reasons = [text for text in (first.msg if first is not None else "", msg) if text]
    if state is AppState.FAILED:
        cause = _reported(first, msg, reasons, known) or _printed(first, [*lines, *error])
        return cause or _exit_status(first, reasons)
    return _of_state(state, msg, reasons, known)


_NOT_PASSING = (EndCause.IMAGE, EndCause.MISSING_PROGRAM, EndCause.NOT_STARTED)
"""The causes because of which a replica waits, but cannot start."""
_PLAIN = {
    "succeeded": "it ended with exit code 0",
    "running": "it has not ended",
    "cancelled": "it was cancelled",
}


def _of_state(state: AppState, msg: str, reasons: Sequence[str], known: EndCause | None) -> Cause:
    """Returns the cause of the state of an application that has not failed."""
    waits = state in (AppState.SUBMITTED, AppState.PENDING)
    if waits and known is None:
        known = cause_in(msg)
    if known in (EndCause.STALLED, EndCause.DEPENDENCY_FAILED) or (waits and known in _NOT_PASSING):
        return _known(known, msg, None)
    if waits:
        if reasons:
            evidence = reasons[-1]
        else:
            evidence = f"it is {state.name}"
        return Cause("waiting", "engine", evidence.removeprefix("waiting "))
    name = "unknown"
    if state.name.lower() in ADVICE:
        name = state.name.lower()
    evidence = "" if msg == name else msg
    return Cause(name, "engine", evidence or _PLAIN.get(name, f"it is {state.name}"))


def _known(cause: EndCause, reason: str, first: FirstFailure | None) -> Cause:
    """Returns a cause that the engine or the supervisor knows."""
    evidence = ": ".join(filter(None, (_how(first), reason)))
    return Cause(cause.value, "engine", evidence or f"reported as {cause.value}")


def _reported(
    first: FirstFailure | None, msg: str, reasons: Sequence[str], known: EndCause | None
) -> Cause | None:
    """Returns the known cause of the first failure or the application, else that in a plugin's message."""
    if first is not None and first.cause is not None:
        return _known(first.cause, first.msg or msg, first)
    if known is not None:
        return _known(known, msg, first)
    for reason in reasons:
        if cause := cause_in(reason):
            return _known(cause, reason, first)
    return None


def _printed(first: FirstFailure | None, lines: Sequence[str]) -> Cause | None:
    """Returns the cause that the last lines of the output name."""
    if first is None:
        return None
    name, line = printed_cause(first.exit_code, first.signal, lines)
    if not name:
        return None
    line = shortened(line, _LONGEST)
    source = "output" if line else "exit"
    return Cause(name, source, f"{_how(first)}; the log ends with {line}" if line else _how(first), line)


def _exit_status(first: FirstFailure | None, reasons: Sequence[str]) -> Cause:
    if first is None:
        return Cause("unknown", "engine", reasons[0] if reasons else "the engine gives no exit code")
    reported = "; ".join(dict.fromkeys(reasons))
    if first.signal:
        if reported:
            return Cause("signal", "exit", f"{_how(first)}: {reported}")
        return Cause("signal", "exit", _how(first), signal=first.signal)
    if first.exit_code is None:
        return Cause("not_started", "engine", reported or "it has no exit code")
    return Cause("exit_code", "exit", _how(first) + (f": {reported}" if reported else ""))


def _how(first: FirstFailure | None) -> str:
    if first is None or (first.exit_code is None and not first.signal):
        return ""
    if first.signal:
        return f"killed by {first.signal}"
    return f"exit code {first.exit_code}"
