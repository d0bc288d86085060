"""The traces of torchrun's workers in a replica: ranks before lines, its report of failures, error files."""

from __future__ import annotations

import contextlib
import itertools
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torchx.exit_codes import read_error_file, result_of, signal_of

TAIL = 600
"""The number of last lines that are searched for a report."""

MOST_FILES = 10_000
"""Maximum number of error files that are read."""

_NUMBER = "(?:0|[1-9][0-9]{0,5})"


class RankFailure(NamedTuple):
    """A failed worker of torchrun.

    Attributes:
        rank: its rank in the application; None if unknown.
        local_rank: its rank on its node.
        host: the node.
        exit_code: its exit code; None if a signal ended it.
        signal: the signal that ended it, such as SIGSEGV, or None.
        error_file: the path of its error file; empty without one.
    """

    rank: int | None
    local_rank: int
    host: str = ""
    exit_code: int | None = None
    signal: str | None = None
    error_file: str = ""

    @property
    def result(self) -> int | None:
        """The exit code, or 128 + N for signal N."""
        return result_of(self.exit_code, self.signal)


class ErrorFileOfRank(NamedTuple):
    """An error file that a worker has written.

    Attributes:
        path: the file.
        local_rank: the worker's rank on its node.
        time: when it was written, in seconds since the epoch.
    """

    path: Path
    local_rank: int
    time: float

    def text(self) -> str:
        """Returns its content up to a limit."""
        return read_error_file(self.path.parent)


def _names(roles: Iterable[str]) -> str:
    """Returns the alternatives of the names before a rank, as part of a pattern.

    A rank is named by PyTorch (``[rank3]:``) or by torchrun with the name of its role (``[default3]:``, or
    ``[3]:`` without a name).
    """
    return "|".join(["rank", "default", *map(re.escape, roles), ""])


def lines_of_ranks(ranks: Iterable[int], roles: Iterable[str], regex: str | None = None) -> str:
    r"""Returns a pattern for the lines of ranks.

    Args:
        ranks: the global ranks.
        roles: the names of the roles, which torchrun may print.
        regex: a pattern that the lines have to match, too.

    >>> pattern = re.compile(lines_of_ranks([3], ["trainer"], "^.*loss"))
    >>> lines = ["[3]:loss 1", "[3]:hello", "[13]:loss", "[0]:[rank3]: loss", "[3]:[rank7]: loss"]
    >>> [line for line in lines if pattern.search(line)]
    ['[3]:loss 1', '[0]:[rank3]: loss']
    """
    one = "|".join(map(str, sorted(set(ranks))))
    names = _names(roles)
    # a prefix of PyTorch is a global rank; one of torchrun may be the rank on the node with an old PyTorch
    of_torchrun = rf"\[(?:{names})(?:{one})\]:(?!\[rank{_NUMBER}\]:)"
    # a line that is only a prefix is left out: it may be a number in torchrun's report
    start = rf"^(?:{of_torchrun}|(?:\[[^\[\]\n]{{0,255}}\]:)?\[rank(?:{one})\]:)(?=.)"
    if regex is None:
        return start
    flags = re.compile(regex).flags & (re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE)
    letters = "".join(letter for flag, letter in _FLAGS if flags & flag)
    body = re.sub(_GLOBAL_FLAGS, "", regex)
    end = "\n" if flags & re.VERBOSE else ""  # a comment at the end of the pattern
    return rf"(?={start})(?s:.*?)(?{letters}:{body}{end})"


_FLAGS = ((re.ASCII, "a"), (re.IGNORECASE, "i"), (re.MULTILINE, "m"), (re.DOTALL, "s"), (re.VERBOSE, "x"))
_GLOBAL_FLAGS = r"\A(?:\(\?[aiLmsux]+\))+"


def rank_prefix(roles: Iterable[str]) -> str:
    """Returns a pattern for lines of any rank."""
    return rf"^\[(?:{_names(roles)}){_NUMBER}\]:."


def rank_of(line: str, roles: Iterable[str]) -> int | None:
    """Returns the rank that a line begins with, or None.

    >>> rank_of("[1]:[rank5]: bad", []), rank_of("[default3]:loss", []), rank_of("[epoch 3]: loss", [])
    (5, 3, None)
    """
    if not line.startswith("["):
        return None
    match = re.match(rf"(?:\[(?:{_names(roles)})({_NUMBER})\]:)(?:\[rank({_NUMBER})\]:)?.", line)
    if match:
        return int(match[2] or match[1])
    return None


