"""The progress of the ranks of an application as text."""

from __future__ import annotations

from pathlib import Path

from torchx.printable import few, one_line
from torchx.stragglers.record import RoleSteps, steps_in


def lines_of(folder: Path | None) -> list[str]:
    """Returns a line for each role whose ranks have reported steps.

    Args:
        folder: the folder of the application; None without one.
    """
    return [line_of(role) for role in steps_in(folder)]


def line_of(role: RoleSteps) -> str:
    """Returns the line of a role.

    >>> line_of(RoleSteps("trainer", 1, 1200, 0.5, False, None, ()))
    'trainer: step 1,200, 0.5 s each'
    """
    pace = ""
    if role.pace is not None:
        pace = f", {role.pace:.2g} s each"
    if role.slowest is None:
        return one_line(f"{role.role}: step {role.step:,}{pace}")
    line = f"{role.role}: step {role.step:,} (median of {role.ranks}){pace}, slowest {_slowest(role)}"
    if role.stragglers:
        line += f"; stragglers: {few(role.stragglers)}"
    return one_line(line)


def _slowest(role: RoleSteps) -> str:
    slowest = role.slowest
    assert slowest is not None
    if role.waits:
        return f"{slowest.name}: {slowest.late:.2g} s late at each step"
    if slowest.behind:
        return f"{slowest.name}: {slowest.behind:,} behind ({slowest.late:.3g} s)"
    return f"{slowest.name}: as the median"
