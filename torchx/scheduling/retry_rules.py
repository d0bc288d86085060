"""The rules by which a failure is retried: its cause, exit code, signal, or text in the last lines.

Beside ``failure_causes`` and ``patterns`` this module depends on nothing else, since jobs of Slurm run copies
of them on their nodes, with any Python 3.
"""

import re
import signal as signals
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from torchx.scheduling.failure_causes import LAST_LINES, printed_cause
from torchx.scheduling.patterns import SearchTooLongError, any_matches

ALIASES = {
    "oom": "out_of_memory",
    "node": "node_lost",
    "preemption": "preempted",
    "python-error": "exception",
}
"""Further names of causes."""
CAUSES = (
    "out_of_memory",
    "node_lost",
    "preempted",
    "image",
    "time_limit",
    "not_started",
    "missing_program",
    "preflight",
    "setup_once",
    "usage_error",
    "import_error",
    "syntax_error",
    "disk_full",
    "permission_denied",
    "cuda_out_of_memory",
    "cuda_error",
    "nccl_timeout",
    "nccl_error",
    "port_in_use",
    "allocation_failed",
    "assertion",
    "exception",
)
"""The causes that a rule may name, with dashes or underscores."""
NOT_WORTH = ("usage-error", "import-error", "syntax-error", "disk-full", "preflight", "setup-once")
"""The causes that are not retried by default: another attempt would fail in the same way."""
ALL, NONE = "any", "none"
NOT_RETRIED = "not retried: "
OTHER = "other"
"""The rule of failures that no rule of ``retry_on`` matches."""
LONGEST_TAIL = 1 << 16
"""Bytes at the end of the output that are read: a cause may be followed by the stacks of many threads."""
MOST_LINES = 600
"""Lines at the end of the output that are read, where they are counted."""
_LONGEST = 160


class Failure(NamedTuple):
    """The end of an attempt that has failed.

    Attributes:
        exit_code: its exit code; None after a signal, or without one.
        signal: the name of the signal that ended it.
        lines: the last lines of its output.
        known: the name of its cause, if the engine knows it.
    """

    exit_code: Optional[int]
    signal: Optional[str] = None
    lines: Sequence[str] = ()
    known: Optional[str] = None

    def cause(self) -> Tuple[str, str]:
        """Returns its cause, and the line that names it; both may be empty."""
        if self.known:
            return self.known, ""
        return printed_cause(self.exit_code, self.signal, self.lines)


class RetryRules(NamedTuple):
    """The failures that are retried, as far as retries are left.

    Attributes:
        on: only failures that one of these rules matches; all if it is empty.
        never: no failures that one of these rules matches; this takes precedence.
    """

    on: Tuple[str, ...] = ()
    never: Tuple[str, ...] = NOT_WORTH

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> "RetryRules":
        """Returns the rules of run options.

        Raises:
            ValueError: a rule is invalid; the message is a sentence without its subject, the option.

        >>> RetryRules.of({"retry_on": ["1-9", "SIGKILL"], "no_retry_on": ["none"]})
        RetryRules(on=('1-9', 'SIGKILL'), never=())
        """
        on, never = (_rules(name, cfg.get(name)) for name in ("retry_on", "no_retry_on"))
        if never is None:
            return cls(on or ())
        return cls(on or (), () if never == (NONE,) else never)

    @classmethod
    def recorded(cls, cfg: Mapping[str, Any]) -> "RetryRules":
        """Returns the rules of recorded run options; the default ones if another version wrote them."""
        try:
            return cls.of(cfg)
        except ValueError:
            return cls()

    def refusal(self, failure: Failure) -> str:
        """Returns why a failure is not retried, or an empty string.

        >>> RetryRules().refusal(Failure(1, lines=["ImportError: no x"]))
        'not retried: import-error (ImportError: no x)'
        >>> RetryRules(on=("SIGKILL",)).refusal(Failure(3))
        'not retried: exit code 3 is not in retry_on'
        >>> RetryRules(on=("1-3",)).refusal(Failure(3))
        ''
        """
        return refusal_by(self.refused_by(failure), failure)

    def refused_by(self, failure: Failure) -> str:
        """Returns the rule because of which a failure is not retried, or an empty string."""
        found = next((rule for rule in self.never if matches(rule, failure)), "")
        if found or not self.on or any(matches(rule, failure) for rule in self.on):
            return found
        return OTHER

    @property
    def reads_lines(self) -> bool:
        """Whether a decision may depend on the output."""
        return any(_codes(rule) is None for rule in (*self.on, *self.never))


