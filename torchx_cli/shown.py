"""The replicas that `--show` selects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from torchx.command_line import ArgumentError
from torchx.errors import UsageError
from torchx.specs.handles import parse_numbers
from torchx_cli.flags import split_list
from torchx_cli.terminal.units import names_of


def select(text: str, roles: Sequence[tuple[str, int]], origin: str = "--show") -> dict[str, frozenset[int]]:
    """Returns the selected replicas by role, as in a query of logs; empty for all.

    Args:
        text: a list such as ``rank0,last``, ``0,2-4``, ``ROLE`` or ``ROLE/0``; may be empty.
        roles: name and number of replicas of each role.
        origin: the flag or the setting, for the error message.

    Raises:
        UsageError: a part of the list selects nothing.

    >>> sorted(map(sorted, select("rank0,last", [("a", 3), ("b", 1)]).values()))
    [[0], [0, 2]]
    """
    chosen: dict[str, frozenset[int]] = {}
    for part in split_list(text):
        role, _, which = part.rpartition("/")
        found = {
            name: range(count) if part == name else _ids(which, count)
            for name, count in roles
            if role in ("", name)
        }
        if not any(found.values()):
            every = names_of((name, replica) for name, count in roles for replica in range(count))
            raise ArgumentError(
                f"{origin} takes rank0, last, all, 0,2-4, ROLE or ROLE/0, got `{part}`",
                flag="--show",
                given=part,
                hint=f"its replicas: {every}",
            )
        for name, ids in found.items():
            if ids:
                chosen[name] = chosen.get(name, frozenset()).union(ids)
    return chosen


def _ids(which: str, count: int) -> Collection[int]:
    """Returns the replicas of a role that a part of the list selects."""
    named = {"all": range(count), "rank0": range(1), "last": range(count)[-1:]}
    with suppress(UsageError):
        return named.get(which) or set(range(count)).intersection(parse_numbers(which, "", ""))
    return ()
