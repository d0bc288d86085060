"""What the index lacks of a job that wrote several pieces, or was started again."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from logwriter import Writer

from torchx.jobs import log_lines, log_reader
from torchx.jobs.log_index import LAYOUT, STDERR
from torchx.scheduling.logs import LogQuery, Stream


def keep_entries(writer: Writer, number: int) -> None:
    """Leaves the first entries of the index."""
    writer.paths.index.write_bytes(writer.paths.index.read_bytes()[: number * LAYOUT.size])


def test_all_noted_pieces_of_stream_are_passed_over_together(writer: Writer) -> None:
    for line in (b"one\n", b"two\n", b"three\n", b"four\n"):
        writer.put(0, line, STDERR)
    writer.put(0, b"out\n")
    writer.put(0, b"five\n", STDERR)
    writer.end()
    keep_entries(writer, 4)
    assert writer.text(stream=Stream.STDERR) == "one\ntwo\nthree\nfour\nfive\n"
    assert writer.text(stream=Stream.STDOUT) == "out\n"


def test_current_attempt_is_one_that_nothing_is_noted_of(writer: Writer) -> None:
    writer.put(0, b"first\n")
    writer.retry(0)
    writer.put(0, b"second\n")
    writer.end()
    keep_entries(writer, 0)
    chunks = list(writer.log().read(LogQuery()))
    assert [(chunk.attempt, chunk.data) for chunk in chunks] == [(2, b"second\n")]


def test_a_tail_counts_an_unfinished_line_after_whole_ones(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "LONGEST_LINE", 3)  # bytes to read at a time
    monkeypatch.setattr(log_lines, "LONGEST_LINE", 3)
    writer.put(0, b"a\nbb\ncc\nd")
    writer.end()
    keep_entries(writer, 0)
    for tail, expected in enumerate(("", "d", "cc\nd", "bb\ncc\nd", "a\nbb\ncc\nd")):
        assert writer.text(tail=tail) == expected


def test_a_tail_counts_the_lines_of_the_index_alone(writer: Writer) -> None:
    for number in range(6):
        writer.put(0, b"%d\n" % number)
    assert writer.text(tail=2) == "4\n5\n"
    assert writer.text(tail=2, stream=Stream.STDERR) == ""
    assert writer.text(tail=6) == "0\n1\n2\n3\n4\n5\n"
    assert writer.text(tail=0) == ""


def test_a_moment_between_two_entries(writer: Writer) -> None:
    writer.put(0, b"early\n")
    writer.put(0, b"late\n")
    middle = datetime.fromtimestamp(writer.clock.seconds - 0.5, timezone.utc)
    assert writer.text(since=middle) == "late\n"
    assert writer.text(until=middle) == "early\n"
    exactly = datetime.fromtimestamp(writer.clock.seconds, timezone.utc)
    assert writer.text(since=exactly) == "late\n"
    assert writer.text(until=exactly) == "early\n"


def test_attempt_without_entries_is_read_after_one_with_entries(writer: Writer) -> None:
    writer.put(0, b"first\n")
    writer.put(1, b"other\n")
    writer.retry(0)
    writer.put(0, b"second\n")
    writer.put(0, b"err\n", STDERR)
    writer.end()
    keep_entries(writer, 2)
    assert writer.text() == "first\nother\nsecond\nerr\n"
    assert writer.text(stream=Stream.STDERR) == "err\n"
    assert writer.text(tail=2, replicas={"w": frozenset([0])}) == "second\nerr\n"
