"""The size of a workspace, its limit, and its largest folders."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from torchx.errors import UsageError
from torchx.printable import counted, few
from torchx.workspace.ignore import BUILT_IN, FILES, PRIVATE

MB = 1_000_000

EXTRA_SECONDS = 2.0
"""Seconds to keep scanning after the limit is exceeded, to find the largest folders."""


class Sizes:
    """Counts the bytes of a workspace during a scan.

    Args:
        name: the workspace.
        limit_mb: the maximum size in MB; None for no limit.
    """

    def __init__(self, name: str, limit_mb: int | None) -> None:
        self._name = name
        self._limit_mb = limit_mb
        if limit_mb is None:
            self._limit = float("inf")
        else:
            self._limit = limit_mb * MB
        self._by_folder: Counter[str] = Counter()
        self._total = 0
        self._files = 0
        self._deadline = 0.0

    def add(self, path: str, size: int) -> None:
        """Counts a file.

        Raises:
            UsageError: the limit was exceeded more than :data:`EXTRA_SECONDS` seconds ago.
        """
        if not size:
            return
        self._by_folder["/".join(path.split("/", 2)[:2])] += size
        self._total += size
        self._files += 1
        if self._total > self._limit:
            self._deadline = self._deadline or time.monotonic() + EXTRA_SECONDS
            if time.monotonic() > self._deadline:
                raise self._too_large("at least ")

    def check(self) -> None:
        """Checks the limit.

        Raises:
            UsageError: the workspace is too large.
        """
        if self._total > self._limit:
            raise self._too_large("")

    def summary(self) -> str:
        """Returns the size of the workspace and its largest folders."""
        return f"{self._size_text('')}; most of it is {self._largest()}"

    def _size_text(self, prefix: str) -> str:
        return f"workspace `{self._name}` has {prefix}{mb(self._total)} in {counted(self._files, 'file')}"

    def _largest(self) -> str:
        return ", ".join(f"{folder} ({mb(size)})" for folder, size in self._by_folder.most_common(3))

    def _too_large(self, prefix: str) -> UsageError:
        return UsageError(
            f"{self._size_text(prefix)}, more than workspace_limit_mb={self._limit_mb}; "
            f"most of it is {self._largest()}",
            hint="exclude files in .torchxignore, or raise workspace_limit_mb",
            code="workspace_too_large",
        )


def left_out(name: str, files: int, size: int, left: Mapping[str, Sequence[str]]) -> str:
    """Returns a line about the included and the excluded files of a workspace.

    >>> left_out("app", 2, 3000, {"built in": [".git/", ".env"], ".dockerignore": ["b/"]})
    'workspace `app`: 2 files, 3.0 kB; left out: 1 by .dockerignore, 2 built in (.env, .git/)'
    """
    parts = [f"{len(left[file]):,} by {file}" for file in FILES if left.get(file)]
    for source, one in ((PRIVATE, PRIVATE.removesuffix("s")), (BUILT_IN, BUILT_IN)):
        if paths := sorted(left.get(source, ())):
            kind = source
            if len(paths) == 1:
                kind = one
            parts.append(f"{len(paths):,} {kind} ({few(paths)})")
    return f"workspace `{name}`: {counted(files, 'file')}, {mb(size)}; left out: {', '.join(parts)}"


def mb(size: int) -> str:
    """Formats a number of bytes.

    >>> mb(312), mb(65_000), mb(3_000_000), mb(2_560_000_000)
    ('312 bytes', '65.0 kB', '3.0 MB', '2,560 MB')
    """
    if size < 1000:
        return f"{size} bytes"
    if size < MB:
        return f"{size / 1000:.1f} kB"
    return f"{size / MB:,.{1 if size < 100 * MB else 0}f} MB"
