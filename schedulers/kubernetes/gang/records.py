"""Restarts of a gang as annotations of its jobs: the replaced attempts, and the used retries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchx.json_shape import ANY_KEY, REQUIRED, Limited, check
from torchx.schedulers.kubernetes.api.objects import annotation, count_of, short
from torchx.schedulers.kubernetes.names import RETRIES
from torchx.schedulers.kubernetes.objects import Facts

_COUNT = Limited(int, lambda number: 0 <= number < 10**6)
_SHAPE = {
    REQUIRED: ("roles", "used"),
    "roles": {ANY_KEY: _COUNT},
    "used": {ANY_KEY: _COUNT},
    "why": str,
    "at": float,
    "done": bool,
}


@dataclass(frozen=True)
class Restart:
    """A restart of one or more roles.

    Attributes:
        attempts: the attempt that it replaces, by the number of the role.
        used: the used retries, by ``application`` or ``role NAME``.
        why: the reason, one line.
        at: the earliest time of the next start, in seconds since the epoch.
        marked: whether it has begun: the replaced attempts are being ended.
    """

    attempts: Mapping[int, int]
    used: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    at: float = 0.0
    marked: bool = False

    def text(self, *, done: bool = False) -> str:
        """Returns the restart as an annotation.

        Args:
            done: the next attempts exist.
        """
        roles = {str(role): attempt for role, attempt in self.attempts.items()}
        data = {"roles": roles, "used": self.used, "why": self.why, "at": self.at, "done": done}
        return json.dumps(data, separators=(",", ":"))


def restart_from(text: str) -> tuple[Restart, bool] | None:
    """Returns the restart in an annotation, and whether it is done; None if it is damaged."""
    try:
        data = json.loads(text)
        check(data, _SHAPE, "")
    except (ValueError, RecursionError):
        return None
    if any(count_of(role) is None for role in data["roles"]):
        return None
    roles = {int(role): attempt for role, attempt in data["roles"].items()}
    restart = Restart(roles, data["used"], short(data.get("why")), float(data.get("at") or 0.0), True)
    return restart, bool(data.get("done"))


def used_retries(facts: Facts) -> dict[str, int]:
    """Returns the retries that an application has used, by their scope."""
    used: dict[str, int] = {}
    for main in facts.mains:
        found = restart_from(annotation(main, RETRIES))
        for scope, count in found[0].used.items() if found is not None else ():
            used[scope] = max(count, used.get(scope, 0))
    return used
