"""Lines and positions from entries of the index alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from logwriter import MEMBERS

from torchx.jobs.log_index import LAYOUT, PARTIAL, STDOUT, WHOLE, Piece, encode
from torchx.jobs.log_lines import LONGEST_LINE, Lines, Unfinished, first_at
from torchx.scheduling.logs import LogQuery


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
def test_the_begin_of_a_long_line_decides_for_its_rest(begin: bytes, shown: bool) -> None:
    lines = Lines(LogQuery(regex="yes", follow=True))
    long, rest = begin.ljust(LONGEST_LINE, b"."), b"and so on\n"
    found = [*lines.add(piece(1, PARTIAL), long, MEMBERS[0]), *lines.add(piece(2), rest, MEMBERS[0])]
    assert b"".join(chunk.data for chunk in found).endswith(rest) is shown
