"""Lines and positions from entries of the index alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logwriter import MEMBERS, Writer

from torchx.jobs import log_reader
from torchx.jobs.log_index import LAYOUT, PARTIAL, STDOUT, WHOLE, Piece, encode
from torchx.jobs.log_lines import LONGEST_LINE, Lines, Unfinished, first_at
from torchx.scheduling.logs import LogQuery, whole_characters


def piece(ns: int, flags: int = WHOLE, offset: int = 0) -> Piece:
    return Piece(ns, offset, 1, 0, 1, STDOUT, flags)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "log.index"


@pytest.mark.parametrize(("ns", "number"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_time_is_found_in_the_index(index: Path, ns: int, number: int) -> None:
    index.write_bytes(b"".join(encode(piece(when)) for when in (1, 2, 4)))
    with index.open("rb") as file:
        assert first_at(file.fileno(), ns) == number * LAYOUT.size


@pytest.mark.parametrize("block", [LAYOUT.size, 8 * LAYOUT.size])
def test_a_line_begins_after_the_last_one_that_ended(index: Path, block: int) -> None:
    entries = [piece(1, WHOLE, 0), piece(2, PARTIAL, 1), piece(3, PARTIAL, 2), piece(4, WHOLE, 3)]
    index.write_bytes(b"".join(map(encode, entries)))
    descriptor = os.open(index, os.O_RDONLY)
    try:
        assert Unfinished(descriptor, 3 * LAYOUT.size, block).pieces(entries[3]) == entries[1:3]
        assert Unfinished(descriptor, LAYOUT.size, block).pieces(entries[1]) == []
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(("begin", "shown"), [(b"no\nyes ", True), (b"yes\nno ", False)])
def test_begin_of_long_line_decides_for_its_rest(begin: bytes, shown: bool) -> None:
    lines = Lines(LogQuery(regex="yes", follow=True))
    long, rest = begin.ljust(LONGEST_LINE, b"."), b"and so on\n"
    found = [*lines.add(piece(1, PARTIAL), long, MEMBERS[0]), *lines.add(piece(2), rest, MEMBERS[0])]
    assert b"".join(chunk.data for chunk in found).endswith(rest) is shown


def test_the_time_of_a_line_has_its_fraction() -> None:
    (chunk,) = Lines(LogQuery()).add(piece(1_500_000_000), b"x\n", MEMBERS[0])
    assert chunk.time == 1.5


@given(st.text(), st.integers(0, 3))
def test_whole_characters(text: str, cut: int) -> None:
    data = text.encode("utf-8", "surrogatepass")
    kept = data[: len(data) - cut] if cut else data
    end = whole_characters(kept)
    assert len(kept) - end < 4
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert text.startswith(kept[:end].decode())


def test_any_bytes_are_whole_in_the_end() -> None:
    for tail in (b"\xff", b"\x80\x80\x80\x80", b"\xf8\x88", b"\xe2\x28", b""):
        assert whole_characters(b"a" + tail) == len(b"a" + tail)


@pytest.mark.parametrize(("regex", "more"), [(None, 0), (r"\d", 2)], ids=["any", "matching"])
def test_of_a_long_log_only_the_tail_is_read(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, regex: str | None, more: int
) -> None:
    monkeypatch.setattr(log_reader, "BLOCK", 16 * log_reader.LAYOUT.size)
    for n in range(60):
        writer.put(n % 2, b"%02d\n" % n)
    writer.end()
    with writer.paths.index.open("ab") as file:
        file.write(b"torn")  # an entry that is being written
    log = writer.log()
    read: list[int] = []

    def read_piece(piece: Piece, pieces: Callable[[Piece], bytes] = log._bytes) -> bytes:
        read.append(piece.offset)
        return pieces(piece)

    monkeypatch.setattr(log, "_bytes", read_piece)
    query = LogQuery(tail=2, regex=regex)
    assert b"".join(chunk.data for chunk in log.read(query)) == b"58\n59\n"
    # a pattern needs the end of the line before, in each of the two logs
    needed = 2 + 2 * len(MEMBERS) + more
    assert len(read) == 2 * needed, "once for the count, and once for the lines"


def test_silent_log_is_polled_ever_more_rarely(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    ms = log_reader.QUICK_POLL

    def pause(seconds: float) -> None:
        pauses.append(round(seconds / ms, 6))
        if len(pauses) == 6:
            writer.put(0, b"more\n")
        elif len(pauses) == 8:
            for _ in range(log_reader.LITTLE // log_reader.LAYOUT.size + 1):
                writer.put(0, b"much\n")
        elif len(pauses) == 10:
            for _ in range(log_reader.LITTLE // log_reader.LAYOUT.size):
                writer.put(0, b"little\n")
        elif len(pauses) == 12:
            writer.end()

    monkeypatch.setattr(log_reader, "time", SimpleNamespace(sleep=pause, time_ns=time.time_ns))
    shown = writer.text(follow=True)
    assert shown == "more\n" + "much\n" * 17 + "little\n" * 16
    assert pauses == [1, 2, 4, 8, 10, 10, 1, 2, 10, 10, 1, 2]
