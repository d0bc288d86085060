"""The log files that a supervisor writes: whole, at the right offsets, and complete after an error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from logwriter import SteppedClock

from torchx.jobs.log_index import PARTIAL, STDERR, STDOUT, WHOLE, Piece, decode
from torchx.supervisor import output
from torchx.supervisor.output import LONGEST_HELD, AttemptOutput, Index, LogFile

Write = Callable[[int, bytes], int]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path / "log.index")


def attempt(index: Index, folder: Path, keep_open: bool = True) -> AttemptOutput:
    return AttemptOutput(folder / "w" / "0", 4, 2, index, SteppedClock(), keep_open)


def pieces(index: Index, folder: Path) -> list[Piece]:
    index.flush()
    return list(decode((folder / "log.index").read_bytes()))


def test_lines_are_written_when_they_end(index: Index, tmp_path: Path) -> None:
    written = attempt(index, tmp_path)
    written.feed(STDOUT, b"one\ntwo\nth")
    assert written.holds
    written.feed(STDERR, b"err\n")
    written.feed(STDOUT, b"ree\n")
    assert not written.holds
    start = 1_700_000_000 * 10**9
    assert pieces(index, tmp_path) == [
        Piece(start + 1 * 10**9, 0, 8, 4, 2, STDOUT, WHOLE),
        Piece(start + 2 * 10**9, 8, 4, 4, 2, STDERR, WHOLE),
        Piece(start + 3 * 10**9, 12, 6, 4, 2, STDOUT, WHOLE),
    ]
    written.close()
    assert (tmp_path / "w" / "0" / "combined.log").read_bytes() == b"one\ntwo\nerr\nthree\n"


def test_an_unfinished_line_is_written_when_it_has_waited(index: Index, tmp_path: Path) -> None:
    written = attempt(index, tmp_path)
    written.feed(STDOUT, b"a")  # the clock goes on by a second at each look
    written.feed(STDERR, b"b")
    written.feed(STDOUT, b"c")
    written.flush(older_than=4.0)
    assert pieces(index, tmp_path) == []
    written.flush(older_than=4.0)
    assert [(piece.stream, piece.length, piece.flags) for piece in pieces(index, tmp_path)] == [
        (STDOUT, 2, PARTIAL)
    ]
    written.flush(older_than=4.0)
    assert len(pieces(index, tmp_path)) == 2
    assert not written.holds
    written.feed(STDOUT, b"d")
    written.flush(older_than=2.0)
    assert written.holds, "the next unfinished line waits from its own begin"


def test_a_line_waits_from_its_own_begin(index: Index, tmp_path: Path) -> None:
    written = attempt(index, tmp_path)
    for data in (b"a", b"b", b"c\nd"):
        written.feed(STDOUT, data)
    written.flush(older_than=2.0)
    assert [piece.length for piece in pieces(index, tmp_path)] == [4]
    assert written.holds


def test_a_line_has_waited_since_it_began(index: Index, tmp_path: Path) -> None:
    written = attempt(index, tmp_path)
    clock = SteppedClock()
    clock.seconds, written.clock = 0, clock
    written.feed(STDOUT, b"a")
    written.flush(older_than=1.0)
    assert [piece.length for piece in pieces(index, tmp_path)] == [1]


@pytest.mark.parametrize(("size", "count"), [(LONGEST_HELD - 1, 0), (LONGEST_HELD, 1)])
def test_a_long_line_is_written_in_parts(index: Index, tmp_path: Path, size: int, count: int) -> None:
    written = attempt(index, tmp_path)
    written.feed(STDOUT, b"x" * (size - 1))
    written.feed(STDOUT, b"x")
    assert [(piece.length, piece.flags) for piece in pieces(index, tmp_path)] == [(size, PARTIAL)] * count
    assert written.holds is not bool(count)
    written.flush(older_than=100.0)
    assert written.holds is not bool(count)


def test_files_of_attempt_are_new_and_index_goes_on(index: Index, tmp_path: Path) -> None:
    for keep_open in (True, False):
        written = attempt(index, tmp_path, keep_open)
        written.feed(STDOUT, b"a\n")
        written.feed(STDOUT, b"b\n")
        written.close()
        assert (tmp_path / "w" / "0" / "stdout.log").read_bytes() == b"a\nb\n"
        assert (tmp_path / "w" / "0" / "combined.log").read_bytes() == b"a\nb\n"
    index.close()
    again = Index(tmp_path / "log.index")
    assert len(pieces(again, tmp_path)) == 4
    again.close()


def test_a_short_write_is_continued(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Write = os.write
    monkeypatch.setattr(output.os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
    written = attempt(index, tmp_path)
    written.feed(STDOUT, b"a long line\n")
    written.close()
    assert (tmp_path / "w" / "0" / "stdout.log").read_bytes() == b"a long line\n"
    assert [piece.length for piece in pieces(index, tmp_path)] == [12]


def test_closed_file_uses_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    for keep_open in (True, False):
        file = LogFile(str(tmp_path / "file"), keep_open)
        file.write(b"a")
        file.close()
        file.write(b"b")
        assert (tmp_path / "file").read_bytes() == b"ab"
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before


class FullDisk:
    """Writes so many bytes, and then nothing more until there is room again."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write: Write = os.write

    def write(self, descriptor: int, data: bytes) -> int:
        part = bytes(data)[: self.room]
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(part)
        return self._write(descriptor, part)


def test_after_a_full_disk_the_offsets_are_right(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(10**6)
    monkeypatch.setattr(output.os, "write", disk.write)
    written = attempt(index, tmp_path)
    written.feed(STDOUT, b"first\n")
    disk.room = 7 + 3  # the second line comes into its own log, and half into the combined one
    written.feed(STDOUT, b"second\n")
    assert (written.lost, written.lost_why) == (7, "No space left on device")
    written.feed(STDERR, b"third\n")
    assert written.lost == 7 + 6
    index.flush()
    disk.room = 10**6
    written.feed(STDOUT, b"fourth\n")
    disk.room = 10  # the entry is cut short
    index.flush()
    disk.room = 10**6
    written.close()
    combined = (tmp_path / "w" / "0" / "combined.log").read_bytes()
    assert combined == b"first\nsecfourth\n"
    shown = [combined[piece.offset : piece.offset + piece.length] for piece in pieces(index, tmp_path)]
    assert shown == [b"first\n", b"fourth\n"]
    assert written.lost == 7 + 6
