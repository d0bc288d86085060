"""The applications on shared engines that were submitted from this state home.

Users may share an account, so on a shared engine a selection such as ``--all`` has to know which of the
caller's applications are from here.
"""

from __future__ import annotations

import os
from contextlib import suppress

from torchx.errors import TorchxError
from torchx.machine import files, locks
from torchx.specs.home import TORCHX_HOME

_LARGEST = 1 << 22
"""Maximum bytes of the list; the older half is removed when it has more."""


def remember(handle: str) -> None:
    """Adds an application to the list; the submission succeeded, so a failure is no error."""
    with suppress(OSError, TorchxError):
        home = TORCHX_HOME()
        with locks.exclusive(home / "submitted.lock"):
            descriptor = files.open_file(home / "submitted", os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                os.write(descriptor, f"{handle}\n".encode())
                size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            if size > _LARGEST:
                kept = files.read_file(home / "submitted", 2 * _LARGEST)[size // 2 :]
                files.write_file(home / "submitted", kept.partition(b"\n")[2])


def recall() -> frozenset[str]:
    """Returns the handles of the listed applications."""
    try:
        content = files.read_file(files.state_home_path() / "submitted", 2 * _LARGEST)
    except (OSError, TorchxError):
        return frozenset()
    return frozenset(content.decode("utf-8", "replace").split("\n"))
