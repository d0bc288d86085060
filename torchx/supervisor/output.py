"""Log files of replicas: raw per stream, combined by whole lines, and the index of all of them."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from torchx.jobs.events import Clock
from torchx.jobs.log_index import PARTIAL, STDERR, STDOUT, WHOLE, Piece, encode
from torchx.machine import files

PARTIAL_AFTER = 0.3
"""Seconds after which an unfinished line is written, such as a prompt or a progress bar."""

LONGEST_HELD = 1 << 16
"""Maximum bytes of an unfinished line that are buffered."""

NAMES = {STDOUT: "stdout.log", STDERR: "stderr.log"}
COMBINED = "combined.log"


class LogFile:
    """An append-only file.

    Args:
        path: the file; existing content is removed.
        keep_open: keep the descriptor; otherwise each write opens the file, to save descriptors.
    """

    def __init__(self, path: str, keep_open: bool) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._descriptor: int | None = files.open_file(path, flags, own=False)
        if not keep_open:
            self.close()

    def write(self, data: bytes) -> None:
        """Appends all of the data.

        Raises:
            OSError: the disk is full or the file cannot be written; a part may have been written.
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
        """Closes the descriptor; later writes still work."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Index:
    """Buffers entries of the log index and writes them together.

    Args:
        path: the file, which is appended to.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = files.open_file(path, files.APPEND, own=False)
        self._waiting = bytearray()

    def add(self, piece: Piece) -> None:
        """Buffers one entry; :meth:`flush` writes it."""
        self._waiting += encode(piece)

    def flush(self) -> None:
        """Writes the buffered entries; keeps them if the disk is full."""
        with contextlib.suppress(OSError):
            while self._waiting:
                del self._waiting[: os.write(self._descriptor, self._waiting)]

    def close(self) -> None:
        """Writes the buffered entries and closes the file."""
        self.flush()
        os.close(self._descriptor)


@dataclass
class AttemptOutput:
    """The output of one attempt of one replica.

    Attributes:
        folder: the folder of its log files.
        replica: ordinal within the application.
        attempt: from 1.
        index: the job's index.
        clock: the job's clock.
        keep_open: whether its files stay open between writes.
        received: bytes of output so far.
        lost: bytes that could not be written.
        lost_why: the error that caused the loss.
    """

    folder: Path
    replica: int
    attempt: int
    index: Index
    clock: Clock
    keep_open: bool = True
    received: int = 0
    lost: int = 0
    lost_why: str = ""
    _held: dict[int, bytes] = field(default_factory=dict)
    _held_since: dict[int, int] = field(default_factory=dict)
    _offset: int = 0

    def __post_init__(self) -> None:
        files.make_folder(self.folder)
        folder = str(self.folder)  # joining texts is quicker, which matters with many replicas
        with contextlib.ExitStack() as opened:  # the ones before a file that cannot be opened are closed
            made = []
            for name in (*NAMES.values(), COMBINED):
                made.append(LogFile(f"{folder}/{name}", self.keep_open))
                opened.callback(made[-1].close)
            opened.pop_all()
        *raw, self._combined = made
        self._raw = dict(zip(NAMES, raw, strict=True))

    def feed(self, stream: int, data: bytes) -> None:
        """Writes output that was read from one stream."""
        now = self.clock.ns()
        self.received += len(data)
        try:
            self._raw[stream].write(data)
        except OSError as error:
            self._lose(len(data), error)
            return
        held = self._held.pop(stream, b"")
        cut = data.rfind(b"\n") + 1
        if cut:
            self._write(stream, held + data[:cut] if held else data[:cut], WHOLE, now)
            held = b""
            self._held_since.pop(stream, None)
        held += data[cut:]
        if len(held) >= LONGEST_HELD:
            self._write(stream, held, PARTIAL, now)
            self._held_since.pop(stream, None)
        elif held:
            self._held[stream] = held
            self._held_since.setdefault(stream, now)

    def flush(self, older_than: float = 0.0) -> None:
        """Writes unfinished lines that have been buffered for `older_than` seconds."""
        now = self.clock.ns()
        for stream, since in list(self._held_since.items()):
            if now - since >= older_than * 1e9:
                del self._held_since[stream]
                self._write(stream, self._held.pop(stream), PARTIAL, now)

    @property
    def holds(self) -> bool:
        """True if an unfinished line is buffered."""
        return bool(self._held)

    def close(self) -> None:
        """Writes unfinished lines and closes the files."""
        self.flush()
        for file in (*self._raw.values(), self._combined):
            file.close()

    def _write(self, stream: int, data: bytes, flags: int, now: int) -> None:
        try:
            self._combined.write(data)
        except OSError as error:
            # a part may have been written: continue after it, so that later offsets are right
            with contextlib.suppress(OSError):  # the file may have been removed
                self._offset = os.stat(self._combined.path).st_size  # noqa: PTH116
            self._lose(len(data), error)
            return
        self.index.add(Piece(now, self._offset, len(data), self.replica, self.attempt, stream, flags))
        self._offset += len(data)

    def _lose(self, count: int, error: OSError) -> None:
        self.lost += count
        self.lost_why = error.strerror or str(error)
