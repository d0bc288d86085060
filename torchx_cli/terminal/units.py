"""Format amounts: bytes, CPU cores, shares."""

from __future__ import annotations


def size(count: int) -> str:
    """Formats a number of bytes.

    >>> size(900), size(34_500_000), size(2_000_000_000)
    ('900 B', '34.5 MB', '2.0 GB')
    """
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def cores(count: float) -> str:
    """Formats a number of CPU cores.

    >>> cores(3.14159), cores(0.044)
    ('3.1', '0.04')
    """
    return f"{count:.1f}" if count >= 1 else f"{count:.2f}"


def percent(share: float) -> str:
    """Formats a share.

    >>> percent(0.853)
    '85%'
    """
    return f"{share:.0%}"