def refusal_by(rule: str, failure: Failure) -> str:
    """Returns why a failure is not retried, by the rule that has decided so; empty without one.

    All engines report it by this function. The reason that the engine gives is not repeated.

    >>> refusal_by("oom", Failure(137, known="out_of_memory")), refusal_by("other", Failure(None, "SIGKILL"))
    ('not retried: oom', 'not retried: SIGKILL is not in retry_on')
    """
    if not rule:
        return ""
    if rule == OTHER:
        code = failure.exit_code
        how = failure.signal or ("its end" if code is None else f"exit code {code}")
        return f"{NOT_RETRIED}{how} is not in retry_on"
    evidence = ""
    if not rule.startswith("log:"):
        evidence = failure.cause()[1]
    if len(evidence) > _LONGEST:
        evidence = evidence[: _LONGEST - 2] + ".."
    return f"{NOT_RETRIED}{rule}" + (f" ({evidence})" if evidence else "")


def _rules(option: str, value: Any) -> Optional[Tuple[str, ...]]:
    """Returns the rules in the value of an option: a list of texts, or a text with commas."""
    if value is None:
        return None
    texts: List[str] = []
    for text in [value] if isinstance(value, str) else value:
        texts += split_rules(str(text))
    for text in texts:
        reason = _invalid(text)
        if reason or (text == NONE and texts != [NONE]):
            raise ValueError(f"has `{text}`, {reason or 'which excludes other rules'}")
    if option == "retry_on" and texts == [NONE]:
        raise ValueError("has `none`; an application without retries has max_retries=0")
    return tuple(texts)


def split_rules(text: str) -> List[str]:
    """Splits rules at commas; a rule that begins with ``log:`` is the rest of the text.

    >>> split_rules("1-9, node,log:a, b")
    ['1-9', 'node', 'log:a, b']
    """
    head, mark, pattern = text.partition("log:")
    rules = [rule.strip() for rule in head.split(",") if rule.strip()]
    if mark:
        return [*rules, mark + pattern]
    return rules


def _invalid(rule: str) -> str:
    """Returns why a rule is invalid, or an empty string."""
    if rule.startswith("log:"):
        try:
            re.compile(rule[4:])
        except re.error as error:
            return f"whose pattern is invalid: {error}"
        if rule[4:]:
            return ""
        return "which has no pattern"
    if rule in (ALL, NONE) or _codes(rule) is not None or _cause_name(rule) in CAUSES:
        return ""
    return (
        "expected an exit code (3, 100-110), a signal (SIGKILL), log:REGEX, any, or a cause such as "
        "out-of-memory, node, preemption, image, import-error"
    )


def _cause_name(rule: str) -> str:
    return ALIASES.get(rule, rule.replace("-", "_"))


def _codes(rule: str) -> Optional[range]:
    """Returns the exit codes of a rule, 128 + N for signal N; None if it is not about exit codes.

    >>> _codes("3"), _codes("100-110"), _codes("KILL"), _codes("node")
    (range(3, 4), range(100, 111), range(137, 138), None)
    """
    match = re.match(r"([0-9]{1,3})(?:-([0-9]{1,3}))?$", rule)
    if match:
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if 1 <= first <= last <= 255:
            return range(first, last + 1)
        return None
    if rule.startswith("SIG"):
        name = rule
    else:
        name = "SIG" + rule
    if name in signals.Signals.__members__:
        number = 128 + int(signals.Signals[name])
        return range(number, number + 1)
    return None


def exit_codes_of(rules: Iterable[str]) -> Optional[List[int]]:
    """Returns the exit codes of rules, or None if one of them is not about exit codes."""
    codes: List[int] = []
    for rule in rules:
        found = _codes(rule)
        if found is None:
            return None
        codes += found
    return sorted(set(codes))


def matches(rule: str, failure: Failure) -> bool:
    """Returns True if a rule matches a failure.

    >>> matches("node", Failure(None, "SIGTERM", known="node_lost")), matches("SIGKILL", Failure(137))
    (True, True)
    """
    if rule == ALL:
        return True
    if rule.startswith("log:"):
        pattern = re.compile(rule[4:])
        try:
            return any_matches(pattern.search, failure.lines[-LAST_LINES:])
        except SearchTooLongError:
            return False
    codes = _codes(rule)
    if codes is None:
        return failure.cause()[0] == _cause_name(rule)
    code = failure.exit_code
    if failure.signal:
        known = failure.signal in signals.Signals.__members__
        code = None
        if known:
            code = 128 + int(signals.Signals[failure.signal])
    return code in codes


def lines_of(tail: bytes) -> List[str]:
    """Returns the last lines of output, from its last bytes."""
    text = tail[-LONGEST_TAIL:].decode("utf-8", "replace")
    return [line.rstrip() for line in text.split("\n") if line.strip()]
