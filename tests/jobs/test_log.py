"""The log of a job: what is written and what is read back, for any bytes, from any moment."""

from __future__ import annotations

import os
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logwriter import MEMBERS, START, Writer
from support import wait_until

from torchx.jobs.events import Clock
from torchx.jobs.log_index import STDERR, STDOUT
from torchx.jobs.log_reader import JobLog, Member
from torchx.jobs.paths import LogPaths
from torchx.scheduling.logs import LogQuery, Stream
from torchx.supervisor.output import LONGEST_HELD, AttemptOutput, Index


def test_lines_of_all_replicas_come_in_order_of_time(writer: Writer) -> None:
    writer.put(0, b"a\n")
    writer.put(1, b"b\nc\n")
    writer.put(2, b"d\n", STDERR)
    writer.put(0, b"e\n")
    chunks = list(writer.log().read(LogQuery()))
    assert [(c.role, c.replica, c.stream, c.data) for c in chunks] == [
        ("w", 0, Stream.STDOUT, b"a\n"),
        ("w", 1, Stream.STDOUT, b"b\nc\n"),
        ("ps", 0, Stream.STDERR, b"d\n"),
        ("w", 0, Stream.STDOUT, b"e\n"),
    ]
    assert [c.time for c in chunks] == sorted(c.time for c in chunks)
    assert START < chunks[0].time < START + 10


def test_a_line_that_comes_in_parts_is_returned_whole(writer: Writer) -> None:
    writer.put(0, b"one ")
    writer.put(0, b"err\n", STDERR)
    writer.put(0, b"line\ntw")
    writer.put(0, b"o\n")
    assert writer.text() == "err\none line\ntwo\n"
    assert (writer.paths.replica("w", 0) / "stdout.log").read_bytes() == b"one line\ntwo\n"
    assert (writer.paths.replica("w", 0) / "combined.log").read_bytes() == b"err\none line\ntwo\n"


def test_a_last_line_without_an_end_is_kept(writer: Writer) -> None:
    writer.put(0, b"no end")
    writer.end()
    assert writer.text() == "no end"


def test_begin_of_line_is_kept_and_joined_by_readers(writer: Writer) -> None:
    writer.put(0, b"downloading ")
    writer.outputs[0].flush(older_than=0.0)
    writer.put(0, b"done\n")
    assert writer.text() == "downloading done\n"
    assert writer.text(regex="^downloading done$") == "downloading done\n"


def test_a_very_long_line_needs_no_memory(writer: Writer) -> None:
    line = b"x" * (LONGEST_HELD // 4 + 1)
    for _ in range(12):
        writer.put(0, line)
    assert not writer.outputs[0].holds or len(writer.outputs[0]._held[STDOUT]) < LONGEST_HELD
    writer.put(0, b"\nnext\n")
    assert writer.text() == "x" * (len(line) * 12) + "\nnext\n"


def test_any_bytes_are_kept(writer: Writer) -> None:
    data = bytes(range(256)) + b"\n\xff\xfe\n"
    writer.put(0, data)
    assert b"".join(c.data for c in writer.log().read(LogQuery())) == data
    assert b"".join(c.data for c in writer.log().read(LogQuery(regex="."))) == data.replace(b"\n\n", b"\n")


def test_line_without_end_comes_before_next_attempt(writer: Writer) -> None:
    writer.put(0, b"no end")
    writer.retry(0)
    writer.put(0, b"second\n")
    writer.end()
    chunks = list(writer.log().read(LogQuery()))
    assert [(chunk.attempt, chunk.data) for chunk in chunks] == [(1, b"no end"), (2, b"second\n")]


def test_attempts_are_kept_apart_and_read_in_order(writer: Writer) -> None:
    writer.put(0, b"first\n")
    writer.retry(0)
    writer.put(0, b"second\n")
    assert [(c.attempt, c.data) for c in writer.log().read(LogQuery())] == [(1, b"first\n"), (2, b"second\n")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"replicas": {"w": frozenset([1])}}, "1a\n1b\n"),
        ({"replicas": {"w": frozenset()}}, "0a\n1a\n0b\n1b\n"),
        ({"replicas": {"ps": frozenset([0]), "w": frozenset([0])}}, "0a\n2a\n0b\n"),
        ({"stream": Stream.STDERR}, "2a\n"),
        ({"regex": "a$|1"}, "0a\n1a\n2a\n1b\n"),
        ({"tail": 2}, "0b\n1b\n"),
        ({"tail": 1, "regex": "a"}, "2a\n"),
        ({"tail": 0}, ""),
        ({"tail": 100}, "0a\n1a\n2a\n0b\n1b\n"),
        ({"tail": 1, "replicas": {"w": frozenset([0])}}, "0b\n"),
    ],
)
def test_queries(writer: Writer, query: dict[str, object], expected: str) -> None:
    writer.put(0, b"0a\n")
    writer.put(1, b"1a\n")
    writer.put(2, b"2a\n", STDERR)
    writer.put(0, b"0b\n")
    writer.put(1, b"1b\n")
    assert writer.text(**query) == expected


