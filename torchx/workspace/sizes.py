"""How large a workspace is, what makes it so, and when that is too much."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from torchx.errors import UsageError
from torchx.workspace.ignore import BUILT_IN, FILES, PRIVATE

MB = 1_000_000

PATIENCE = 2.0
"""Seconds for which a tree that is too large already is looked at further, to tell what makes it so."""


class Sizes:
    """Counts the bytes of a workspace as it is looked at.

    Args:
        name: the workspace.
        limit_mb: MB that it may have; None for any number.
    """

    def __init__(self, name: str, limit_mb: int | None) -> None:
        self._name = name
        self._limit_mb = limit_mb
        self._limit = float("inf") if limit_mb is None else limit_mb * MB
        self._by_place: Counter[str] = Counter()
        self._total = 0
        self._files = 0
        self._until = 0.0

    def add(self, path: str, size: int) -> None:
        """Counts a file.

        Raises:
            UsageError: it is too much, and has been for a while.
        """
        if not size:
            return
        self._by_place["/".join(path.split("/", 2)[:2])] += size
        self._total += size
        self._files += 1
        if self._total > self._limit:
            self._until = self._until or time.monotonic() + PATIENCE
            if time.monotonic() > self._until:
                raise self._too_large("at least ")

    def refuse(self) -> None:
        """Refuses what is too large.

        Raises:
            UsageError: it is.
        """
        if self._total > self._limit:
            raise self._too_large("")

    def told(self) -> str:
        """Returns how large the workspace is, and what makes it so."""
        return f"{self._what('')}; most of it is {self._largest()}"

    def _what(self, about: str) -> str:
        return f"workspace `{self._name}` has {about}{mb(self._total)} in {self._files:,} files"

    def _largest(self) -> str:
        return ", ".join(f"{place} ({mb(size)})" for place, size in self._by_place.most_common(3))

    def _too_large(self, about: str) -> UsageError:
        return UsageError(
            f"{self._what(about)}, more than workspace_limit_mb={self._limit_mb}; "
            f"most of it is {self._largest()}",
            hint="leave out what is not needed by a line in .torchxignore, or raise workspace_limit_mb",
        )


def left_out(name: str, files: int, size: int, left: Mapping[str, Sequence[str]]) -> str:
    """Returns one line about what comes along of a workspace and what does not.

    >>> left_out("app", 2, 3000, {"built in": [".git/", ".env"], ".dockerignore": ["b/"]})
    'workspace `app`: 2 files, 3.0 kB; left out: 1 by .dockerignore, 2 built in (.env, .git/)'
    """
    parts = [f"{len(left[file]):,} by {file}" for file in FILES if left.get(file)]
    for why in (PRIVATE, BUILT_IN):
        if paths := sorted(left.get(why, ())):
            kind = why.removesuffix("s") if len(paths) == 1 else why
            parts.append(f"{len(paths):,} {kind} ({', '.join(paths[:3])}{', ...' if len(paths) > 3 else ''})")
    counted = f"{files:,} file{'' if files == 1 else 's'}"
    return f"workspace `{name}`: {counted}, {mb(size)}; left out: {', '.join(parts)}"


def mb(size: int) -> str:
    """Returns a number of bytes as people say it.

    >>> mb(312), mb(65_000), mb(3_000_000), mb(2_560_000_000)
    ('312 bytes', '65.0 kB', '3.0 MB', '2,560 MB')
    """
    if size < 1000:
        return f"{size} bytes"
    if size < MB:
        return f"{size / 1000:.1f} kB"
    return f"{size / MB:,.{1 if size < 100 * MB else 0}f} MB"
