"""Tests of the classification of causes: each class with the evidence that proves it, and near misses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.exit_codes import KILLED
from torchx.machine.out_of_memory import OTHER
from torchx.schedulers.kubernetes.names import DISRUPTED
from torchx.schedulers.kubernetes.state import taken
from torchx.schedulers.shared.batch import ends as reasons
from torchx.scheduling.causes import ADVICE, classify
from torchx.specs.status import AppState, EndCause, FirstFailure, Reason

F = AppState.FAILED


def failure(exit_code: int | None = 1, signal: str | None = None, msg: str = "") -> FirstFailure:
    return FirstFailure("w", 0, 1, None if signal else exit_code, signal, msg)


PRINTED = [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", 1, "cuda_out_of_memory"),
    ("[rank3]: RuntimeError: CUDA error: device-side assert triggered", 1, "cuda_error"),
    ("RuntimeError: No CUDA GPUs are available", 1, "cuda_error"),
    ("[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1", 1, "nccl_error"),
    ("ModuleNotFoundError: No module named 'x'", 1, "import_error"),
    ("ImportError: libcudart.so.12: cannot open shared object file", 1, "import_error"),
    ("/usr/bin/python3.12: No module named train", 1, "import_error"),
    (
        "python: No module named a.__main__; 'a' is a package and cannot be directly executed",
        1,
        "import_error",
    ),
    (
        "python: Error while finding module specification for 'a.b' (ModuleNotFoundError: x)",
        1,
        "import_error",
    ),
    ("OSError: [Errno 28] No space left on device: 'a'", 1, "disk_full"),
    ("PermissionError: [Errno 13] Permission denied: 'a'", 1, "permission_denied"),
    ("OSError: [Errno 30] Read-only file system: 'a'", 1, "permission_denied"),
    ("OSError: [Errno 98] Address already in use", 1, "port_in_use"),
    ("train.py: error: the following arguments are required: --data", 2, "usage_error"),
    ("AssertionError: shape", 1, "assertion"),
    ("AssertionError", 1, "assertion"),
    ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 1 TiB", 1, "allocation_failed"),
    ("ValueError: x", 1, "exception"),
    ("subprocess.TimeoutExpired: Command 'x' timed out", 1, "exception"),
    ("sh: 1: trian: not found", 127, "missing_program"),
    ("env: 'pyhton3': No such file or directory", 127, "missing_program"),
    ("sh: 1: ./a.sh: Permission denied", 126, "missing_program"),
    ("bash: ./a.sh: /bin/nope: bad interpreter: No such file or directory", 126, "missing_program"),
]


@pytest.mark.parametrize(("line", "code", "name"), PRINTED)
def test_a_printed_line_names_the_cause(line: str, code: int, name: str) -> None:
    cause = classify(F, "", failure(code), ["before", line, "", "Exiting."])
    assert (cause.name, cause.source) == (name, "output")
    quoted = line.partition("]: ")[2] if line.startswith("[rank") else line
    assert (cause.evidence, cause.line) == (f"exit code {code}; the log ends with {quoted}", quoted)


def test_last_exception_counts_and_those_of_launchers_do_not() -> None:
    lines = [
        "ValueError: handled, the program tries again",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    ]
    assert classify(F, "", failure(), lines).name == "cuda_out_of_memory"
    assert classify(F, "", failure(), lines[2:]).name == "exception"
    assert classify(F, "", failure(), [*lines, "KeyError: 'x'"]).line == "KeyError: 'x'"


def test_abort_has_printed_cause_and_other_signals_have_none() -> None:
    lines = ["[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)"]
    assert classify(F, "", failure(signal="SIGABRT"), lines).name == "nccl_timeout"
    for signal in ("SIGKILL", "SIGSEGV", "SIGTERM"):
        cause = classify(F, "", failure(signal=signal), [*lines, "ValueError: earlier"])
        assert (cause.name, cause.source, cause.evidence) == ("signal", "exit", f"killed by {signal}")


def test_memory_is_cause_only_if_engine_says_so() -> None:
    killed = classify(F, "", failure(signal="SIGKILL", msg=f"{KILLED}; peak memory 3 GB"))
    assert (killed.name, killed.source) == ("signal", "exit")
    counted = classify(F, "", failure(signal="SIGKILL", msg=OTHER))
    assert (counted.evidence, counted.advice) == (f"killed by SIGKILL: {OTHER}", "")
    answer = classify(F, "", failure(signal="SIGKILL", msg="out of memory: its limit is 512 MB"))
    assert (answer.name, answer.source) == ("out_of_memory", "engine")
    assert answer.evidence == "killed by SIGKILL: out of memory: its limit is 512 MB"


def test_every_failure_of_slurm_has_a_cause() -> None:
    assert reasons.CAUSES[reasons.SCRIPT_KILLED] is EndCause.SUPERVISOR_LOST
    # messages in records of earlier versions, which have no causes
    earlier = {word: msg for word, msg in reasons.FAILURES.items() if msg and word != reasons.SCRIPT_KILLED}
    assert {word: classify(F, msg, None).name for word, msg in earlier.items()} == {
        "TIMEOUT": "time_limit",
        "DEADLINE": "time_limit",
        "NODE_FAIL": "node_lost",
        "BOOT_FAIL": "node_lost",
        "RECONFIG_FAIL": "node_lost",
        "PREEMPTED": "preempted",
        "OUT_OF_MEMORY": "out_of_memory",
        "LAUNCH_FAILED": "not_started",
    }


def test_every_disruption_of_kubernetes_has_a_cause() -> None:
    for reason, phrase in taken._DISRUPTIONS.items():
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        cause = taken.cause_of({"status": {"conditions": [condition]}})
        expected = "preempted" if reason == "PreemptionByScheduler" else "node_lost"
        assert classify(F, "", failure(msg=phrase.format(node="n1"))).name == expected, "noted in its Job"
        assert cause.value == expected
    assert taken.cause_of({"status": {"reason": "Evicted"}}) is EndCause.NODE_LOST
    assert taken.cause_of({"status": {}}) is EndCause.REMOVED


def test_a_disruption_is_noted_with_its_cause() -> None:
    key = f"{DISRUPTED}0-abc12"
    notes = {key: "2026-11-28T10:00:00Z;removed deleted", key[:-1]: "2026-11-28T09:00:00Z;node_lost evicted"}
    found = taken.noted({"metadata": {"annotations": notes}})[0]
    assert found == [Reason("evicted", EndCause.NODE_LOST), Reason("deleted", EndCause.REMOVED)]
    assert taken.was_disrupted(found, None) and not taken.was_disrupted(found[1:], None)
    old = {key: f"2026-11-28T10:00:00Z {taken.BY_HAND}"}
    found = taken.noted({"metadata": {"annotations": old}})[0]
    assert found == [Reason(taken.BY_HAND, EndCause.REMOVED)]


@pytest.mark.parametrize(
    ("msg", "code", "name"),
    [
        ("it timed out", 143, "time_limit"),
        ("the CPU time limit of 2 s (ulimit -t) was reached", 137, "time_limit"),
        ("out of memory: the kernel counts an out-of-memory kill; peak memory 2 MB", 137, "out_of_memory"),
        ("it was lost with its node", None, "node_lost"),
        ('it could not be started: "nope": executable file not found in $PATH', None, "missing_program"),
        ("it could not be started: permission denied on /data", None, "not_started"),
        ("nope: No such file or directory", 127, "missing_program"),
        ("its supervisor was killed", None, "supervisor_lost"),
        ("not ready within 2s: probe tcp:9: Connection refused", 143, "not_ready"),
        ("the machine was restarted while it ran", None, "node_lost"),
        ("9 bytes of output were lost: disk full", 3, "exit_code"),
    ],
)
def test_messages_of_the_engines(msg: str, code: int | None, name: str) -> None:
    cause = classify(F, "", failure(code, msg=msg))
    assert cause.name == name
    assert msg in cause.evidence


@pytest.mark.parametrize("cause", EndCause)
def test_a_known_cause_needs_no_message(cause: EndCause) -> None:
    end = FirstFailure("w", 0, 1, None, "SIGABRT", "9 bytes of output were lost", cause)
    lines = ["ModuleNotFoundError: No module named 'x'"]
    found = classify(F, "", end, lines)
    assert (found.name, found.source) == (cause.value, "engine")
    assert found.evidence == "killed by SIGABRT: 9 bytes of output were lost"
    assert classify(F, "", failure(3), known=cause).name == cause.value
    assert classify(F, "", None, known=cause).evidence
    assert found.advice


def test_a_stall_explains_an_application_that_has_not_failed() -> None:
    for state in (AppState.RUNNING, AppState.CANCELLED):
        stalled = classify(state, "stalled for 3 min", None, known=EndCause.STALLED)
        assert stalled[:3] == ("stalled", "engine", "stalled for 3 min")
    cancelled = classify(AppState.CANCELLED, "cancelled", None, known=EndCause.SUPERVISOR_LOST)
    assert cancelled.name == "cancelled"


def test_an_application_that_has_not_failed() -> None:
    assert classify(AppState.PENDING, "Resources: waits for free nodes", None)[:3] == (
        "waiting",
        "engine",
        "Resources: waits for free nodes",
    )
    assert classify(AppState.PENDING, "its image cannot be pulled: denied", None).name == "image"
    assert classify(AppState.RUNNING, "", None).name == "running"
    assert classify(AppState.SUCCEEDED, "", None, ["ValueError: handled"]).name == "succeeded"
    assert classify(AppState.CANCELLED, "cancelled", failure(143), ["KeyError: 1"]).name == "cancelled"
    assert classify(AppState.UNKNOWN, "r/0 is not known to have ended", None).name == "unknown"


def test_an_exit_code_alone_is_no_other_cause() -> None:
    assert classify(F, "", failure(3), ["error: retried", "done"])[:3] == ("exit_code", "exit", "exit code 3")
    assert classify(F, "", failure(127), ["done"])[:3] == ("missing_program", "exit", "exit code 127")
    assert classify(F, "", failure(2), ["wrote 3 files"]).name == "exit_code"


def test_the_error_file_names_the_cause_too() -> None:
    assert classify(F, "", failure(), ["done"], ["RuntimeError: NCCL error: x"]).name == "nccl_error"


@given(st.sampled_from(AppState), st.text(), st.none() | st.integers(0, 255), *[st.lists(st.text())] * 2)
def test_every_input_has_a_cause(
    state: AppState, msg: str, code: int | None, lines: list[str], error: list[str]
) -> None:
    cause = classify(state, msg, FirstFailure("w", 0, 1, code, None, msg), lines, error)
    assert cause.name in ADVICE
    assert cause.evidence