def test_since_and_until(writer: Writer) -> None:
    start = datetime.fromtimestamp(writer.clock.seconds, timezone.utc)
    for n in range(10):
        writer.put(0, b"%d\n" % n)  # at start + n + 1 seconds
    assert writer.text(since=start + timedelta(seconds=8)) == "7\n8\n9\n"
    assert writer.text(until=start + timedelta(seconds=3)) == "0\n1\n"
    both = {"since": start + timedelta(seconds=3), "until": start + timedelta(seconds=5)}
    assert writer.text(**both) == "2\n3\n"
    assert writer.text(since=start + timedelta(days=1)) == ""


def test_tail_cuts_within_a_piece(writer: Writer) -> None:
    writer.put(0, b"".join(b"%d\n" % n for n in range(1000)))
    assert writer.text(tail=2) == "998\n999\n"


def test_a_progress_bar_is_one_line(writer: Writer) -> None:
    writer.put(0, b"start\n1%\r2%\r3%\nlast\n")
    assert writer.text(tail=1) == "last\n"
    assert writer.text(tail=2) == "1%\r2%\r3%\nlast\n"


def follow(writer: Writer, got: list[bytes], **query: object) -> threading.Thread:
    def read() -> None:
        for chunk in writer.log().read(LogQuery(follow=True, **query)):  # type: ignore[arg-type]
            got.append(chunk.data)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_following_ends_with_the_job_and_misses_nothing(writer: Writer) -> None:
    writer.put(0, b"before\n")
    got: list[bytes] = []
    thread = follow(writer, got)
    wait_until(lambda: got, "the history is read")
    for n in range(200):
        writer.put(n % 3, b"%d\n" % n)
        if n == 100:
            writer.retry(0)
    writer.end()
    thread.join(10)
    assert b"".join(got) == b"before\n" + b"".join(b"%d\n" % n for n in range(200))


def test_following_shows_a_prompt_that_has_no_end_yet(writer: Writer) -> None:
    got: list[bytes] = []
    thread = follow(writer, got)
    writer.put(0, b"name? ")
    writer.outputs[0].flush()
    writer.index.flush()
    wait_until(lambda: got == [b"name? "], "the prompt is shown")
    writer.end()
    thread.join(10)


def test_following_with_a_tail_shows_last_and_new_lines(writer: Writer) -> None:
    writer.put(0, b"1\n2\n3\n4\n")
    got: list[bytes] = []
    thread = follow(writer, got, tail=2)
    wait_until(lambda: b"".join(got) == b"3\n4\n", "the last two lines are read")
    writer.put(0, b"5\n6\n7\n")
    writer.end()
    thread.join(10)
    assert b"".join(got) == b"3\n4\n5\n6\n7\n"


def test_a_job_without_output_has_an_empty_log(tmp_path: Path) -> None:
    assert list(JobLog(LogPaths(tmp_path), MEMBERS, lambda: False).read(LogQuery())) == []


def test_output_that_cannot_be_kept_is_counted(writer: Writer) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full, which Linux has")
    output = AttemptOutput(writer.paths.replica("w", 0), 0, 1, writer.index, writer.clock)
    with open(full, "wb") as disk:
        os.dup2(disk.fileno(), output._raw[STDOUT]._descriptor or -1)
    output.feed(STDOUT, b"lost\n")
    assert (output.lost, output.lost_why) == (5, "No space left on device")
    output.close()


@pytest.mark.parametrize("keep_open", [True, False])
def test_link_in_place_of_log_is_not_followed(tmp_path: Path, keep_open: bool) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    index, folder = Index(tmp_path / "log.index"), tmp_path / "w" / "0"
    folder.mkdir(parents=True)
    (folder / "stdout.log").symlink_to(target)
    with pytest.raises(OSError, match="a link, not a regular file"):
        AttemptOutput(folder, 0, 1, index, Clock(), keep_open)
    (folder / "stdout.log").unlink()
    output = AttemptOutput(folder, 0, 1, index, Clock(), keep_open)
    (folder / "stdout.log").unlink()
    (folder / "stdout.log").symlink_to(target)  # as a replica could do
    output.feed(STDOUT, b"more\n")
    output.close()
    index.close()
    assert target.read_bytes() == b"precious"


def test_files_need_not_stay_open(tmp_path: Path) -> None:
    index = Index(tmp_path / "log.index")
    output = AttemptOutput(tmp_path / "w" / "0", 0, 1, index, Clock(), keep_open=False)
    output.feed(STDOUT, b"a\n")
    output.feed(STDOUT, b"b\n")
    output.close()
    index.close()
    assert (tmp_path / "w" / "0" / "combined.log").read_bytes() == b"a\nb\n"


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([STDOUT, STDERR]), st.binary(max_size=12))))
def test_nothing_is_lost_and_no_line_is_torn(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, int, bytes]]
) -> None:
    writer = Writer(tmp_path_factory.mktemp("log"))
    expected: dict[tuple[int, int], bytes] = {}
    for replica, stream, data in writes:
        writer.put(replica, data, stream)
        expected[replica, stream] = expected.get((replica, stream), b"") + data
    writer.end()
    got: dict[tuple[int, int], bytes] = {}
    for chunk in writer.log().read(LogQuery()):
        key = (
            MEMBERS.index(Member(chunk.role, chunk.replica)),
            STDOUT if chunk.stream is Stream.STDOUT else STDERR,
        )
        assert got.get(key, b"\n").endswith(b"\n")  # only the last line of a stream lacks its end
        got[key] = got.get(key, b"") + chunk.data
    writer.index.close()
    assert got == {key: data for key, data in expected.items() if data}