def without_prefix(line: str) -> str:
    """Returns a line of a rank without the ranks before it.

    >>> without_prefix("[1]:[rank1]: ValueError: bad"), without_prefix("[3]:loss 1")
    ('ValueError: bad', 'loss 1')
    """
    return re.sub(_PREFIXES, "", line, count=1)


_PREFIXES = rf"^(?:\[rank{_NUMBER}\]: ?|\[[^\[\]\n]{{0,255}}{_NUMBER}\]:(?:\[rank{_NUMBER}\]: ?)?)"


REPORT_LINE = r"^(?:Root Cause |Failures:$|\[\d+\]:$|  (?:time|host|rank|exitcode|error_file|traceback) *: )"
"""A pattern for the lines of torchrun's report that :func:`failures_of` reads."""


def failures_of(lines: Sequence[str]) -> list[RankFailure]:
    """Returns the failed workers of torchrun's last report in a log, the first failure first.

    >>> failures_of([
    ...     "Root Cause (first observed failure):", "[0]:", "  time      : 2026-11-22_12:16:22",
    ...     "  host      : node1", "  rank      : 5 (local_rank: 1)", "  exitcode  : -11 (pid: 31398)",
    ...     "  error_file: <N/A>"])
    [RankFailure(rank=5, local_rank=1, host='node1', exit_code=None, signal='SIGSEGV', error_file='')]
    """
    begin = max((n for n, line in enumerate(lines) if line.startswith("Root Cause ")), default=None)
    if begin is None:
        return []
    before = max((n for n, line in enumerate(lines[:begin]) if line == "Failures:"), default=begin)
    return [*_entries(lines[begin:]), *_entries(lines[before:begin])]


def _entries(lines: Sequence[str]) -> Iterator[RankFailure]:
    fields: dict[str, str] = {}
    for line in [*lines, "[0]:"]:
        if re.fullmatch(r"\[\d+\]:", line):
            if (found := _failure(fields)) is not None:
                yield found
            fields = {}
        elif match := re.fullmatch(_FIELD, line):
            fields.setdefault(match[1], match[2].strip())


_FIELD = r"  (host|rank|exitcode|error_file) *: (.*)"
_RANK = rf"(-1|{_NUMBER}) \(local_rank: ({_NUMBER})\)"


def _failure(fields: dict[str, str]) -> RankFailure | None:
    ranks = re.fullmatch(_RANK, fields.get("rank", ""))
    code = re.match(r"-?\d{1,9}(?!\d)", fields.get("exitcode", ""))
    if ranks is None or code is None:
        return None
    number = int(code[0])
    path = fields.get("error_file", "")
    return RankFailure(
        rank=int(ranks[1]) if ranks[1] != "-1" else None,
        local_rank=int(ranks[2]),
        host=fields.get("host", ""),
        exit_code=number if number >= 0 else None,
        signal=None if number >= 0 else signal_of(128 - number) or f"signal {-number}",
        error_file=path if path.startswith("/") else "",
    )


def error_files(folder: Path, since: float) -> list[ErrorFileOfRank]:
    """Returns the error files of a role's workers, the oldest first.

    Args:
        folder: torchrun's logs of the role, with a folder for each of its processes.
        since: the begin of the attempt, in seconds since the epoch; files of earlier attempts are left out.
    """
    found = []
    pattern = "*/attempt_*/*/error.json"
    for path in itertools.islice(folder.glob(pattern), MOST_FILES):
        with contextlib.suppress(OSError, ValueError):
            written = path.lstat()
            if stat.S_ISREG(written.st_mode) and written.st_mtime >= since:
                found.append(ErrorFileOfRank(path, int(path.parent.name), written.st_mtime_ns / 1e9))
    return sorted(found, key=lambda each: each.time)


def fatal_stack(lines: Sequence[str]) -> list[str]:
    """Returns the lines of Python's last report of a fatal error, with the stacks of its threads; or none."""
    fatal = (n for n, line in enumerate(lines) if line.startswith("Fatal Python error:"))
    stack = itertools.takewhile(_STACK.match, lines[max(fatal, default=len(lines)) :])
    return [line for line in stack if line.strip()]


_STACK = re.compile(
    r"\s*$|Fatal Python error:|(?:Current thread|Thread) 0x|  File |  <|  \.\.\.|Python runtime state:"
)
