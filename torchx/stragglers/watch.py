"""Compares the ranks of all replicas of an application, and describes their progress as plain data.

Nodes of batch systems run a copy of this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchx.stragglers.rule import Comparison

MOST_REPORTS = 100
"""Reports that are kept of an application."""


class Watch:
    """Finds the stragglers of an application.

    Args:
        replicas: the role and the id of each replica, by ordinal.
        steps: the number of steps of the rule; 0 to find none.
        skew: the most seconds by which the clocks of two ranks may differ.
        reports: the reports of an earlier process.
    """

    def __init__(
        self,
        replicas: Sequence[tuple[str, int]],
        steps: int,
        skew: float = 0.0,
        reports: Sequence[dict[str, object]] = (),
    ) -> None:
        self._replicas = replicas
        self._roles = {role: Comparison(steps, skew) for role, _ in replicas}
        self._reports = list(reports)

    def forget(self, ordinal: int) -> None:
        """Removes a replica, whose attempt has ended."""
        self._roles[self._replicas[ordinal][0]].forget(ordinal)

    def update(
        self, beats: Mapping[int, Mapping[int, Sequence[tuple[float, int]]]], at: float
    ) -> list[tuple[int, str]]:
        """Handles the last steps of all ranks; returns the ordinals and the messages of new stragglers.

        Args:
            beats: the last steps by ordinal and local rank.
            at: the time, in seconds since the epoch.
        """
        of_role: dict[str, dict[tuple[int, int], Sequence[tuple[float, int]]]] = {}
        for ordinal, ranks in beats.items():
            role = self._replicas[ordinal][0]
            of_role.setdefault(role, {}).update({(ordinal, rank): last for rank, last in ranks.items()})
        found = []
        for role, rows in of_role.items():
            comparison = self._roles[role]
            for key in comparison.update(rows):
                text = f"{self._name(comparison, key)}: {comparison.ranks[key].text}"
                found.append((key[0], text))
                self._reports.append({"at": round(at, 3), "replica": key[0], "message": text})
        self._reports = self._reports[-MOST_REPORTS:]
        return found

    def _name(self, comparison: Comparison, key: tuple[int, int]) -> str:
        """Returns the name of a rank; that of its replica if each has one rank only."""
        role, replica = self._replicas[key[0]]
        if any(rank for _, rank in comparison.ranks):
            return f"{role}/{replica} local rank {key[1]}"
        return f"{role}/{replica}"

    def data(self) -> dict[str, object]:
        """Returns the progress of each role that has reported steps, and the reports, as plain data."""
        roles = [self._progress(role, each) for role, each in self._roles.items() if each.ranks]
        return {"roles": roles, "reports": self._reports}

    def _progress(self, role: str, comparison: Comparison) -> dict[str, object]:
        ranks = comparison.ranks
        slowest = None
        if len(ranks) > 1:
            key = comparison.slowest()
            rank = ranks[key]
            slowest = {
                "name": self._name(comparison, key),
                "replica": self._replicas[key[0]][1],
                "local_rank": key[1],
                "step": rank.step,
                "behind": max(rank.behind, 0),
                "late": round(comparison.lag_of(rank), 6),
            }
        return {
            "role": role,
            "ranks": len(ranks),
            "step": comparison.median,
            "pace": comparison.pace,
            "waits": comparison.waits,
            "slowest": slowest,
            "stragglers": [self._name(comparison, key) for key, rank in ranks.items() if rank.text],
        }
