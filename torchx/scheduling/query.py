"""Queries for applications of a scheduler, and the record of a removal."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from torchx.specs.app_metadata import has_tags


@dataclass(frozen=True)
class AppQuery:
    """A filter of applications (default: all).

    Attributes:
        called: only those with this id, name, or start of an id.
        name: only those whose name matches this pattern, such as ``train*``.
        states: only those in one of these states, by name.
        since: only those submitted at or after this time.
        tags: only those with all of these tags: names, each with a pattern of the value, or None.
    """

    called: str = ""
    name: str = ""
    states: frozenset[str] = field(default_factory=frozenset)
    since: datetime | None = None
    tags: tuple[tuple[str, str | None], ...] = ()

    @property
    def literal(self) -> str:
        """The literal prefix of the name pattern."""
        return literal_of(self.name)

    def takes(
        self,
        app_id: str,
        name: str,
        state: str,
        submitted_at: datetime | None,
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Returns True if an application matches.

        >>> AppQuery(name="tr*").takes("train-b1", "train", "RUNNING", None)
        True
        """
        return (
            (not self.called or begins(app_id, self.called) or name == self.called)
            and (not self.name or fnmatch.fnmatchcase(name, self.name))
            and (not self.states or state in self.states)
            and (self.since is None or (submitted_at is not None and submitted_at >= self.since))
            and (not self.tags or has_tags(tags, self.tags))
        )


def literal_of(pattern: str) -> str:
    """Returns the literal prefix of a pattern.

    >>> literal_of("train*"), literal_of("train")
    ('train', 'train')
    """
    end = min((at for sign in "*?[" if (at := pattern.find(sign)) >= 0), default=len(pattern))
    return pattern[:end]


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
