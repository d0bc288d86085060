"""Where the output of replicas goes: raw per stream, combined by whole lines, and the index over all."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from torchx.jobs.events import Clock
from torchx.jobs.log_index import PARTIAL, STDERR, STDOUT, WHOLE, Piece, encode
from torchx.machine import files

PARTIAL_AFTER = 0.3
"""Seconds after which the begin of a line is kept although its end has not come: a prompt, a progress bar."""

LONGEST_HELD = 1 << 16
"""Bytes of a line that are held back at most, so that a line without end needs no memory."""

NAMES = {STDOUT: "stdout.log", STDERR: "stderr.log"}
COMBINED = "combined.log"


class LogFile:
    """A file that is only ever appended to.

    Args:
        path: the file; what it held is gone.
        keep_open: hold the descriptor; without, each write opens the file, for when descriptors are scarce.
    """

    def __init__(self, path: Path, keep_open: bool) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._descriptor: int | None = files.open_file(path, flags, own=False)
        if not keep_open:
            self.close()

    def write(self, data: bytes) -> None:
        """Appends all of the data.

        Raises:
            OSError: the disk is full or the file cannot be written; a part may be in it.
        """
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = files.open_file(self.path, os.O_WRONLY | os.O_APPEND, own=False)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            if self._descriptor is None:
                os.close(descriptor)

    def close(self) -> None:
        """Gives the descriptor back; a later write still works."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Index:
    """Collects the entries of the log index and writes them together.

    Args:
        path: the file; appended to.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, own=False)
        self._waiting = bytearray()

    def add(self, piece: Piece) -> None:
        """Notes one entry; :meth:`flush` writes it."""
        self._waiting += encode(piece)

    def flush(self) -> None:
        """Writes what was noted, after the bytes it speaks of; what a full disk refuses waits for later."""
        with contextlib.suppress(OSError):
            while self._waiting:
                del self._waiting[: os.write(self._descriptor, self._waiting)]

    def close(self) -> None:
        """Writes what was noted and closes the file."""
        self.flush()
        os.close(self._descriptor)


@dataclass
class AttemptOutput:
    """The output of one attempt of one replica.

    Attributes:
        folder: holds its log files.
        replica: ordinal within the application.
        attempt: from 1.
        index: the job's index.
        clock: the job's clock.
        keep_open: whether its files stay open between writes.
        lost: bytes that could not be kept, and why.
    """

    folder: Path
    replica: int
    attempt: int
    index: Index
    clock: Clock
    keep_open: bool = True
    lost: int = 0
    lost_why: str = ""
    _held: dict[int, bytes] = field(default_factory=dict)
    _held_since: dict[int, int] = field(default_factory=dict)
    _offset: int = 0

    def __post_init__(self) -> None:
        files.make_folder(self.folder)
        self._raw = {s: LogFile(self.folder / name, self.keep_open) for s, name in NAMES.items()}
        self._combined = LogFile(self.folder / COMBINED, self.keep_open)

    def feed(self, stream: int, data: bytes) -> None:
        """Keeps what was read from one stream."""
        now = self.clock.ns()
        try:
            self._raw[stream].write(data)
        except OSError as error:
            self._lose(len(data), error)
            return
        held = self._held.pop(stream, b"")
        cut = data.rfind(b"\n") + 1
        if cut:
            self._keep(stream, held + data[:cut] if held else data[:cut], WHOLE, now)
            held = b""
            self._held_since.pop(stream, None)
        held += data[cut:]
        if len(held) >= LONGEST_HELD:
            self._keep(stream, held, PARTIAL, now)
            self._held_since.pop(stream, None)
        elif held:
            self._held[stream] = held
            self._held_since.setdefault(stream, now)

    def flush(self, older_than: float = 0.0) -> None:
        """Keeps the begins of lines that have waited for their end for so many seconds."""
        now = self.clock.ns()
        for stream, since in list(self._held_since.items()):
            if now - since >= older_than * 1e9:
                del self._held_since[stream]
                self._keep(stream, self._held.pop(stream), PARTIAL, now)

    @property
    def holds(self) -> bool:
        """True while the begin of a line waits for its end."""
        return bool(self._held)

    def close(self) -> None:
        """Keeps what was held back and closes the files."""
        self.flush()
        for file in (*self._raw.values(), self._combined):
            file.close()

    def _keep(self, stream: int, data: bytes, flags: int, now: int) -> None:
        try:
            self._combined.write(data)
        except OSError as error:
            # a part may have gone in: go on behind it, so that later offsets stay true
            with contextlib.suppress(OSError):  # the file itself may be gone
                self._offset = self._combined.path.stat().st_size
            self._lose(len(data), error)
            return
        self.index.add(Piece(now, self._offset, len(data), self.replica, self.attempt, stream, flags))
        self._offset += len(data)

    def _lose(self, count: int, error: OSError) -> None:
        self.lost += count
        self.lost_why = error.strerror or str(error)
