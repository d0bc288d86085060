"""Remove files and folders, including read-only ones."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from torchx.errors import StateError


def remove(path: Path) -> None:
    """Removes a file or a folder if it exists.

    Raises:
        StateError: it cannot be removed completely.
    """
    try:
        if not path.is_dir() or path.is_symlink():
            path.unlink()
            return
        try:
            shutil.rmtree(path)
        except PermissionError:  # a read-only folder, such as one of a workspace
            _open_up(path)
            shutil.rmtree(path)
    except FileNotFoundError:
        return  # removed by another process
    except OSError as error:
        raise cannot_be_removed(error, path) from error


def _open_up(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.chmod(stat.S_IRWXU)
    for folder, names, _ in os.walk(path):
        for name in names:
            place = Path(folder, name)
            if not place.is_symlink():
                with contextlib.suppress(OSError):
                    place.chmod(stat.S_IRWXU)


def cannot_be_removed(error: OSError, path: Path) -> StateError:
    """Returns the error for a path that cannot be removed."""
    return StateError(f"{error.filename or path} cannot be removed: {error.strerror}")
