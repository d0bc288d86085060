"""The log of a job of which something is missing: a part of its index, all of it, or a file."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import pytest
from logwriter import Writer

from torchx.jobs import log_reader
from torchx.jobs.log_index import (
    LARGEST_LOG,
    LAYOUT,
    LONGEST_PIECE,
    PARTIAL,
    STDERR,
    STDOUT,
    WHOLE,
    Piece,
    decode,
    encode,
    is_plausible,
)
from torchx.jobs.log_lines import Span
from torchx.scheduling.logs import LogQuery, Stream


def test_output_that_killed_supervisor_did_not_index_is_read(writer: Writer) -> None:
    writer.put(0, b"noted\n")
    with open(writer.paths.replica("w", 0) / "combined.log", "ab") as file:
        file.write(b"not noted\n")
    with open(writer.paths.replica("ps", 0) / "combined.log", "ab") as file:
        file.write(b"nothing noted\n")
    writer.end()
    assert writer.text() == "noted\nnot noted\nnothing noted\n"
    assert writer.text(tail=1) == "nothing noted\n"
    assert writer.text(tail=1, replicas={"w": frozenset([0])}) == "not noted\n"


def test_output_of_running_job_is_read_once_indexed(writer: Writer) -> None:
    writer.put(0, b"noted\n")
    with open(writer.paths.replica("w", 0) / "combined.log", "ab") as file:
        file.write(b"not yet\n")
    assert writer.text() == "noted\n"
    writer.end()
    assert writer.text() == "noted\nnot yet\n"


def damaged(path: Path, index: bytes | None) -> None:
    """Leaves this of the index; None for no file."""
    path.unlink()
    if index is not None:
        path.write_bytes(index)


@pytest.mark.parametrize("index", [None, b"", b"\xa5" * 400], ids=["gone", "empty", "damaged"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, "out\nerr\nother\n"),
        ({"tail": 2}, "err\nother\n"),
        ({"tail": 1, "regex": "out"}, "out\n"),
        ({"stream": Stream.STDERR}, "err\n"),
        ({"stream": Stream.STDOUT, "tail": 9}, "out\nother\n"),
        ({"since": datetime.fromtimestamp(1, timezone.utc)}, "out\nerr\nother\n"),
    ],
    ids=["all", "tail", "regex", "stderr", "stdout", "since"],
)
def test_without_a_usable_index_the_lines_are_still_there(
    writer: Writer, index: bytes | None, query: dict[str, object], expected: str
) -> None:
    writer.put(0, b"out\n")
    writer.put(0, b"err\n", STDERR)
    writer.put(1, b"other\n")
    writer.end()
    damaged(writer.paths.index, index)
    assert writer.text(**query) == expected


def test_only_unindexed_output_is_read_from_its_file(writer: Writer) -> None:
    writer.put(0, b"out\n")
    writer.put(0, b"err\n", STDERR)
    writer.put(0, b"late err\n", STDERR)
    writer.end()
    damaged(writer.paths.index, writer.paths.index.read_bytes()[: 2 * LAYOUT.size])
    assert writer.text() == "out\nerr\nlate err\n"
    assert writer.text(stream=Stream.STDERR) == "err\nlate err\n"
    assert writer.text(stream=Stream.STDERR, tail=1) == "late err\n"
    assert writer.text(stream=Stream.STDOUT) == "out\n"


def test_a_half_written_entry_is_passed_over(writer: Writer) -> None:
    writer.put(0, b"a\n")
    with open(writer.paths.index, "ab") as file:
        file.write(b"x" * (LAYOUT.size // 2))
    assert writer.text() == "a\n"


def test_a_log_that_was_removed_is_passed_over(writer: Writer) -> None:
    writer.put(0, b"a\n")
    writer.put(1, b"b\n")
    (writer.paths.replica("w", 0) / "combined.log").unlink()
    assert writer.text() == "b\n"


@pytest.mark.skipif(bool(os.geteuid()), reason="gives files to another user: run the tests as root")
def test_a_log_of_another_user_can_be_read(writer: Writer) -> None:
    writer.put(0, b"first\n")
    writer.retry(0)
    writer.put(0, b"second\n", STDERR)
    writer.end()
    for path in writer.paths.folder.rglob("*"):
        os.chown(path, 65534, 65534)
    assert writer.text() == "first\nsecond\n"
    damaged(writer.paths.index, writer.paths.index.read_bytes()[: LAYOUT.size])
    os.chown(writer.paths.index, 65534, 65534)
    assert writer.text(stream=Stream.STDERR) == "second\n"


def entry(offset: int, length: int, replica: int = 0, attempt: int = 1, stream: int = STDOUT) -> Piece:
    return Piece(1_700_000_000 * 10**9, offset, length, replica, attempt, stream, WHOLE)


def test_entries_that_repeat_earlier_output_are_passed_over(writer: Writer) -> None:
    writer.put(0, b"a\nb\n")
    writer.retry(0)
    writer.put(0, b"c\nd\n")
    writer.end()
    first, second = entry(0, 4), entry(0, 2, attempt=2)
    for again in (
        (),
        (entry(2, 2),),
        (entry(0, 2, attempt=2),),
        (entry(1, 1, attempt=2),),
        (entry(0, 2, attempt=0),),
    ):
        pieces = [
            first,
            second,
            *again,
            entry(2, 2, attempt=2),
            entry(0, 9, replica=3),
            entry(0, 9, replica=1),
        ]
        writer.paths.index.write_bytes(b"".join(map(encode, pieces)))
        assert writer.text() == "a\nb\nc\nd\n"


def test_an_entry_that_no_supervisor_writes_is_not_plausible() -> None:
    assert is_plausible(entry(LARGEST_LOG, LONGEST_PIECE, stream=STDERR))
    assert is_plausible(entry(0, 0))
    for wrong in (
        entry(LARGEST_LOG + 1, 1),
        entry(1, LONGEST_PIECE + 1),
        entry(1, 1, stream=0),
        entry(1, 1, stream=3),
    ):
        assert not is_plausible(wrong)


def test_zeros_at_end_of_index_cost_no_time(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        writer.put(0, b"%d\n" % number)
    writer.end()
    os.truncate(writer.paths.index, 1 << 26)
    checked: list[Piece] = []
    monkeypatch.setattr(
        log_reader, "is_plausible", lambda piece: checked.append(piece) or is_plausible(piece)
    )
    since = datetime.fromtimestamp(1, timezone.utc)
    assert writer.text() == writer.text(since=since) == "0\n1\n2\n"
    assert writer.text(tail=1) == "2\n"
    assert len(checked) < 10 * log_reader.BLOCK // LAYOUT.size


def test_an_implausible_entry_is_no_begin_of_a_line(writer: Writer) -> None:
    for line in (b"first\n", b"second\n"):
        writer.put(0, line)
    first, second = decode(writer.paths.index.read_bytes())
    wrong = first._replace(offset=(1 << 64) - 1, flags=PARTIAL)
    writer.paths.index.write_bytes(b"".join(map(encode, (first, wrong, second))))
    since = datetime.fromtimestamp(second.ns / 1e9, timezone.utc)
    assert writer.text(since=since) == writer.text(tail=1) == "second\n"


def test_which_pieces_a_query_takes() -> None:
    moment = datetime.fromtimestamp(1_700_000_000, timezone.utc)
    later = datetime.fromtimestamp(1_700_000_001, timezone.utc)
    earlier = datetime.fromtimestamp(1_699_999_999, timezone.utc)
    out, err = entry(0, 1), entry(0, 1, stream=STDERR)
    expected = {
        Stream.COMBINED: [True, True],
        Stream.STDOUT: [True, False],
        Stream.STDERR: [False, True],
    }
    for stream, taken in expected.items():
        assert [Span(LogQuery(stream=stream)).takes(piece) for piece in (out, err)] == taken
    spans = [({}, True), ({"since": moment}, True), ({"since": later}, False), ({"until": moment}, False)]
    spans += [({"until": later}, True), ({"since": moment, "until": moment}, False)]
    spans += [({"since": earlier}, True), ({"until": earlier}, False)]
    assert [Span(LogQuery(**span)).includes(out) for span, _ in spans] == [taken for _, taken in spans]
