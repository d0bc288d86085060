"""Remove files and folders, including read-only ones."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

from torchx.errors import StateError
from torchx.machine import trees
from torchx.machine.files import PRIVATE_FOLDER


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


def remove_logs(logs: Path, default: Path) -> None:
    """Removes the log tree of a job, and the empty folder of its session in a folder of the user.

    Args:
        logs: the log tree, in the folder of its session.
        default: the folder of log trees in the state home, where other jobs are submitted.

    Raises:
        StateError: it cannot be removed completely.
    """
    remove(logs)
    session = logs.parent
    if session.parent != default:
        with suppress(OSError):
            if stat.S_IMODE(session.lstat().st_mode) == PRIVATE_FOLDER:  # as torchx makes it
                session.rmdir()


def cannot_be_removed(error: OSError, path: Path) -> StateError:
    """Returns the error for a path that cannot be removed."""
    return StateError(f"{error.filename or path} cannot be removed: {error.strerror}")
