"""The rules of retries: which failures each of them matches, and which texts are no rules."""

from __future__ import annotations

import pytest

from torchx.end_causes import EndCause
from torchx.scheduling.retry_rules import Failure, RetryRules, exit_codes_of, matches

IMPORT = Failure(1, lines=["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'x'"])
USAGE = Failure(
    2, lines=["usage: train.py [-h] --data DATA", "train.py: error: the following arguments are required"]
)

STACKS = [
    "Fatal Python error: Aborted",
    *["Thread 0x7f (most recent call first):", "  <no Python frame>"] * 40,
]
WATCHDOG = [
    "[rank0]:[E1128 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: Work",
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    *["frame #1: c10d::watchdog() + 0x1 (0x7f in libtorch.so)"] * 30,
    *STACKS,
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    *["[1]:", "  rank      : 1 (local_rank: 1)", "  exitcode  : -15 (pid: 1)", "  error_file: <N/A>"] * 30,
]
RANKS = [
    "[1]:[rank1]: ValueError: bad shard",
    "[0]:[rank0]: AssertionError: the peer has closed",
    "Root Cause (first observed failure):",
    "[0]:",
    "  rank      : 1 (local_rank: 1)",
]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (IMPORT, "not retried: import-error (ModuleNotFoundError: No module named 'x')"),
        (USAGE, "not retried: usage-error (train.py: error: the following arguments are required)"),
        (
            Failure(1, lines=["SyntaxError: invalid syntax"]),
            "not retried: syntax-error (SyntaxError: invalid syntax)",
        ),
        (Failure(1, lines=["cp: error writing 'a': No space left on device"]), "not retried: disk-full"),
        (Failure(1, lines=["ImportError: optional, continues", "RuntimeError: NCCL timeout"]), ""),
        (Failure(2, lines=["two"]), ""),
        (Failure(1), ""),
        (Failure(None, "SIGKILL", lines=["ImportError: earlier"]), ""),
    ],
)
def test_what_would_fail_again_is_not_retried_by_default(failure: Failure, reason: str) -> None:
    assert RetryRules.of({}).refusal(failure).startswith(reason)
    assert bool(RetryRules.of({}).refusal(failure)) == bool(reason)
    assert RetryRules.of({"no_retry_on": ["none"]}).refusal(failure) == ""


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("3", Failure(3), Failure(4)),
        ("100-110", Failure(105), Failure(111)),
        ("SIGKILL", Failure(None, "SIGKILL"), Failure(None, "SIGTERM")),
        ("KILL", Failure(137), Failure(9)),
        ("137", Failure(None, "SIGKILL"), Failure(None, "SIGRTMIN+3")),
        (
            "out-of-memory",
            Failure(None, "SIGKILL", known=EndCause.OUT_OF_MEMORY),
            Failure(None, "SIGKILL"),
        ),
        ("node", Failure(None, "SIGTERM", known=EndCause.NODE_LOST), Failure(None, "SIGTERM")),
        ("preemption", Failure(None, known=EndCause.PREEMPTED), Failure(1)),
        ("image", Failure(None, known=EndCause.IMAGE), Failure(1)),
        ("nccl-timeout", Failure(1, lines=["RuntimeError: collective operation timeout"]), Failure(1)),
        ("nccl-timeout", Failure(1, lines=WATCHDOG), Failure(1, lines=WATCHDOG[1:])),
        ("exception", Failure(None, "SIGABRT", lines=["ValueError: x", *STACKS]), Failure(134, lines=STACKS)),
        ("exception", Failure(1, lines=RANKS), Failure(1, lines=RANKS[1:2])),
        ("log:step \\d+ of", Failure(1, lines=["step 12 of 20", "bye"]), Failure(1, lines=["step of"])),
        ("any", Failure(1), None),
    ],
)
def test_a_rule_matches_its_failures_alone(rule: str, good: Failure, bad: Failure | None) -> None:
    rules = RetryRules.of({"retry_on": [rule]})
    assert matches(rule, good) and rules.refusal(good) == ""
    if bad is not None:
        assert rules.refusal(bad).endswith("is not in retry_on")
        assert RetryRules.of({"no_retry_on": [rule]}).refusal(bad) == ""
    assert RetryRules.of({"no_retry_on": [rule]}).refusal(good).startswith(f"not retried: {rule}")


def test_what_is_never_retried_takes_precedence() -> None:
    assert RetryRules.of({"retry_on": ["1"]}).refusal(IMPORT).startswith("not retried: import-error")
    rules = RetryRules.of({"retry_on": "1-9,node,log:a, b", "no_retry_on": "7"})
    assert rules == RetryRules(("1-9", "node", "log:a, b"), ("7",))
    assert [bool(rules.refusal(Failure(code))) for code in (1, 7, 10)] == [False, True, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry_on": ["0"]}, "has `0`, expected an exit code"),
        ({"retry_on": ["300"]}, "has `300`"),
        ({"retry_on": ["9-3"]}, "has `9-3`"),
        ({"retry_on": ["SIGNOPE"]}, "has `SIGNOPE`"),
        ({"no_retry_on": ["log:("]}, "has `log:(`, whose pattern is invalid"),
        ({"no_retry_on": ["log:"]}, "which has no pattern"),
        ({"no_retry_on": ["none", "3"]}, "which excludes other rules"),
        ({"retry_on": ["none"]}, "max_retries=0"),
    ],
)
def test_other_texts_are_no_rules(options: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        RetryRules.of(options)
    assert message in str(raised.value)


def test_exit_codes_are_known_if_all_rules_have_them() -> None:
    assert exit_codes_of(["1-3", "SIGKILL", "2"]) == [1, 2, 3, 137]
    assert exit_codes_of(["1", "node"]) is None
    assert not RetryRules.of({"retry_on": ["1"], "no_retry_on": ["none"]}).reads_lines
    assert RetryRules.of({}).reads_lines
