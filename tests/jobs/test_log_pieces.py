"""Lines that come in pieces: whole by time, by number and by pattern, whatever they are cut into."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logwriter import MEMBERS, START, Writer

from torchx.jobs import log_lines, log_reader
from torchx.jobs.log_index import PARTIAL, STDERR, STDOUT, WHOLE, Piece, decode
from torchx.jobs.log_lines import Lines, Member, Span, with_unfinished
from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx_cli.commands.log import print_json


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START + seconds, timezone.utc)


def part(writer: Writer, replica: int, data: bytes, stream: int = STDOUT) -> None:
    """Writes the begin of a line, which is kept although its end has not come."""
    writer.put(replica, data, stream)
    writer.outputs[replica].flush()
    writer.index.flush()


@pytest.fixture
def pieces(writer: Writer) -> tuple[Writer, list[float]]:
    """A log of lines that began before, within and after a span of time."""
    part(writer, 0, b"one ")
    part(writer, 1, b"ONE ")
    middle = [writer.clock.seconds - START + 0.5]
    writer.put(0, b"line\ntwo\n")
    part(writer, 0, b"three ")
    writer.put(1, b"LINE\n")
    middle.append(writer.clock.seconds - START + 0.5)
    writer.put(0, b"goes on\nfour\n")
    writer.put(1, b"TWO\n")
    writer.end()
    return writer, middle


def test_a_line_has_the_time_that_it_began_at(pieces: tuple[Writer, list[float]]) -> None:
    writer, (first, second) = pieces
    begun, within, after = "one line\nONE LINE\n", "two\nthree goes on\n", "four\nTWO\n"
    assert writer.text(since=at(first)) == "two\nthree goes on\n" + after
    assert writer.text(until=at(first)) == begun
    assert writer.text(since=at(first), until=at(second)) == within
    assert writer.text(until=at(second)) == "one line\ntwo\nONE LINE\nthree goes on\n"
    assert writer.text(since=at(second)) == after
    assert writer.text(since=at(first), tail=3) == "three goes on\nfour\nTWO\n"
    assert writer.text(since=at(first), regex="e") == "three goes on\n"
    assert writer.text(since=at(first), stream=Stream.STDERR) == ""


def test_the_last_lines_begin_with_their_begin(writer: Writer) -> None:
    part(writer, 1, b"begin ")
    for n in range(40):
        writer.put(0, b"%d\n" % n)
    writer.put(1, b"end\n")
    writer.end()
    assert writer.text(tail=2) == "39\nbegin end\n"
    assert writer.text(tail=1) == "begin end\n"


def test_line_that_matches_in_one_piece_is_shown_whole(writer: Writer) -> None:
    writer.put(0, b"none\n")
    part(writer, 0, b"the begin matches ")
    part(writer, 0, b"and goes on ")
    writer.put(0, b"to the end\nnone\n")
    writer.end()
    assert writer.text(regex="begin") == "the begin matches and goes on to the end\n"


@pytest.mark.parametrize("block", [1, 1000])
def test_the_last_lines_that_match_as_a_whole(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(log_reader, "BLOCK", block * log_reader.LAYOUT.size)
    for number in range(5):
        writer.put(0, b"yes %d\n" % number)
    for number in range(20):
        part(writer, 0, b"not ")
        writer.put(0, b"yes %d\nno\n" % number)
    writer.end()
    assert writer.text(regex="^yes", tail=3) == "yes 2\nyes 3\nyes 4\n"
    assert writer.text(regex="^not yes", tail=1) == "not yes 19\n"


def test_last_lines_may_precede_ends_of_earlier_lines(tmp_path: Path) -> None:
    writer = Writer(tmp_path, [Member("w", n) for n in range(4)])
    sources = [(replica, stream) for replica in range(4) for stream in (STDOUT, STDERR)]
    for replica, stream in sources:
        part(writer, replica, b"too ", stream)
    since = at(writer.clock.seconds - START + 0.5)
    for (replica, stream), data in zip(sources, [b"early\nwhole\n", *[b"early\n"] * 7], strict=True):
        writer.put(replica, data, stream)
    writer.end()
    assert writer.text(since=since, tail=1) == "whole\n"


@pytest.mark.parametrize("lines", [1, 2, 3, 7, 20])
def test_the_last_lines_of_an_index_of_many_blocks(
    writer: Writer, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "BLOCK", 3 * log_reader.LAYOUT.size)
    for n in range(30):
        writer.put(n % 2, b"%d\n" % n)
    writer.end()
    assert writer.text(tail=lines) == "".join(f"{n}\n" for n in range(30 - lines, 30))


def test_earlier_lines_do_not_belong_to_an_unfinished_one(writer: Writer) -> None:
    writer.put(0, b"one\n")
    writer.put(0, b"two\n")
    part(writer, 0, b"begin ")
    middle = writer.clock.seconds - START + 0.5
    writer.put(0, b"end\n")
    writer.end()
    assert writer.text(until=at(middle)) == "one\ntwo\nbegin end\n"
    assert writer.text(since=at(middle)) == ""
    assert writer.text(tail=1) == "begin end\n"


lines_of_text = st.lists(
    st.tuples(
        st.integers(0, 1), st.sampled_from([STDOUT, STDERR]), st.text("ab\né", max_size=6).map(str.encode)
    ),
    max_size=12,
)


@settings(max_examples=150)
@given(lines_of_text, st.data())
def test_any_pieces_and_any_span(written: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "BLOCK", 2 * log_reader.LAYOUT.size)  # every boundary is crossed
        writer = Writer(Path(folder) / "job")
        for replica, stream, text in written:
            if text:
                part(writer, replica, text, stream)
        writer.end()
        last = writer.clock.seconds - START + 2
        since = data.draw(st.none() | st.integers(0, last), label="since")
        until = data.draw(st.none() | st.integers(0, last), label="until")
        query = LogQuery(
            since=None if since is None else at(since - 0.5), until=None if until is None else at(until - 0.5)
        )
        got: dict[tuple[str, int, Stream], bytes] = {}
        for chunk in writer.log().read(query):
            key = chunk.role, chunk.replica, chunk.stream
            got[key] = got.get(key, b"") + chunk.data
        assert got == expected(writer, query)
        writer.index.close()


def expected(writer: Writer, query: LogQuery) -> dict[tuple[str, int, Stream], bytes]:
    """What a log holds of a span: each line counts for the time of the piece that its first byte is in."""
    found: dict[tuple[str, int, Stream], bytes] = {}
    began: dict[tuple[str, int, Stream], int] = {}
    for piece in decode(writer.paths.index.read_bytes()):
        member = MEMBERS[piece.replica]
        key = member.role, member.replica, log_lines.STREAMS[piece.stream]
        with open(writer.paths.replica(*member) / "combined.log", "rb") as file:
            file.seek(piece.offset)
            data = file.read(piece.length)
        for line in data.splitlines(keepends=True):
            ns = began.pop(key, piece.ns)
            if not line.endswith(b"\n"):
                began[key] = ns
            seconds = ns / 1e9
            if (query.since is None or seconds >= query.since.timestamp()) and (
                query.until is None or seconds < query.until.timestamp()
            ):
                found[key] = found.get(key, b"") + line
    return found


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "LONGEST_LINE", 8)


def test_line_handed_on_in_parts_is_one_line(writer: Writer, short_lines: None) -> None:
    writer.put(0, b"first\n")
    for _ in range(5):
        part(writer, 0, b"0123456789")
    writer.put(1, b"other\n")
    writer.put(0, b"end\nlast\n")
    writer.end()
    long = "0123456789" * 5
    mine = {"replicas": {"w": frozenset([0])}}
    assert writer.text(**mine) == f"first\n{long}end\nlast\n"
    assert writer.text(tail=1, **mine) == "last\n"
    assert writer.text(tail=2, **mine) == f"{long}end\nlast\n"
    assert writer.text(tail=3, **mine) == f"first\n{long}end\nlast\n"
    assert writer.text(tail=3) == f"{long}end\nother\nlast\n"
    assert writer.text(tail=2) == "other\nlast\n"
    assert writer.text(regex="^0", **mine) == f"{long}end\n"
    assert writer.text(regex="end", **mine) == "end\n"  # from where it matches: the rest was let go
    assert writer.text(regex="last|first", **mine) == "first\nlast\n"
    assert writer.text(tail=1, regex="0") == f"{long}end\n"


def test_rest_of_a_cut_line_is_not_followed(short_lines: None) -> None:
    lines = Lines(LogQuery(tail=0, follow=True))
    pieces = [(b"be", PARTIAL), (b"gin ", PARTIAL), (b"end\nnext\n", WHOLE)]
    shown = b""
    for n, (data, flag) in enumerate(pieces):
        piece = Piece(n, 0, len(data), 0, 1, STDOUT, flag)
        shown += b"".join(c.data for c in lines.add(piece, data, MEMBERS[0]))
        if n == 0:
            shown += b"".join(c.data for c in lines.up_to_now())
    assert shown == b"next\n"


def test_no_part_ends_within_a_character(writer: Writer, short_lines: None) -> None:
    text = "日本é" * 5
    for byte in text.encode():
        part(writer, 0, bytes([byte]))
    writer.end()
    for follow in (False, True):
        chunks = list(writer.log().read(LogQuery(follow=follow)))
        assert len(chunks) > 1
        assert "".join(c.data.decode() for c in chunks) == text


def chunk(data: bytes, replica: int = 0) -> LogChunk:
    return LogChunk("w", replica, 1, Stream.STDOUT, 0.0, data)


def test_json_marks_what_goes_on_and_cuts_no_character(capsys: pytest.CaptureFixture[str]) -> None:
    e = "é".encode()
    print_json([chunk(b"a" + e[:1]), chunk(b"other\n", 1), chunk(e[1:] + b"b\nc\xff"), chunk(b"\nd" + e[:1])])
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["replica"], one["line"], one["partial"]) for one in shown] == [
        (0, "a", True),
        (1, "other", False),
        (0, "éb", False),
        (0, "c\\xff", True),
        (0, "", False),
        (0, "d", True),
        (0, "\\xc3", True),
    ]


def test_following_reader_gets_line_until_time_to_its_end() -> None:
    span = Span(LogQuery(until=at(10)))
    pieces = [(1, b"a", PARTIAL), (11, b"b", PARTIAL), (12, b"c\nnot", PARTIAL), (13, b" this\n", WHOLE)]
    got = [span.cut(Piece((START + n) * 10**9, 0, 0, 0, 1, STDOUT, flag), data) for n, data, flag in pieces]
    assert got == [b"a", b"b", b"c\n", b""]


def test_the_unfinished_lines_before_a_place() -> None:
    def piece(replica: int, flag: int, offset: int) -> Piece:
        return Piece(0, offset, 1, replica, 1, STDOUT, flag)

    pieces = [
        piece(0, PARTIAL, 0),
        piece(1, PARTIAL, 0),
        piece(0, PARTIAL, 1),
        piece(1, WHOLE, 1),
        piece(0, WHOLE, 2),
    ]
    assert with_unfinished(pieces, 4) == [pieces[0], pieces[2], pieces[4]]
    assert with_unfinished(pieces, 0) == pieces


def test_a_line_of_30_megabytes_is_read_soon(writer: Writer) -> None:
    line = b"x" * (1 << 16)
    for _ in range(480):
        writer.put(0, line)
    writer.end()
    began = time.process_time()
    chunks = list(writer.log().read(LogQuery(tail=10)))
    assert time.process_time() - began < 0.5
    assert sum(len(c.data) for c in chunks) == 480 << 16
    assert len(chunks) == 1
    whole: Iterator[LogChunk] = writer.log().read(LogQuery())
    assert b"\n" not in b"".join(c.data for c in whole)
    assert len(list(writer.log().read(LogQuery(since=at(5) + timedelta(seconds=0.5))))) == 0
