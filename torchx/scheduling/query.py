"""Which applications of a scheduler are wanted, and what was removed of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


@dataclass(frozen=True)
class AppQuery:
    """Which applications are wanted; all of them where nothing is said.

    Attributes:
        called: only those that answer to this: its id, its name, or the start of its id.
        name: only those whose name fits this pattern, as in ``train*``.
        states: only those in one of these states, by name.
        since: only those that were submitted at or after this time.
    """

    called: str = ""
    name: str = ""
    states: frozenset[str] = field(default_factory=frozenset)
    since: datetime | None = None

    @property
    def literal(self) -> str:
        """How the wanted names begin, before the first sign of the pattern that stands for others."""
        end = min((at for sign in "*?[" if (at := self.name.find(sign)) >= 0), default=len(self.name))
        return self.name[:end]

    def takes(self, app_id: str, name: str, state: str, submitted_at: datetime | None) -> bool:
        """Tells whether an application is wanted.

        >>> AppQuery(name="tr*").takes("train-b1", "train", "RUNNING", None)
        True
        """
        return (
            (not self.called or begins(app_id, self.called) or name == self.called)
            and (not self.name or _fits(name, self.name))
            and (not self.states or state in self.states)
            and (self.since is None or (submitted_at is not None and submitted_at >= self.since))
        )


def begins(app_id: str, text: str) -> bool:
    """Tells whether an id begins with a text; a namespace before a colon may be left out.

    >>> begins("research:train-b1", "train"), begins("research:train-b1", "res"), begins("train-b1", "b1")
    (True, True, False)
    """
    return app_id.startswith(text) or (":" in app_id and app_id.partition(":")[2].startswith(text))


def _fits(name: str, pattern: str) -> bool:
    from fnmatch import fnmatchcase  # on demand: few ask for a pattern

    return fnmatchcase(name, pattern)


class Pruned(NamedTuple):
    """What was removed, or would be.

    Attributes:
        path: the folder or file; of an application, that of its record.
        bytes: the room it took on the disk.
        app_id: the application it was; empty for what a broken-off command has left behind.
    """

    path: str
    bytes: int
    app_id: str = ""
