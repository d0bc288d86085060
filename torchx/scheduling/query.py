"""Queries for applications of a scheduler, and the record of a removal."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


@dataclass(frozen=True)
class AppQuery:
    """A filter of applications (default: all).

    Attributes:
        called: only those with this id, name, or start of an id.
        name: only those whose name matches this pattern, such as ``train*``.
        states: only those in one of these states, by name.
        since: only those submitted at or after this time.
    """

    called: str = ""
    name: str = ""
    states: frozenset[str] = field(default_factory=frozenset)
    since: datetime | None = None

    @property
    def literal(self) -> str:
        """The literal prefix of the name pattern."""
        end = min((at for sign in "*?[" if (at := self.name.find(sign)) >= 0), default=len(self.name))
        return self.name[:end]

    def takes(self, app_id: str, name: str, state: str, submitted_at: datetime | None) -> bool:
        """Returns True if an application matches.

        >>> AppQuery(name="tr*").takes("train-b1", "train", "RUNNING", None)
        True
        """
        return (
            (not self.called or begins(app_id, self.called) or name == self.called)
            and (not self.name or fnmatch.fnmatchcase(name, self.name))
            and (not self.states or state in self.states)
            and (self.since is None or (submitted_at is not None and submitted_at >= self.since))
        )


def begins(app_id: str, text: str) -> bool:
    """Returns True if an id begins with a text; a namespace before a colon may be omitted.

    >>> begins("research:train-b1", "train"), begins("research:train-b1", "res"), begins("train-b1", "b1")
    (True, True, False)
    """
    return app_id.startswith(text) or (":" in app_id and app_id.partition(":")[2].startswith(text))


class Pruned(NamedTuple):
    """Something that was removed, or would be.

    Attributes:
        path: the folder or file; for an application, that of its record.
        bytes: its size on disk.
        app_id: the application; empty for leftovers of an interrupted command.
    """

    path: str
    bytes: int
    app_id: str = ""
