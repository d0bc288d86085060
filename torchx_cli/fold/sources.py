"""The sources of log lines: replicas, and the ranks in them that torchrun names before each line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from torchx.printable import ranges
from torchx.scheduling.logs import LogChunk, Stream

MOST_SOURCES = 1 << 16
"""Maximum number of sources; further ranks are left in the text of their lines."""


class Source(NamedTuple):
    """The origin of lines.

    Attributes:
        number: its number, from 0.
        role: name of the role.
        replica: id of the replica.
        attempt: number of the attempt.
        stream: its stream.
        names: the names before the ranks, such as ``(b"default", b"rank")``; empty if lines have no ranks.
        ranks: the ranks, such as ``(3, 3)`` in ``[default3]:[rank3]: text``.
    """

    number: int
    role: str
    replica: int
    attempt: int
    stream: Stream
    names: tuple[bytes, ...] = ()
    ranks: tuple[int, ...] = ()

    @property
    def prefix(self) -> str:
        """The ranks as they are in the log."""
        return rank_prefix(self.names, [{rank} for rank in self.ranks]).decode()


class Sources:
    """Numbers the sources of chunks and recognizes the prefixes of torchrun."""

    def __init__(self) -> None:
        self.known: list[Source] = []
        self._by_origin: dict[tuple[object, ...], dict[bytes, Source]] = {}
        self._patterns: dict[str, re.Pattern[bytes]] = {}

    def of_chunk(self, chunk: LogChunk) -> Source:
        """Returns the source of lines without ranks."""
        return self._source(chunk, b"")

    def ranked(self, chunk: LogChunk, body: bytes) -> Iterable[tuple[Source, bytes]] | None:
        """Returns the lines of a text with their sources; None if no line begins with a rank.

        Args:
            chunk: the chunk that the text is from.
            body: lines, separated by line feeds.
        """
        if not body.startswith(b"[") and b"\n[" not in body:
            return None
        pattern = self._patterns.get(chunk.role)
        if pattern is None:
            pattern = self._patterns[chunk.role] = _pattern(chunk.role)
        found = pattern.findall(body)
        prefixes = {prefix for prefix, _ in found}
        if prefixes == {b""}:
            return None
        sources = {prefix: self._source(chunk, prefix) for prefix in prefixes}
        return [
            (source, line) if source.names or not prefix else (source, prefix + line)
            for prefix, line in found
            for source in (sources[prefix],)
        ]

    def _source(self, chunk: LogChunk, prefix: bytes) -> Source:
        origin = (chunk.role, chunk.replica, chunk.attempt, chunk.stream)
        by_prefix = self._by_origin.setdefault(origin, {})
        source = by_prefix.get(prefix)
        if source is None:
            if prefix and len(self.known) >= MOST_SOURCES:
                return self._source(chunk, b"")
            parts = _RANK.findall(prefix)
            names, ranks = tuple(name for name, _ in parts), tuple(int(rank) for _, rank in parts)
            source = by_prefix[prefix] = Source(len(self.known), *origin, names, ranks)
            self.known.append(source)
        return source

    def of_mask(self, mask: int) -> list[Source]:
        """Returns the sources whose bits are set in a mask."""
        found = []
        while mask:
            lowest = mask & -mask
            found.append(self.known[lowest.bit_length() - 1])
            mask ^= lowest
        return found


_RANK = re.compile(rb"\[([^\]]*?)(0|[1-9][0-9]*)\]:")


def _pattern(role: str) -> re.Pattern[bytes]:
    """Returns a pattern of a line: its ranks, and the rest.

    A rank is named by PyTorch (``[rank3]:``) or by torchrun with the name of its role (``[default3]:``, or
    ``[3]:`` without a name).
    """
    names = b"|".join([b"rank", b"default", re.escape(role.encode("utf-8", "backslashreplace")), b""])
    return re.compile(rb"(?m)^((?:\[(?:" + names + rb")(?:0|[1-9][0-9]{0,4})\]:)*)(.*)$")


def rank_prefix(names: Iterable[bytes], ranks: Iterable[set[int]]) -> bytes:
    """Returns the prefix of a line that several ranks have printed.

    >>> rank_prefix([b"default", b"rank"], [{0, 1}, {4, 5, 7}])
    b'[default0-1]:[rank4-5,7]:'
    """
    return b"".join(
        b"[%b%b]:" % (name, ranges(set_).encode()) for name, set_ in zip(names, ranks, strict=True)
    )
