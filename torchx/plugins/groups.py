"""Entry points of installed distributions; cheap if there are none."""

from __future__ import annotations

import os
import sys
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
            names = os.listdir(folder or ".")  # noqa: PTH208  # a Path for each of a thousand names takes longer
        except NotADirectoryError:
            return True  # an archive: only importlib.metadata can look into it
        except OSError:
            continue
        infos = [name for name in names if name.endswith((".dist-info", ".egg-info"))]
        if any(header in _read(f"{folder or '.'}/{info}/entry_points.txt") for info in infos):
            return True
    return False


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
