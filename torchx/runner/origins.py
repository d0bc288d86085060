"""The applications on shared engines that were submitted from this state home.

Users may share an account, so on a shared engine a selection such as ``--all`` has to know which of the
caller's applications are from here.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from torchx.errors import TorchxError
from torchx.machine import files, locks
from torchx.runner.resolve import LOCKED_WITHIN
from torchx.specs.home import TORCHX_HOME

MOST = 10_000
"""Number of applications that are listed, the newest ones."""

_LARGEST = 1 << 22


def remember(handle: str) -> None:
    """Adds an application to the list; ignores errors, as the submission has succeeded."""
    with suppress(Exception):
        home = TORCHX_HOME()
        with locks.exclusive(home / "submitted.lock", LOCKED_WITHIN):
            kept = [*_read(home / "submitted"), handle][-MOST:]
            files.write_file(home / "submitted", "\n".join(kept).encode())


def recall() -> list[str]:
    """Returns the handles of the listed applications."""
    with suppress(OSError, TorchxError):
        return _read(files.state_home_path() / "submitted")
    return []


def _read(path: Path) -> list[str]:
    try:
        return files.read_file(path, _LARGEST).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return []
