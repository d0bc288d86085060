"""The index of a job's log: when which piece of which replica's combined log was written.

One file for all replicas, in the order in which their output was read. So a merge by time is a walk through
it, a follower watches one file whatever the number of replicas, and a moment is found by bisection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

LAYOUT = struct.Struct("<QQIIHBB4x")
STDOUT, STDERR = 1, 2
WHOLE, PARTIAL = 0, 1


class Piece(NamedTuple):
    """One entry: a run of bytes that came from one stream together.

    Attributes:
        ns: when it was read, nanoseconds since the epoch; never smaller than that of the entry before.
        offset: where it begins in the combined log of the attempt, bytes.
        length: bytes.
        replica: ordinal of the replica within the application.
        attempt: from 1.
        stream: STDOUT or STDERR.
        flags: PARTIAL when it ends within a line, else WHOLE.
    """

    ns: int
    offset: int
    length: int
    replica: int
    attempt: int
    stream: int
    flags: int


LONGEST_PIECE = 1 << 24
"""Bytes; a supervisor writes no longer ones."""

LARGEST_LOG = 1 << 62
"""Bytes; no file is larger."""


def is_plausible(piece: Piece) -> bool:
    """Returns True for an entry that a supervisor can have written; a damaged index may hold anything."""
    return piece.stream in (STDOUT, STDERR) and piece.length <= LONGEST_PIECE and piece.offset <= LARGEST_LOG


def encode(piece: Piece) -> bytes:
    """Returns the entry as it stands in the file."""
    return LAYOUT.pack(*piece)


def decode(data: bytes) -> Iterator[Piece]:
    """Yields the entries in some bytes of the file; a last one that is half written is left out."""
    whole = len(data) - len(data) % LAYOUT.size
    return map(Piece._make, LAYOUT.iter_unpack(data[:whole]))
