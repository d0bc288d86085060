"""The pace at which commands that wait query an engine."""

from __future__ import annotations

NEARBY = 0.5
"""Seconds between two queries of an engine of this machine."""

FIRST, LONGEST = 1.0, 15.0
"""Seconds between two queries of an engine that is reached over a network: at first, and later."""


def pause_after(waited: float, *, nearby: bool = False, first: float = FIRST, share: int = 1) -> float:
    """Returns the seconds until the next query of an engine: the longest pause after half a minute.

    Args:
        waited: the seconds since the first query.
        nearby: the engine is on this machine.
        first: the seconds of the first pause.
        share: the number of parts of the command that query the engine.

    >>> [pause_after(waited) for waited in (0.0, 1.0, 10.0, 28.0, 3600.0)]
    [1.0, 1.5, 6.0, 15.0, 15.0]
    >>> pause_after(3600.0, share=2), pause_after(3600.0, nearby=True)
    (30.0, 0.5)
    """
    return NEARBY if nearby else share * min(first + waited / 2, LONGEST)
