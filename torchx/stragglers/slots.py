"""The last steps of each rank, with their times, in a file that ranks map into memory.

A replica has a page with a ring for each of its first ranks. Nodes of batch systems run a copy of this file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

VARIABLE = "TORCHX_STEPS"
"""Set in replicas whose steps are recorded: the place of their page, ``OFFSET:FILE``."""

RANKS = 16
"""Ranks of a replica that are recorded: those with the lowest local rank."""

KEPT = 16
"""Steps that are kept of each rank."""

SLOT = struct.Struct("=qq")
"""A step: its time by ``time.monotonic_ns()``, and its number."""

RING = KEPT * SLOT.size
PAGE = RANKS * RING
"""Bytes of a replica."""

_UNUSED = bytes(RING)


def read_page(data: bytes, since: float = 0.0) -> dict[int, list[tuple[float, int]]]:
    """Returns the steps of each rank that has reported one: by its local rank, in order of time.

    Args:
        data: the page of a replica.
        since: the start of its attempt by ``time.monotonic()``; earlier steps are not its own.
    """
    found = {}
    for rank in range(RANKS):
        ring = data[rank * RING : (rank + 1) * RING]
        if ring == _UNUSED:
            continue
        beats = sorted((at / 1e9, step) for at, step in SLOT.iter_unpack(ring) if at and step >= 0)
        beats = [beat for beat in beats if beat[0] >= since]
        if beats:
            found[rank] = since_last_reset(beats)
    return found


def since_last_reset(beats: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Returns the last steps whose numbers rise: those before belong to an earlier loop.

    >>> since_last_reset([(1.0, 8), (2.0, 9), (3.0, 0), (4.0, 1)])
    [(3.0, 0), (4.0, 1)]
    """
    begin = len(beats) - 1
    while begin > 0 and beats[begin - 1][1] < beats[begin][1]:
        begin -= 1
    return list(beats[begin:])
