"""Print log lines, each prefixed with its replica, aligned and coloured."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, BinaryIO, TextIO

from torchx.printable import one_line
from torchx_cli.door import feature
from torchx_cli.terminal.output import (
    bar_of,
    columns,
    has_colour,
    is_terminal,
    padded,
    paint,
    print_stderr,
    wrap,
)

if TYPE_CHECKING:
    from torchx.scheduling.logs import LogChunk

_COLOURS = ("36", "33", "35", "32", "34", "31", "96", "93", "95", "92", "94")
"""Terminal colour codes, assigned to replicas in turn."""

LONGEST_HOLD = 1.0
"""Seconds for which a remark waits for the end of an incomplete line."""


class LogPrinter:
    """Prints log chunks.

    Args:
        stream: stdout or stderr.
        labels: the names of the replicas, for alignment.
        prefix: whether to print the replica before each line.
        timestamps: whether to print the time before each line.
        live: whether to flush after each chunk.

    Attributes:
        failed: whether writing to the stream failed.
        prefix: as given.
        before_attempt: called before the first output of each attempt of a replica.
    """

    def __init__(
        self,
        stream: TextIO,
        labels: Iterable[str] = (),
        prefix: bool = True,
        timestamps: bool = False,
        live: bool = True,
    ) -> None:
        stream.flush()
        self._out: BinaryIO = stream.buffer
        self._width = max(map(columns, labels), default=0)
        self._bar = bar_of(stream)
        self._colour = has_colour(stream)
        self._terminal = is_terminal(stream)
        self.prefix, self._timestamps, self._live = prefix, timestamps, live
        self._prefixes: dict[tuple[str, int], bytes] = {}
        self.failed = False
        self.before_attempt: Callable[[str, int], None] | None = None
        self._attempts: dict[tuple[str, int], int] = {}
        self._lock = threading.RLock()
        self._shares = stream is sys.stderr or (self._terminal and is_terminal(sys.stderr))
        self._remarks: list[tuple[float, str]] = []
        self._unfinished: object = None  # source of the incomplete line
        self._coloured = False  # by the application, which may not have reset it

    def print_log(self, chunks: Iterable[LogChunk], *, live: bool = True) -> None:
        """Prints all chunks; closes the printer even on errors.

        Args:
            chunks: the log.
            live: the log grows.
        """
        try:
            for chunk in chunks:
                self.write(chunk)
        finally:
            self.close()

    def write(self, chunk: LogChunk) -> None:
        """Prints a chunk, continuing an incomplete line of the same source.

        An incomplete line is ended if another replica or stream prints.
        """
        data = chunk.data
        if not data:
            return
        replica = (chunk.role, chunk.replica)
        if chunk.attempt > self._attempts.get(replica, 0) and self.before_attempt:
            self.before_attempt(f"{chunk.role}/{chunk.replica}", chunk.attempt)
        self._attempts[replica] = chunk.attempt
        source = (chunk.role, chunk.replica, chunk.attempt, chunk.stream)
        before = b""
        if self.prefix:
            before = self.label(chunk.role, chunk.replica)
        self.write_lines(source, before, chunk.time, data)

    def write_lines(self, source: object, before: bytes, at: float, data: bytes) -> None:
        """Prints lines of a source with a text before each.

        Args:
            source: the source; if it is the same as before, an incomplete line is continued.
            before: the text.
            at: the time of the lines.
            data: the lines.
        """
        with self._lock:
            self._write(source, before, at, data)
            self.remark()

    def remark(self, *lines: str) -> None:
        """Prints dim lines on stderr, between lines of the log: they wait for the end of an incomplete one.

        Args:
            lines: the lines; without any, those that wait are printed if that is possible now.
        """
        with self._lock:
            now = time.monotonic()
            self._remarks += [(now + LONGEST_HOLD, line) for line in lines]
            if not self._remarks:
                return
            if self._shares and self._unfinished is not None:
                if now < self._remarks[0][0]:
                    return
                self._put(b"\n", False)
                self._unfinished = None
            self.flush()
            for _, line in self._remarks:
                print_stderr(paint(wrap(line, sys.stderr), "dim", sys.stderr))
            self._remarks.clear()

    def _write(self, source: object, before: bytes, at: float, data: bytes) -> None:
        continued = self._unfinished == source
        if self._unfinished is not None and not continued:
            self._put(b"\n", False)
            self._unfinished = None
            self.remark()
        if data.endswith(b"\n"):
            self._unfinished = None
        else:
            self._unfinished = source
        if self._terminal and b"\x1b" in data:
            self._coloured = True
        if self._timestamps:
            before = stamp(at).encode() + b" " + before
        if before:
            end = b"\n" if data.endswith(b"\n") else b""
            body = data.removesuffix(b"\n")
            if self._terminal and b"\r" in body:  # a progress bar returns to the start of its line
                body = body.replace(b"\r\n", b"\n")
                body = (body.rstrip(b"\r") if end else body).replace(b"\r", b"\r" + before)
            data = (b"" if continued else before) + body.replace(b"\n", b"\n" + before) + end
        self._put(data, self._live)

    def flush(self) -> None:
        """Flushes the output."""
        self._put(b"", True)

    def close(self) -> None:
        """Flushes the output; ends the last line if it has a prefix or the stream is a terminal."""
        with self._lock:
            end = b""
            if self._unfinished is not None and (self.prefix or self._terminal):
                end = b"\n"
            self._unfinished = None
            self._put(b"\x1b[0m" * self._coloured + end, True)
            self.remark()

    def _put(self, data: bytes, now: bool) -> None:
        try:
            self._out.write(data)
            if now:
                self._out.flush()
        except OSError:
            self.failed = True
            raise

    def label(self, role: str, replica: int, *, strong: bool = False) -> bytes:
        """Returns the text before the lines of a replica, in its colour.

        Args:
            role: name of the role.
            replica: id of the replica.
            strong: whether it is bold.
        """
        known = self._prefixes.get((role, replica))
        if known is None:
            code = _COLOURS[len(self._prefixes) % len(_COLOURS)]
            name = one_line(f"{role}/{replica}")
            known = self._prefixes[role, replica] = self._label(name, f"1;{code}" if strong else code)
        return known

    def shared_label(self, name: str) -> bytes:
        """Returns the text before the lines of several replicas, dim."""
        return self._label(name, "2")

    def _label(self, name: str, code: str) -> bytes:
        text = f"{padded(name, self._width)} {self._bar} "
        if self._colour:
            text = f"\x1b[{code}m{text}\x1b[0m"
        return text.encode("utf-8", "backslashreplace")


def printer_of(
    stream: TextIO,
    roles: Sequence[tuple[str, int]],
    chosen: Mapping[str, Collection[int]] | None = None,
    *,
    fold: bool = False,
    prefix: bool = True,
    timestamps: bool = False,
    live: bool = True,
) -> LogPrinter:
    """Returns a printer of the log of roles, given as name and number of replicas.

    Args:
        stream: stdout or stderr.
        roles: the roles, for alignment.
        chosen: the replicas whose logs are printed, as in a query (default: all).
        fold: equal lines are printed once.
        prefix, timestamps, live: see :class:`LogPrinter`.
    """
    chosen = chosen or {}
    roles = [role for role in roles if not chosen or role[0] in chosen]
    if fold:
        printer: LogPrinter = feature("fold.printing").printer_of(
            stream, roles, chosen, prefix, timestamps, live
        )
        return printer
    return LogPrinter(stream, labels_of(roles), prefix, timestamps, live)


def stamp(seconds: float) -> str:
    """Returns a time as ISO 8601 with zone and milliseconds, or a dash if unknown.

    >>> stamp(0.0)
    '-'
    """
    if not seconds:
        return "-"
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().isoformat(timespec="milliseconds")


def labels_of(roles: Iterable[tuple[str, int]], limit: int = 40) -> list[str]:
    """Returns the longest replica name of each role, given as name and number of replicas.

    >>> labels_of([("trainer", 12), ("ps", 1)])
    ['trainer/11', 'ps/0']
    """
    return [f"{name}/{max(0, count - 1)}"[:limit] for name, count in roles]
