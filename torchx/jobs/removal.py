"""Remove files and folders, including read-only ones."""

from __future__ import annotations

from pathlib import Path

from torchx.errors import StateError
from torchx.machine import trees


def remove(path: Path) -> None:
    """Removes a file or a folder if it exists.

    Raises:
        StateError: it cannot be removed completely.
    """
    try:
        if not path.is_dir() or path.is_symlink():
            path.unlink()
            return
        trees.remove(path)
    except FileNotFoundError:
        return  # removed by another process
    except OSError as error:
        raise cannot_be_removed(error, path) from error


def cannot_be_removed(error: OSError, path: Path) -> StateError:
    """Returns the error for a path that cannot be removed."""
    return StateError(f"{error.filename or path} cannot be removed: {error.strerror}")
