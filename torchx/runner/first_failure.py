"""The evidence of a failure: the worker of torchrun that failed first, and its last lines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from torchx import excerpts, torchrun
from torchx.errors import TorchxError
from torchx.exit_codes import signal_of
from torchx.jobs.paths import LogPaths
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.machine.programs import defect_of_script
from torchx.scheduling.causes import UNKNOWN, Cause, classify
from torchx.scheduling.failure_causes import printed_cause, without_appendices
from torchx.scheduling.logs import LogChunk, LogQuery
from torchx.specs.status import NONE, AppStatus, AttemptStatus, EndCause, FirstFailure, Member

with lazy_imports:
    from torchx.specs import status_text

if TYPE_CHECKING:
    from datetime import datetime

    from torchx.runner.api import Runner

MOST_REPLICAS = 16
"""Maximum number of other replicas whose logs are searched for the worker that failed first."""

LINES_OF_STACK = 3
"""A stack may have this many times as many lines as other excerpts."""

ENDED = ("SIGTERM", "SIGKILL")
"""The signals by which torchrun ends the other ranks after a failure."""

ABORTED = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")
"""Signals at which Python's fault handler prints the stacks of all threads."""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The evidence of the first failure of an application.

    Attributes:
        replica: the replica that it is from: the first that failed, or the one with the first failed worker.
        rank: the worker of torchrun that failed first, if the replica runs torchrun.
        error: the last lines of the error file; empty without one.
        lines: the last lines of the log, or of the worker: those that name the cause, else the stack of a
            fatal error of Python, which follows them.
        advice: the cause, or the way to find it, in a sentence; or an empty string.
        cause: the cause of the failure.
    """

    replica: str
    rank: torchrun.RankFailure | None = None
    error: list[str] = dataclasses.field(default_factory=list)
    lines: list[str] = dataclasses.field(default_factory=list)
    advice: str = ""
    cause: Cause = UNKNOWN

    @property
    def description(self) -> str:
        """A line about the worker that failed first; empty without one.

        >>> Evidence("trainer/1", torchrun.RankFailure(5, 1, "node2", 1)).description
        'rank 5 (local rank 1 of trainer/1 on node2) failed first: exit 1'
        """
        if self.rank is None:
            return ""
        local = f"local rank {self.rank.local_rank} of {self.replica}"
        on = ""
        if self.rank.host not in ("", "localhost"):
            on = f" on {self.rank.host}"
        if self.rank.signal:
            how = f"killed by {self.rank.signal}"
        else:
            how = f"exit {self.rank.exit_code}"
        if self.rank.rank is None:
            return f"{local}{on} failed first: {how}"
        return f"rank {self.rank.rank} ({local}{on}) failed first: {how}"


RECORD = (
    "torchrun has no error file of this rank: decorate main() with "
    "torch.distributed.elastic.multiprocessing.errors.record to get one"
)

NOT_COPIED = "the script is not in the image: with --workspace . before the component, this folder is copied"

_NO_SCRIPT = re.compile(r"can't open file '[^']+': \[Errno 2\]")
"""The message of Python about a missing script."""


def evidence_of(runner: Runner, handle: str, status: AppStatus, count: int) -> Evidence:
    """Returns the evidence of the first failure, at most ``count`` lines of the error file and of the log.

    Raises:
        ValueError: nothing has failed.
    """
    first = status.first_failure
    if first is None:
        raise ValueError(f"nothing has failed in {handle}")
    found = _Finder(runner, handle, status, first, count).find()
    rank = found.rank
    if rank is not None:
        first = dataclasses.replace(first, exit_code=rank.exit_code, signal=rank.signal)
    cause = classify(status.state, status.msg, first, found.lines, found.error, status.cause)
    advice = found.advice
    if unready := unready_services(status, first):
        names = ", ".join(unready)
        advice = f"not ready then: {names}; to make a role wait for them: specs.after"
    elif not status.log_dir and any(map(_NO_SCRIPT.search, found.lines)):
        advice = NOT_COPIED
    elif rank is not None and cause.name == "exit_code" and not rank.error_file:
        advice = RECORD
    stack = []
    if signal_of(first.result) in ABORTED:
        stack = torchrun.fatal_stack(found.lines)
    printed = without_appendices(found.lines) or found.lines
    if cause.line or not stack:
        lines = printed[-count:]
    else:
        lines = stack[: LINES_OF_STACK * count]
    return dataclasses.replace(found, lines=lines, advice=advice, cause=cause)


def failure_data(runner: Runner, handle: str, status: AppStatus) -> Object | None:
    """Returns the first failure of an application as plain data, as in ``why``; None without one.

    It has the rank and the cause. Without a reason of the engine, ``msg`` is the line that names the cause.
    """
    first = status.first_failure
    if first is None:
        return None
    found = evidence_of(runner, handle, status, 1)
    rank = found.rank and found.rank.rank
    causes = {"msg": first.msg or found.cause.line, "cause": found.cause.name}
    return {**first.as_data(), "handle": first.handle or None, "rank": rank, **causes}


def unready_services(status: AppStatus, first: FirstFailure) -> list[str]:
    """Returns the replicas of services that were not ready when another replica failed first.

    Args:
        status: the status of the application.
        first: the replica that failed first.
    """
    attempts = {(each.role, each.id): each.attempts for each in status.replicas}
    services = {role.role for role in status.roles if role.ready is not None}
    ended = {a.number: a.ended_at for a in attempts.pop((first.role, first.replica), [])}.get(first.attempt)
    return [
        f"{role}/{replica}"
        for (role, replica), others in attempts.items()
        if role in services and ended is not None and not _was_ready(others, ended)
    ]


def _was_ready(attempts: Iterable[AttemptStatus], at: datetime) -> bool:
    """Returns True if the attempt that ran at a time was ready."""
    begun = [each.ready_at for each in attempts if each.started_at is not None and each.started_at <= at]
    return bool(begun) and begun[-1] is not None and begun[-1] <= at


def error_file_lines(text: str, count: int) -> list[str]:
    """Returns the last lines of the message in an error file."""
    if not text or text == NONE:
        return []
    error_file = status_text.ErrorFile.read(text)
    return excerpts.last_lines_of((text if error_file is None else error_file.message).rstrip(), count)


NOT_STARTED = (126, 127)
"""Exit codes of a program that cannot be started."""

_ABSENT = (
    r"(?:exec |can't execute '|: |^)(/[^\s:']{1,4096})'?(?: failed)?: "
    r"(?:not found|(?i:no such file or directory|exec format error))|"
    r"(?:No such file or directory|Exec format error): (/\S+)"
)


def start_problem(lines: Iterable[str], here: bool) -> str:
    """Returns why a program that exists cannot be started; empty if that is unknown.

    Args:
        lines: messages about the program, by a shell or by the engine.
        here: whether it was started on this machine, or on one with the same files.

    >>> start_problem(["[FATAL tini (6)] exec /x/run failed: No such file or directory"], False)
    'if /x/run exists there, the interpreter in its first line (#!) does not, or its lines end as on Windows'
    """
    for line in lines:
        if match := re.search(_ABSENT, line):
            path = match[1] or match[2]
            if "format" in line:
                return f"{path} is a program for other machines, or a script without #!/bin/sh or the like"
            if here:
                defect = defect_of_script(Path(path))
                if defect:
                    return f"{path} {defect}"
                return ""
            if "exec" in line and "found" not in line:
                return (
                    f"if {path} exists there, the interpreter in its first line (#!) does not, "
                    "or its lines end as on Windows"
                )
    return ""


_TIMEOUT = r"(?i)timed? ?out"


def _silent(failures: list[torchrun.RankFailure], lines: list[str]) -> str:
    """Returns a remark about the only rank that printed no error before torchrun ended it."""
    silent = []
    for rank in (each.rank for each in failures if each.rank is not None and each.signal in ENDED):
        wanted = re.compile(torchrun.lines_of_ranks([rank], []))
        if not printed_cause(1, None, list(filter(wanted.search, lines)))[0]:
            silent.append(rank)
    if len(silent) == 1:
        return f"rank {silent[0]} printed no error; it may be the one that hung"
    return ""


class _Finder:
    """Reads the log of the replica that failed first, and of others if a worker of theirs failed earlier."""

    def __init__(
        self, runner: Runner, handle: str, status: AppStatus, first: FirstFailure, count: int
    ) -> None:
        self._runner = runner
        self._handle = handle
        self._status = status
        self._first = first
        self._count = count
        self._attempts = {(first.role, first.replica): first.attempt}
        self._known: dict[Member, set[int]] = {}
        for replica in status.replicas:
            self._attempts.setdefault((replica.role, replica.id), replica.attempt)
            self._known[replica.role, replica.id] = {attempt.number for attempt in replica.attempts}

    def find(self) -> Evidence:
        role, number = self._first.role, self._first.replica
        lines = excerpts.last_lines(self._chunks(role, number), torchrun.TAIL)
        error = error_file_lines(self._status.structured_error_msg, self._count)
        # a replica that was ended as it was stalled: its ranks did not fail, they were ended with it
        if self._first.cause is EndCause.STALLED:
            failures = []
        else:
            failures = torchrun.failures_of(lines)
        if not failures:
            if self._first.result in NOT_STARTED:
                cause = start_problem([*lines[-self._count :], self._first.msg], bool(self._status.log_dir))
                return Evidence(f"{role}/{number}", None, error, lines, cause)
            return Evidence(f"{role}/{number}", None, error, lines)
        failure = failures[0]
        oldest = self._oldest_file()
        if oldest is not None and failure.error_file != str(oldest.path):
            number, failure = self._writer_of(oldest, failures) or (number, failure)
        if oldest is not None and failure.error_file == str(oldest.path):
            error = error_file_lines(oldest.text(), self._count)
        of_rank = self._lines_of(number, failure, lines if number == self._first.replica else [])
        line = printed_cause(failure.exit_code, failure.signal, of_rank)[1]
        advice = ""
        if re.search(_TIMEOUT, line):
            advice = _silent(failures, lines)
        return Evidence(f"{role}/{number}", failure, error, of_rank, advice)

    def _chunks(self, role: str, number: int, regex: str | None = None) -> list[LogChunk]:
        query = LogQuery({role: frozenset({number})}, regex=regex, tail=torchrun.TAIL)
        try:
            chunks = list(self._runner.log_chunks(self._handle, query))
        except (TorchxError, NotImplementedError, OSError):
            return []  # the failure without its log
        attempt = self._attempts.get((role, number))
        own = [chunk for chunk in chunks if chunk.attempt == attempt]
        # without a time, a line is from a log that does not distinguish attempts
        others = self._known.get((role, number), set()) - {attempt}
        return own or [chunk for chunk in chunks if not chunk.time or chunk.attempt not in others]

    def _lines_of(self, number: int, failure: torchrun.RankFailure, lines: list[str]) -> list[str]:
        """Returns the lines of a worker, without their prefix; searches the whole log if there are none."""
        role = self._first.role
        # torchrun prints the rank on the node with an old PyTorch, or if its prefix was changed
        for rank in dict.fromkeys(n for n in (failure.rank, failure.local_rank) if n is not None):
            regex = torchrun.lines_of_ranks([rank], [role])
            wanted = re.compile(regex)
            if not any(map(wanted.search, lines)):
                lines = excerpts.last_lines(self._chunks(role, number, regex), torchrun.TAIL)
            found = [torchrun.without_prefix(line) for line in lines if wanted.search(line)]
            while found and not found[-1].strip():
                found.pop()
            if found:
                return found
        return []

    def _oldest_file(self) -> torchrun.ErrorFileOfRank | None:
        """Returns the error file that was written first in the attempt that failed."""
        if not self._status.log_dir:
            return None
        first = self._first
        started = [
            attempt.started_at.timestamp()
            for replica in self._status.replicas
            for attempt in replica.attempts
            if (replica.role, replica.id, attempt.number) == (first.role, first.replica, first.attempt)
            and attempt.started_at is not None
        ]
        folder = LogPaths(Path(self._status.log_dir)).torchelastic(first.role)
        files = torchrun.error_files(folder, since=min(started, default=0.0))
        if files:
            return files[0]
        return None

    def _writer_of(
        self, file: torchrun.ErrorFileOfRank, failures: list[torchrun.RankFailure]
    ) -> tuple[int, torchrun.RankFailure] | None:
        """Returns the replica and the worker that wrote an error file, from the reports of torchrun."""
        role, first = self._first.role, self._first.replica
        others = [number for name, number in self._attempts if name == role and number != first]
        for number in [first, *others[:MOST_REPLICAS]]:
            if number != first:
                failures = torchrun.failures_of(
                    excerpts.last_lines(self._chunks(role, number), torchrun.TAIL)
                )
            for failure in failures:
                if failure.error_file == str(file.path):
                    return number, failure
        return None
