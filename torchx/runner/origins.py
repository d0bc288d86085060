"""The applications on shared engines that were submitted from this state home.

Users may share an account, so on a shared engine a selection such as ``--all`` has to know which of the
caller's applications are from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.machine import files, locks
from torchx.scheduling.base import Shared
from torchx.specs.handles import parse_app_handle

with lazy_imports:
    from torchx.runner import survey

if TYPE_CHECKING:
    from torchx.runner.host import Host
    from torchx.scheduling.base import ListAppResponse

MOST = 10_000
"""Number of applications that are listed, the newest ones."""

_LARGEST = 1 << 22

LOCKED_WITHIN = 1.0
"""Maximum seconds to wait for another submission that adds its handle."""


def remember(handle: str) -> None:
    """Adds an application to the list; ignores errors, as the submission has succeeded."""
    with suppress(Exception):
        home = files.state_home()
        with locks.exclusive(home / "submitted.lock", LOCKED_WITHIN):
            kept = [*_read(home / "submitted"), handle][-MOST:]
            files.write_file(home / "submitted", "\n".join(kept).encode())


def recall() -> list[str]:
    """Returns the handles of the listed applications."""
    with suppress(OSError, TorchxError):
        return _read(files.state_home_path() / "submitted")
    return []


def from_here(runner: Host, applications: Iterable[ListAppResponse]) -> list[ListAppResponse]:
    """Returns the applications without those of shared engines that were submitted from elsewhere."""
    known: frozenset[str] | None = None
    kept = []
    for app in applications:
        if is_shared(runner, parse_app_handle(app.app_handle).scheduler_backend):
            if known is None:
                known = frozenset(recall())
            if app.app_handle not in known:
                continue
        kept.append(app)
    return kept


def is_shared(runner: Host, backend: str) -> bool:
    """Returns True if an engine is shared with other users, or cannot be loaded."""
    try:
        return runner.has(backend, Shared)
    except survey.EXPECTED:
        return True


def _read(path: Path) -> list[str]:
    try:
        return files.read_file(path, _LARGEST).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return []
