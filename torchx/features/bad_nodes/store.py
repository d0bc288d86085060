"""The file of the bad nodes of a cluster, in the state home: one for each scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from torchx import json_shape
from torchx.errors import StateError
from torchx.json_limits import compact_json, load_json
from torchx.machine import files, locks
from torchx.printable import few

KEPT = 7 * 86400.0
"""Seconds after the last evidence for which a node is avoided."""
MOST = 1000
"""The nodes of a cluster that are remembered, the latest ones."""
LARGEST = 1 << 21
"""Maximum bytes of a file."""


class BadNode(NamedTuple):
    """A node through which replicas have failed.

    Attributes:
        host: its name, as the engine has it.
        cause: ``node_lost``, ``ecc``, ``xid``, ``nccl_remote`` or ``preflight``.
        evidence: the line that names the cause.
        app: the handle of the application.
        at: the time of the last evidence, in seconds since the epoch.
        until: the time from which it is used again.
    """

    host: str
    cause: str
    evidence: str
    app: str
    at: float
    until: float


def _folder() -> Path:
    return files.user_home() / "nodes"


def clusters() -> list[str]:
    """Returns the names of the schedulers that have a file."""
    names = (Path(name) for name in files.names_in(_folder()))
    return sorted(name.stem for name in names if name.suffix == ".json")


def load(scheduler: str, now: float | None = None) -> list[BadNode]:
    """Returns the bad nodes of a scheduler that are still to be avoided, by host.

    Raises:
        StateError: the file cannot be read.
    """
    path = _folder() / f"{scheduler}.json"
    try:
        data = load_json(files.read_file(path, LARGEST).decode())
        nodes = [json_shape.read(BadNode, each, "node") for each in json_shape.sequence(data, "nodes")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise StateError(f"{path} cannot be read: {error}", hint=f"remove it: rm {path}") from error
    return sorted(node for node in nodes if node.until > (now or time.time()))


def remember(scheduler: str, found: Iterable[BadNode]) -> None:
    """Adds nodes; the later evidence about a node replaces the earlier one."""
    news = {node.host: node for node in found}
    if news:
        _change(scheduler, lambda nodes: [*(node for node in nodes if node.host not in news), *news.values()])


def forgive(scheduler: str, hosts: Iterable[str]) -> None:
    """Removes nodes, which are used again."""
    _change(scheduler, lambda nodes: [node for node in nodes if node.host not in hosts])


def _change(scheduler: str, change: Callable[[list[BadNode]], list[BadNode]]) -> None:
    """Changes a file, while no other process does.

    Raises:
        StateError: it cannot be written.
    """
    files.state_home()
    path = _folder() / f"{scheduler}.json"
    try:
        with locks.exclusive(path.with_suffix(".lock")):
            nodes = sorted(change(load(scheduler)), key=lambda node: node.at)[-MOST:]
            files.write_file(path, compact_json([node._asdict() for node in nodes]).encode())
    except OSError as error:
        raise StateError(f"{error.filename or path}: {error.strerror}") from error


def avoid(scheduler: str, cfg: Any) -> list[str]:
    """Sets the run option `avoid_hosts` to the bad nodes, and returns a note that names them.

    Args:
        scheduler: the name of the scheduler.
        cfg: the run options, which are changed.
    """
    nodes = load(scheduler)
    cfg["avoid_hosts"] = [node.host for node in nodes] or None
    if not nodes:
        return []
    shown = few([f"{node.host} ({node.cause})" for node in nodes], 4)
    return [f"avoids the bad nodes {shown}; to see why: torchx nodes"]
