"""Checks of an application for a Docker engine: errors, and notes on unsupported features."""

from __future__ import annotations

from collections.abc import Iterable

from torchx.json_limits import Data
from torchx.schedulers.devices import DEVICES
from torchx.scheduling.checks import is_utf8, require_images
from torchx.specs.app import AppDef
from torchx.specs.checks import require_roles


def check(app: AppDef) -> None:
    """Checks an application; without a resource, a container has no limits.

    Raises:
        UsageError: a role has no image.
    """
    require_roles(app)
    require_images(app, "local_docker")


def note_on_bytes(bodies: Iterable[Data]) -> list[str]:
    """Returns a note on arguments and variables that are not UTF-8, which the engine's JSON cannot hold."""
    found = dict[str, None]()
    for body in bodies:
        if not all(map(is_utf8, body["Cmd"])):
            found["an argument"] = None
        found |= {f"variable {text.partition('=')[0]}": None for text in body["Env"] if not is_utf8(text)}
    if not found:
        return []
    return [f"Docker replaces the bytes that are not UTF-8: {', '.join(found)}"]


def notes_of(app: AppDef) -> list[str]:
    """Returns notes on the parts of an application that the engine ignores, a line each."""
    notes = []
    unknown = {name for role in app.roles for name in role.resource.devices if name not in DEVICES}
    if unknown:
        notes.append(f"unknown devices are ignored: {', '.join(sorted(unknown))}")
    fewer = [role.name for role in app.roles if role.min_replicas not in (None, role.num_replicas)]
    if fewer:
        notes.append(f"min_replicas is ignored: all replicas start (role {', '.join(fewer)})")
    return notes
