"""Entry points of installed distributions; cheap if there are none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.lazy import lazy_imports

with lazy_imports:
    from importlib import metadata

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def entry_points(group: str) -> list[EntryPoint]:
    """Returns the entry points of a group.

    Whether any distribution has the group at all is looked up in the files themselves: importing
    ``importlib.metadata`` takes longer than most commands do.

    >>> entry_points("torchx.no_such_group")
    []
    """
    if not _is_mentioned(group):
        return []

    return list(metadata.entry_points(group=group))


def _is_mentioned(group: str) -> bool:
    header = f"[{group}]".encode()
    for folder in dict.fromkeys(sys.path):
        try:
            infos = [path for path in Path(folder).iterdir() if path.suffix in (".dist-info", ".egg-info")]
        except NotADirectoryError:
            return True  # an archive: only importlib.metadata can look into it
        except OSError:
            continue
        if any(header in _read(info / "entry_points.txt") for info in infos):
            return True
    return False


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
