"""Log lines of engines: one filter, one order and one division into chunks, for all kinds of times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.schedulers.docker import frames
from torchx.schedulers.kubernetes import logs as kubernetes_logs
from torchx.schedulers.shared import logs
from torchx.scheduling.logs import LogChunk, LogQuery, Stream, lines_of, matching, text_of

BEGIN = datetime(2026, 5, 1, 12, 0, 0, tzinfo=timezone.utc)

CLOCKS: dict[str, Callable[[datetime], Any]] = {
    "docker": frames.time_of,
    "kubernetes": kubernetes_logs.time_of,
}


@pytest.fixture(params=sorted(CLOCKS))
def clock(request: pytest.FixtureRequest) -> Callable[[float], Any]:
    """Returns the time of an engine, some seconds after the begin."""
    time_of = CLOCKS[request.param]
    return lambda seconds: time_of(BEGIN + timedelta(seconds=seconds))


def kept(query: LogQuery, clock: Callable[[float], Any], *lines: tuple[float, bytes]) -> list[bytes]:
    time_of = next(each for each in CLOCKS.values() if each(BEGIN) == clock(0))
    keep = logs.line_filter(query, time_of)
    return [line[2] for line in logs.select(iter([(clock(s), 0, data) for s, data in lines]), keep)]


@pytest.mark.parametrize("pattern", ["a.b", "\ufffd", "^\\W", "\\xff", "é$", "\\n", "\\s$"])
def test_every_engine_searches_a_pattern_in_the_same_text(
    pattern: str, clock: Callable[[float], Any]
) -> None:
    lines = [b"a\xffb\n", b"\xff\xfe\n", "café\n".encode(), b"caf\xe9\n", b"plain", b"\n", b"end \n"]
    query = LogQuery(regex=pattern)
    found = kept(query, clock, *((n, line) for n, line in enumerate(lines)))
    # as the readers of local jobs and of Slurm jobs, which filter blocks of lines
    assert b"".join(found) == b"".join(matching(line, re.compile(pattern)) for line in lines)
    shown = [text_of(line).removesuffix("\n") for line in lines]
    assert found == [line for line, text in zip(lines, shown, strict=True) if re.search(pattern, text)]


@given(st.binary(max_size=30).map(lambda data: data.replace(b"\x00", b"\n")), st.sampled_from("a\ufffd. ^$"))
def test_lines_that_match_keep_their_bytes(data: bytes, pattern: str) -> None:
    lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
    lines += [last] if (last := data.rpartition(b"\n")[2]) else []
    expected = [line for line in lines if re.search(pattern, text_of(line.removesuffix(b"\n")))]
    assert matching(data, re.compile(pattern)) == b"".join(expected)


def test_time_range_has_its_begin_and_not_its_end(clock: Callable[[float], Any]) -> None:
    lines = [(0.5, b"early\n"), (1.0, b"begin\n"), (1.999999, b"late\n"), (2.0, b"end\n")]
    one, two = (BEGIN + timedelta(seconds=seconds) for seconds in (1, 2))
    assert kept(LogQuery(since=one, until=two), clock, *lines) == [b"begin\n", b"late\n"]
    assert kept(LogQuery(since=one, until=two, regex="^l"), clock, *lines) == [b"late\n"]
    zone = timezone(timedelta(hours=-7))
    assert kept(LogQuery(since=two.astimezone(zone)), clock, *lines) == [b"end\n"]
    assert kept(LogQuery(), clock, *lines) == [data for _, data in lines]


@pytest.mark.parametrize("most", [1, 9])
def test_sources_are_merged_by_time(
    most: int, clock: Callable[[float], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "BLOCK", 10)  # several blocks in each file
    sources = [[(clock(n + k / 10), k, b"%d of %d\n" % (n, k)) for n in range(9)] for k in range(3)]
    sources[1][-1] = (*sources[1][-1][:2], b"no end")
    merged = list(logs.merged([iter(source) for source in sources], most, 2))
    assert merged == sorted(line for source in sources for line in source)
    assert list(logs.merged([], most, 2)) == []


def test_the_last_lines_are_those_that_match(clock: Callable[[float], Any]) -> None:
    lines: list[tuple[Any, int, bytes]] = [(clock(n), 0, b"%d\n" % n) for n in range(20)]
    keep = logs.line_filter(LogQuery(regex="1"), lambda moment: clock(0))
    assert [line[2] for line in logs.select(iter(lines), keep, 2)] == [b"18\n", b"19\n"]
    assert list(logs.select(iter(lines), None, 0)) == []


def joined(lines: list[tuple[Any, Any, bytes]], until: Callable[[Any], Any]) -> list[tuple[Any, Any, bytes]]:
    def chunk_of(time: Any, source: Any, data: bytes) -> LogChunk:
        return LogChunk(str(source), 0, 1, Stream.COMBINED, float(time), data)

    return [(chunk.time, int(chunk.role), chunk.data) for chunk in logs.chunks(lines, until, chunk_of)]


def test_a_chunk_has_lines_of_one_source_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def until(time: int) -> int:
        return time + 10

    lines = [(0, 0, b"a\n"), (9, 0, b"b\n"), (10, 0, b"c\n"), (11, 1, b"d\n"), (12, 0, b"e\n")]
    assert joined(lines, until) == [(0, 0, b"a\nb\n"), (10, 0, b"c\n"), (11, 1, b"d\n"), (12, 0, b"e\n")]
    # the next part of a source continues an unfinished line; another source does not
    parts = [(0, 0, b"a"), (1, 0, b"b\n"), (2, 0, b"c"), (3, 1, b"d\n")]
    assert joined(parts, until) == [(0, 0, b"ab\nc"), (3, 1, b"d\n")]
    monkeypatch.setattr(logs, "BLOCK", 3)
    assert joined([(0, 0, b"ab\n")] * 3, until) == [(0, 0, b"ab\nab\n"), (0, 0, b"ab\n")]


Line = tuple[int, int, bytes]


def reread(position: logs.Position[int], log: list[Line]) -> Iterator[Line]:
    """Reads a log again from the time of the last line, as an engine returns it, and notes the lines."""
    position.resume()
    for line in log:
        if position.last is None or line[0] >= position.last // 10 * 10:
            fresh = position.fresh(line)
            if fresh is not None:
                position.note(fresh)
                yield fresh


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"\n", b"a\n", b"bb\n"])), max_size=8),
    st.lists(st.integers(0, 8), max_size=4),
)
def test_log_read_in_parts_has_each_line_once(steps: list[tuple[int, bytes]], stops: list[int]) -> None:
    time = 20
    log: list[Line] = []
    for step, data in steps:
        time += step
        log.append((time, 0, data))
    position: logs.Position[int] = logs.Position()
    seen = [line for stop in [*sorted(stops), len(log)] for line in reread(position, log[:stop])]
    assert seen == log


def test_a_line_that_was_read_before_its_end_continues() -> None:
    position: logs.Position[int] = logs.Position()
    seen = b""
    for text in (b"he", b"hell", b"hell", b"hello\n", b"hello\n"):
        seen += b"".join(line[2] for line in reread(position, [(1, 0, b"first\n"), (1, 0, text)]))
    assert seen == b"first\nhello\n"
    assert [
        line[2] for line in reread(position, [(1, 0, b"first\n"), (1, 0, b"hello\n"), (1, 0, b"x\n")])
    ] == [b"x\n"]


def test_lines_end_with_their_attempt_in_their_stream() -> None:
    def chunk(attempt: int, stream: Stream, data: bytes) -> LogChunk:
        return LogChunk("w", 0, attempt, stream, 0.0, data)

    out, err = Stream.STDOUT, Stream.STDERR
    chunks = [chunk(1, out, b"a"), chunk(1, err, b"b\n"), chunk(1, out, b"c\nd"), chunk(2, out, b"e\nf")]
    assert list(lines_of(chunks)) == ["b\n", "ac\n", "d", "e\n", "f"]
