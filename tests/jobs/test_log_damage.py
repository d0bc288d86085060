"""The log of a job of which something is missing: a part of its index, all of it, or a file."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from logwriter import Writer

from torchx.jobs.log_index import LAYOUT, STDERR
from torchx.scheduling.logs import Stream


def test_what_a_killed_supervisor_did_not_come_to_note_is_told(writer: Writer) -> None:
    writer.put(0, b"noted\n")
    with open(writer.paths.replica("w", 0) / "combined.log", "ab") as file:
        file.write(b"not noted\n")
    with open(writer.paths.replica("ps", 0) / "combined.log", "ab") as file:
        file.write(b"nothing noted\n")
    writer.end()
    assert writer.text() == "noted\nnot noted\nnothing noted\n"
    assert writer.text(tail=1) == "nothing noted\n"
    assert writer.text(tail=1, replicas={"w": frozenset([0])}) == "not noted\n"


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


def test_of_a_stream_only_what_the_index_lacks_is_read_from_its_file(writer: Writer) -> None:
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
