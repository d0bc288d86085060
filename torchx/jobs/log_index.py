"""The index of a job's logs: time, replica and position of each piece of output.

One file for all replicas, in the order in which their output was read: it gives the merge by time, following
a job needs to watch only this file, and a time is found by bisection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

LAYOUT = struct.Struct("<QQIIHBB4x")
STDOUT, STDERR = 1, 2
WHOLE, PARTIAL = 0, 1


class Piece(NamedTuple):
    """One entry: consecutive bytes of one stream.

    Attributes:
        ns: time of reading, nanoseconds since the epoch; never decreases in the index.
        offset: its offset in the combined log of the attempt.
        length: its length in bytes.
        replica: ordinal of the replica within the application.
        attempt: from 1.
        stream: STDOUT or STDERR.
        flags: PARTIAL if it ends within a line, else WHOLE.
    """

    ns: int
    offset: int
    length: int
    replica: int
    attempt: int
    stream: int
    flags: int

    @property
    def is_partial(self) -> bool:
        """Whether it ends within a line."""
        return bool(self.flags)


LONGEST_PIECE = 1 << 24
"""Maximum bytes of a piece that a supervisor writes."""

LARGEST_LOG = 1 << 62
"""Maximum bytes of a log file."""


def is_plausible(piece: Piece) -> bool:
    """Returns True if a supervisor can have written the entry; the index may be damaged."""
    return piece.stream in (STDOUT, STDERR) and piece.length <= LONGEST_PIECE and piece.offset <= LARGEST_LOG


def encode(piece: Piece) -> bytes:
    """Returns the bytes of an entry."""
    return LAYOUT.pack(*piece)


def decode(data: bytes) -> Iterator[Piece]:
    """Yields the entries in a block of the index; ignores an incomplete last one.

    A crash of the machine may leave blocks of zeros, which are ignored too.
    """
    if data == bytes(len(data)):
        return iter(())
    whole = len(data) // LAYOUT.size * LAYOUT.size
    return map(Piece._make, LAYOUT.iter_unpack(data[:whole]))
