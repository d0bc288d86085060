"""The state home: the folder of records and logs."""

from __future__ import annotations

import pathlib

from torchx import settings
from torchx.errors import StateError
from torchx.machine import files


def TORCHX_HOME(*subdir_paths: str) -> pathlib.Path:  # noqa: N802 (its documented name)
    """Returns the state home or a folder below it; creates it with access for the owner only.

    It is ``$TORCHX_HOME`` (default: ``~/.torchx``).

    Args:
        subdir_paths: path of the folder below the home.

    Raises:
        StateError: it cannot be created, or the state home belongs to another user.
    """
    home = files.state_home_path()
    folder = home
    try:
        files.make_folder(home)
        files.check_home(home)
        for part in pathlib.Path(*subdir_paths).parts:
            folder = folder / part
            files.make_folder(folder)
    except OSError as e:
        raise StateError(
            f"the state folder {folder} cannot be created: {e.strerror}",
            hint=f"set ${settings.TORCHX_HOME} to a folder that you may write",
        ) from e
    return folder
