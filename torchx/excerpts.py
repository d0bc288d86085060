"""Excerpts of an output: its last lines, limited in number and length."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterable

from torchx.printable import without_controls
from torchx.scheduling.logs import LogChunk

LONGEST = 4096
"""Maximum bytes of a line."""

_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class _Line:
    """A possibly incomplete line; after a carriage return, only the new text is kept."""

    def __init__(self, before: str = "") -> None:
        self._before = before
        self._kept = bytearray()
        self._returned = False  # the cursor is at the start, and the next text overwrites the line
        self._cut = False

    def add(self, data: bytes) -> None:
        body = data.rstrip(b"\r")
        last = body.rfind(b"\r")
        if body and (last >= 0 or self._returned):
            self._kept.clear()
            self._cut = False
        room = LONGEST - len(self._kept)
        self._kept += body[last + 1 : last + 1 + room]
        self._cut = self._cut or len(body) - (last + 1) > room
        self._returned = len(body) < len(data) or (self._returned and not body)

    def text(self) -> str:
        data = bytes(self._kept)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return (
            self._before + plain_line(decoder.decode(data, final=not self._cut)) + (".." if self._cut else "")
        )


def last_lines(chunks: Iterable[LogChunk], count: int, *, names: bool = False) -> list[str]:
    """Returns the last lines of an output, without control codes and truncated.

    Of an overwritten line, as by a progress bar, only the last text is kept.

    Args:
        chunks: the output.
        count: the number of lines.
        names: begin each line with the name of its replica.
    """
    lines: deque[_Line] = deque(maxlen=count)
    unfinished: dict[tuple[object, ...], _Line] = {}
    for chunk in chunks:
        source = (chunk.role, chunk.replica, chunk.attempt, chunk.stream)
        before = ""
        if names:
            before = f"{chunk.role}/{chunk.replica} │ "
        first, newline, rest = chunk.data.partition(b"\n")
        line = unfinished.pop(source, None)
        if line is None:
            line = _Line(before)
            lines.append(line)
        line.add(first)
        if not newline:
            unfinished[source] = line
            continue
        pieces = rest.rsplit(b"\n", count + 1)
        for piece in pieces[1:-1] if len(pieces) > count + 1 else pieces[:-1]:
            line = _Line(before)
            line.add(piece)
            lines.append(line)
        if pieces[-1]:
            line = unfinished[source] = _Line(before)
            line.add(pieces[-1])
            lines.append(line)
    return [line.text() for line in lines]


def last_lines_of(text: str, count: int) -> list[str]:
    """Returns the last lines of a text, as :func:`last_lines` does."""
    if not text:
        return []
    lines = text.removesuffix("\n").rsplit("\n", count)[-count:]
    made = [_Line() for _ in lines]
    for line, written in zip(made, lines, strict=True):
        line.add(written.encode("utf-8", "surrogatepass"))
    return [line.text() for line in made]


def plain_line(text: str) -> str:
    r"""Returns a line without control codes.

    >>> plain_line("\x1b[31mred\x1b[0m\tand\x07 plain")
    'red    and plain'
    """
    text = _SEQUENCES.sub("", text.expandtabs(4))
    return without_controls(text)
