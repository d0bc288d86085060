"""The rule of run options, the files of an application, and its recorded progress."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torchx.errors import RunOptionError
from torchx.json_limits import Object
from torchx.json_shape import mapping, read, sequence
from torchx.lazy import lazy_imports
from torchx.machine import files

with lazy_imports:
    import json

STRAGGLER = "straggler"
"""The run option, and the kind of the event and of the notification."""

FEWEST, MOST = 10, 1_000_000
"""Limits of the number of steps; noise would exceed a smaller one."""

MEMORY, PROGRESS = "steps", "steps.json"
"""The names of the file that ranks map into memory, and of the file with the progress of all ranks."""

LARGEST = 1 << 24
"""Maximum bytes of the second one."""


class StragglerRule(NamedTuple):
    """The rule for stragglers of an application that reports steps.

    Attributes:
        steps: the number of steps by which a straggler lags behind; 0 to show the steps only.
        pattern: finds the number of a step in a line of output, in its first group; empty without one.
    """

    steps: int
    pattern: str = ""

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> StragglerRule | None:
        """Returns the rule of run options; None if they watch neither stragglers nor stalls.

        Raises:
            RunOptionError: the number of steps is out of range.

        >>> StragglerRule.of({"straggler": 20}), StragglerRule.of({"stall": "10m"}), StragglerRule.of({})
        (StragglerRule(steps=20, pattern=''), StragglerRule(steps=0, pattern=''), None)
        """
        steps = cfg.get(STRAGGLER)
        if steps is None and cfg.get("stall") is None:
            return None
        if steps is not None and (type(steps) is not int or not FEWEST <= steps <= MOST):
            raise RunOptionError(STRAGGLER, f"is `{steps}`, expected {FEWEST} to {MOST:,} steps")
        pattern = str(cfg.get("progress") or "")
        try:
            groups = re.compile(pattern.encode()).groups
        except re.error:  # reported with the options of stalls
            groups = 0
        return cls(steps or 0, pattern * bool(groups))

    @classmethod
    def recorded(cls, cfg: Mapping[str, Any]) -> StragglerRule | None:
        """Returns the rule in recorded run options; None without one, or if they are damaged."""
        with suppress(ValueError):
            return cls.of(cfg)
        return None


class Report(NamedTuple):
    """The report of a straggler.

    Attributes:
        at: its time, seconds since the epoch.
        replica: the ordinal of the replica.
        message: its message.
    """

    at: float
    replica: int
    message: str

    @property
    def kind(self) -> str:
        """The kind of its event."""
        return STRAGGLER

    @property
    def replicas(self) -> tuple[int, ...]:
        """The ordinals of the replicas that it is about."""
        return (self.replica,)


class Slowest(NamedTuple):
    """The slowest rank of a role.

    Attributes:
        name: ``role/replica``, and its local rank if replicas have several.
        replica: the id of its replica.
        local_rank: its local rank.
        step: its last step.
        behind: the steps between that and the one of the median rank.
        late: the seconds that it is late at each step, or by which it is behind.
    """

    name: str
    replica: int
    local_rank: int
    step: int
    behind: int
    late: float


class RoleSteps(NamedTuple):
    """The progress of the ranks of a role.

    Attributes:
        role: the name of the role.
        ranks: the number of ranks that have reported steps.
        step: the last step of the median rank.
        pace: the seconds of a step; None if they are not known.
        waits: whether the ranks wait for each other at each step.
        slowest: the slowest rank; None if there is only one.
        stragglers: the names of the stragglers.
    """

    role: str
    ranks: int
    step: int
    pace: float | None
    waits: bool
    slowest: Slowest | None
    stragglers: tuple[str, ...]

    def to_json(self) -> Object:
        """Returns plain data for ``json``."""
        slowest = self.slowest
        return {
            **self._asdict(),
            "slowest": None if slowest is None else slowest._asdict(),
            "stragglers": list(self.stragglers),
        }


def steps_in(folder: Path | None) -> list[RoleSteps]:
    """Returns the recorded progress of the roles of an application; empty without one.

    Args:
        folder: the folder of the application; None without one.
    """
    return _items(folder, "roles", RoleSteps)


def to_json(folder: Path | None) -> list[Object]:
    """Returns the recorded progress of the roles of an application as plain data for ``json``.

    Args:
        folder: the folder of the application; None without one.
    """
    return [role.to_json() for role in steps_in(folder)]


def reports_in(folder: Path | None) -> list[Any]:
    """Returns the recorded :class:`Report` of each straggler, without damaged ones.

    Args:
        folder: the folder of the application; None without one.
    """
    return _items(folder, "reports", Report)


def _items(folder: Path | None, name: str, kind: Any) -> list[Any]:
    """Returns a list in the file with the progress, without damaged items."""
    if folder is None:
        return []
    try:
        data = json.loads(files.read_file(folder / PROGRESS, LARGEST))
        rows = sequence(mapping(data, PROGRESS)[name], name)
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return []
    found = []
    for row in rows:
        with suppress(KeyError, TypeError, ValueError):
            found.append(read(kind, row, name))
    return found
