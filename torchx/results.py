"""How the end of a process is told as one number."""

from __future__ import annotations


def result_of(exit_code: int | None, signal: str | None) -> int | None:
    """Returns how something ended as one number: its exit code, or 128 + N when signal N ended it.

    >>> result_of(3, None), result_of(None, "SIGKILL"), result_of(None, None)
    (3, 137, None)
    """
    if signal is None:
        return exit_code
    from signal import Signals

    try:
        return 128 + Signals[signal].value
    except KeyError:  # a real-time signal without a name of its own
        digits = "".join(c for c in signal if c.isdigit())
        return 128 + int(digits) if digits else exit_code
