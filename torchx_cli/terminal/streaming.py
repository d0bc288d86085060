"""Log lines on their way to a person: the name of the replica before each, aligned and coloured."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, BinaryIO, TextIO

from torchx.printable import one_line
from torchx_cli.terminal.output import bar_of, has_colour, is_terminal

if TYPE_CHECKING:
    from torchx.scheduling.logs import LogChunk

_COLOURS = ("36", "33", "35", "32", "34", "31", "96", "93", "95", "92", "94")
"""One after the other for the replicas; the terminal's codes."""


class LogPrinter:
    """Prints log chunks.

    Args:
        stream: stdout or stderr.
        labels: the names of all replicas that may come, for the alignment.
        prefix: whether the name of the replica stands before each line.
        timestamps: whether the time stands before each line.
        live: whether each chunk is shown at once; otherwise what comes is gathered first.

    Attributes:
        failed: the stream has not taken what was printed; other errors are those of reading the log.
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
        self._width = max((len(label) for label in labels), default=0)
        self._bar = bar_of(stream)
        self._colour = has_colour(stream)
        self._terminal = is_terminal(stream)
        self._prefix, self._timestamps, self._live = prefix, timestamps, live
        self._prefixes: dict[tuple[str, int], bytes] = {}
        self.failed = False
        self._unfinished: tuple[object, ...] | None = None  # what wrote the line that has no end yet
        self._coloured = False  # by the application, which may have ended before it took that back

    def write(self, chunk: LogChunk) -> None:
        """Prints one chunk; one that goes on with the line before it stands on the same line.

        A line without an end is ended where another replica or stream has something to say meanwhile.
        """
        data = chunk.data
        if not data:
            return
        source = (chunk.role, chunk.replica, chunk.attempt, chunk.stream)
        going_on = self._unfinished == source
        if self._unfinished is not None and not going_on:
            self._put(b"\n", False)
        self._unfinished = None if data.endswith(b"\n") else source
        if self._terminal and b"\x1b" in data:
            self._coloured = True
        before = self._prefix_of(chunk.role, chunk.replica) if self._prefix else b""
        if self._timestamps:
            before = stamp(chunk.time).encode() + b" " + before
        if before:
            end = b"\n" if data.endswith(b"\n") else b""
            body = data.removesuffix(b"\n")
            if self._terminal and b"\r" in body:  # a progress bar goes back to the start of its line
                body = body.replace(b"\r\n", b"\n")
                body = (body.rstrip(b"\r") if end else body).replace(b"\r", b"\r" + before)
            data = (b"" if going_on else before) + body.replace(b"\n", b"\n" + before) + end
        self._put(data, self._live)

    def close(self) -> None:
        """Shows what is still gathered; ends the last line where a person reads it."""
        end = b"\n" if self._unfinished is not None and (self._prefix or self._terminal) else b""
        self._unfinished = None
        self._put(b"\x1b[0m" * self._coloured + end, True)

    def _put(self, data: bytes, now: bool) -> None:
        try:
            self._out.write(data)
            if now:
                self._out.flush()
        except OSError:
            self.failed = True
            raise

    def _prefix_of(self, role: str, replica: int) -> bytes:
        known = self._prefixes.get((role, replica))
        if known is None:
            label = one_line(f"{role}/{replica}")
            text = f"{label:<{self._width}} {self._bar} "
            if self._colour:
                text = f"\x1b[{_COLOURS[len(self._prefixes) % len(_COLOURS)]}m{text}\x1b[0m"
            known = self._prefixes[role, replica] = text.encode("utf-8", "backslashreplace")
        return known


def stamp(seconds: float) -> str:
    """Returns a time as ISO 8601 with zone, in milliseconds; a dash when it is not known.

    >>> stamp(0.0)
    '-'
    """
    if not seconds:
        return "-"
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().isoformat(timespec="milliseconds")


def labels_of(roles: Iterable[tuple[str, int]], limit: int = 40) -> list[str]:
    """Returns the longest name of a replica for each role, given as name and number of replicas.

    >>> labels_of([("trainer", 12), ("ps", 1)])
    ['trainer/11', 'ps/0']
    """
    return [f"{name}/{max(0, count - 1)}"[:limit] for name, count in roles]


def print_chunks(chunks: Iterable[LogChunk], printer: LogPrinter) -> None:
    """Prints all chunks; what was printed before an error stays printed."""
    try:
        for chunk in chunks:
            printer.write(chunk)
    finally:
        printer.close()


def stderr_printer(labels: Iterable[str]) -> LogPrinter:
    """Returns the printer of an attached run."""
    return LogPrinter(sys.stderr, labels)
