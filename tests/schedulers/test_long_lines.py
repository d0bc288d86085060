"""A line of 30 MB from an engine: one line, in a moment, whatever it is cut into."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.schedulers.docker.frames import Frames
from torchx.schedulers.kubernetes.api.client import lines_of

STAMP = b"2026-05-01T12:00:00.000000000Z "


def frame(data: bytes, stream: int = 1, stamp: bytes = STAMP) -> bytes:
    body = stamp + data
    return bytes([stream, 0, 0, 0]) + len(body).to_bytes(4, "big") + body


def container() -> Any:
    return cast(Any, SimpleNamespace(id="c"))


def test_a_container_writes_a_long_line() -> None:
    part = b"x" * (1 << 14)
    whole = b"".join(frame(part) for _ in range(30 << 6)) + frame(b"end\n") + frame(b"next\n")
    frames, lines = Frames(container()), []
    began = time.process_time()
    for at in range(0, len(whole), 1 << 18):
        lines += frames.feed(whole[at : at + (1 << 18)])
    assert time.process_time() - began < 1
    assert [len(line[2]) for line in lines] == [(30 << 20) + 4, 5]


def test_line_that_was_read_before_its_end_is_continued() -> None:
    """The output of a restarted container follows an unfinished line, and the line keeps its first time."""
    log = [frame(b"end", stamp=STAMP.replace(b":00.", b":0%d." % second)) for second in range(3)]
    frames = Frames(container())
    seen = b""
    for read in (1, 1, 2, 3, 3):
        frames.resume()
        for line in [*frames.feed(b"".join(log[:read])), *frames.rest()]:
            frames.position.note(line)
            seen += line[2]
    assert seen == b"endendend"


def test_parts_of_both_streams_stay_apart() -> None:
    frames = Frames(container())
    assert frames.feed(frame(b"a") + frame(b"1", 2) + frame(b"b")) == []
    assert [(line[1][1], line[2]) for line in frames.feed(frame(b"2\n", 2))] == [(2, b"12\n")]
    assert [(line[1][1], line[2]) for line in frames.rest()] == [(1, b"ab")]


class Response:
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def stream(self, size: int) -> Iterator[bytes]:
        return iter(self._pieces)


def test_a_pod_writes_a_long_line() -> None:
    began = time.process_time()
    lines = list(lines_of(Response([b"x" * (1 << 16)] * 480 + [b"\nnext"])))
    assert time.process_time() - began < 1
    assert [len(line) for line in lines] == [(480 << 16) + 1, 4]


@given(st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"\x00", b"\n")), max_size=8))
def test_lines_do_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert list(lines_of(Response(pieces))) == [
        *(line + b"\n" for line in whole.split(b"\n")[:-1]),
        *([last] if (last := whole.rpartition(b"\n")[2]) else []),
    ]


@pytest.mark.parametrize("ends", [True, False])
def test_a_line_without_limit_is_handed_on(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx.schedulers.docker.frames.LONGEST_LINE", 8)
    frames = Frames(container())
    lines = frames.feed(frame(b"12345") + frame(b"6789a") + frame(b"b\n" if ends else b"b"))
    assert [line[2] for line in lines + frames.rest()] == [b"123456789a", b"b\n" if ends else b"b"]
