"""Local notes of the cluster that an application was submitted to; its handle does not name the cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torchx.errors import TorchxError
from torchx.jobs.paths import state_home, user_home
from torchx.machine import files
from torchx.specs.run_options import CfgVal

_KEPT = ("context", "kubeconfig")
_MAX_LENGTH = 16_384
"""Maximum size of a note in bytes."""


def remember(app_id: str, cfg: Mapping[str, CfgVal]) -> None:
    """Saves the options that select the cluster, if it is not the default one."""
    options = {key: str(cfg[key]) for key in _KEPT if cfg.get(key)}
    if not options:
        return
    if "kubeconfig" in options:
        options["kubeconfig"] = str(Path(options["kubeconfig"]).expanduser().absolute())
    with suppress(OSError, TorchxError):  # the application runs: a missing note must not be an error
        state_home()
        path = _note(app_id)
        files.make_folder(path.parent)
        files.write_file(path, json.dumps(options).encode())


def recall(app_id: str) -> dict[str, CfgVal]:
    """Returns the saved options of an application.

    A kubeconfig may name a program to run, so only notes owned by the caller are read.

    Raises:
        StateError: the state home belongs to another user.
    """
    _refuse_foreign_home()
    try:
        options = json.loads(files.read_file(_note(app_id), _MAX_LENGTH))
    except (OSError, ValueError, RecursionError, TorchxError):
        return {}
    if not isinstance(options, dict):
        return {}
    return {key: options[key] for key in _KEPT if isinstance(options.get(key), str)}


def forget(app_id: str) -> None:
    """Deletes the note of an application."""
    with suppress(OSError, TorchxError):
        _note(app_id).unlink()


def _refuse_foreign_home() -> None:
    with suppress(OSError):
        if user_home().stat().st_uid != os.geteuid():
            state_home()  # raises the error


def _note(app_id: str) -> Path:
    from urllib.parse import quote

    return user_home() / "kubernetes" / f"{quote(app_id, safe=':')}.json"
