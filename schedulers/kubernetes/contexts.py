"""Clusters by run options and by application: the handle of an application does not name its cluster."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from torchx.errors import TorchxError
from torchx.jobs.paths import state_home, user_home
from torchx.json_shape import typed_at
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.machine.files import expanded
from torchx.schedulers.kubernetes.names import split_run
from torchx.specs.run_options import CfgVal, RunOptions

with lazy_imports:
    from urllib import parse

    from torchx.schedulers.kubernetes.api import client, config

if TYPE_CHECKING:
    from torchx.schedulers.kubernetes.api.client import Cluster

QUICK_CONNECT = 2.0
"""Seconds to wait for a connection in listings, which query several schedulers."""

_KEPT = ("context", "kubeconfig")
_MAX_LENGTH = 16_384
"""Maximum size of a note in bytes."""


class Clusters:
    """The connections of a scheduler to clusters, made on first use."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[str | None, str | None, bool], Cluster] = {}
        self._lock = Lock()

    def select(self, cfg: RunOptions, *, quick: bool = False) -> client.Cluster:
        """Returns the cluster that run options select.

        Args:
            cfg: run options.
            quick: wait only a short time for a connection.
        """
        key = text_of(cfg, "context"), text_of(cfg, "kubeconfig"), quick
        with self._lock:
            if key not in self._clusters:
                self._clusters[key] = client.Cluster(
                    key[0], key[1], connect=QUICK_CONNECT if quick else client.CONNECT
                )
            return self._clusters[key]

    def require_config(self, cfg: RunOptions | None) -> None:
        """Checks that a cluster is configured, without loading the client.

        Raises:
            StateError: the requested kubeconfig does not exist.
            AbsentError: no cluster is configured.
        """
        config.require_config(text_of(cfg, "kubeconfig"))

    def of(self, app_id: str) -> Cluster:
        """Returns the cluster that an application was submitted to, else the default cluster."""
        return self.select(recall(app_id) or recall(split_run(app_id)[0]))

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            clusters, self._clusters = list(self._clusters.values()), {}
        for cluster in clusters:
            cluster.close()


def text_of(cfg: RunOptions | None, option: str) -> str | None:
    """Returns the value of a text option, or None if it is not set."""
    value = (cfg or {}).get(option)
    if value:
        return str(value)
    return None


def remember(app_id: str, cfg: RunOptions) -> None:
    """Saves the options that select the cluster, if it is not the default one."""
    options = {key: str(cfg[key]) for key in _KEPT if cfg.get(key)}
    if not options:
        return
    if "kubeconfig" in options:
        options["kubeconfig"] = str(expanded(options["kubeconfig"]).absolute())
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
        options = typed_at(json.loads(files.read_file(_note(app_id), _MAX_LENGTH)), dict)
    except (OSError, ValueError, RecursionError, TorchxError):
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
    return user_home() / "kubernetes" / f"{parse.quote(app_id, safe=':')}.json"
