"""Notes on this machine of the cluster an application was submitted to, which its handle does not name."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torchx.errors import TorchxError
from torchx.jobs.paths import state_home, user_home
from torchx.specs.run_options import CfgVal

_KEPT = ("context", "kubeconfig")
_LONGEST = 16_384
"""Bytes of a note, at most."""


def remember(app_id: str, cfg: Mapping[str, CfgVal]) -> None:
    """Notes the options by which the cluster was found; nothing when it is the usual one."""
    told = {key: str(cfg[key]) for key in _KEPT if cfg.get(key)}
    if not told:
        return
    if "kubeconfig" in told:
        told["kubeconfig"] = str(Path(told["kubeconfig"]).expanduser().absolute())
    with suppress(OSError, TorchxError):  # it runs: a convenience must not turn that into an error
        state_home()
        path = _note(app_id)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(partial, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(told, file)
        partial.replace(path)


def recall(app_id: str) -> dict[str, CfgVal]:
    """Returns the options that were noted for an application; none when nothing was.

    A kubeconfig may name a program to run: a note is believed only when it is a file of the caller.

    Raises:
        StateError: the state home belongs to another user.
    """
    _refuse_foreign_home()
    try:
        found = json.loads(_read(_note(app_id)))
    except (OSError, ValueError, RecursionError, TorchxError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: found[key] for key in _KEPT if isinstance(found.get(key), str)}


def forget(app_id: str) -> None:
    """Removes the note of an application."""
    with suppress(OSError, TorchxError):
        _note(app_id).unlink()


def _refuse_foreign_home() -> None:
    with suppress(OSError):
        if user_home().stat().st_uid != os.geteuid():
            state_home()  # says so


def _read(path: Path) -> bytes:
    """Returns the content of a note; refuses a link, a pipe, and a file of another user."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > _LONGEST:
            raise OSError(f"{path} is not a note of this user")
        return file.read(_LONGEST)


def _note(app_id: str) -> Path:
    from urllib.parse import quote

    return user_home() / "kubernetes" / f"{quote(app_id, safe=':')}.json"
