"""Pushes images to a registry."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import closing
from urllib.parse import quote

from torchx.errors import StateError
from torchx.json_limits import Data
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.images.layers import Layers, lines_of
from torchx.schedulers.docker.images.pull import credentials_for, split_image
from torchx.scheduling.progress import MB, Ongoing

ANONYMOUS = base64.urlsafe_b64encode(b"{}").decode()
"""Empty credentials, as the engine requires the header."""


def push(engine: Engine, name: str, image: Data, report: Callable[[str], None]) -> str:
    """Pushes an image, unless its registry has it, and returns its name by digest.

    Args:
        engine: the engine that has it.
        name: its name, with the registry.
        image: the engine's description of it.
        report: called with a progress message.

    Raises:
        StateError: the registry rejects it.
    """
    repository, tag = split_image(name)
    pushed = [d for d in image.get("RepoDigests") or [] if d.rpartition("@")[0] == repository]
    if pushed and _is_there(engine, repository, pushed[0]):
        return str(pushed[0])
    headers = {"X-Registry-Auth": credentials_for(repository) or ANONYMOUS}
    layers, digest = Layers(), ""
    with Ongoing(report, f"pushing {name}") as ongoing:
        try:
            path = f"/images/{quote(repository, safe='/:')}/push"
            connection, rest = engine.stream(path, {"tag": tag}, "POST", headers)
        except EngineError as error:
            raise _refused(name, error.message) from error
        with closing(connection):
            for line in lines_of(connection, rest):
                if "error" in line:
                    raise _refused(name, str(line["error"]))
                digest = str((line.get("aux") or {}).get("Digest") or digest)
                layers.add(line)
                ongoing.update(layers.text, layers.parts)
        ongoing.done(f"pushed {name}: {layers.size / MB:,.1f} MB in {ongoing.seconds:.1f} s")
    if not digest:
        raise _refused(name, "the engine returned no digest")
    return f"{repository}@{digest}"


def _is_there(engine: Engine, repository: str, address: str) -> bool:
    headers = {"X-Registry-Auth": credentials_for(repository) or ANONYMOUS}
    path = f"/distribution/{quote(address, safe='/:@')}/json"
    try:
        connection, _ = engine.stream(path, None, "GET", headers)
    except EngineError:  # removed, or not supported by the engine
        return False
    connection.close()
    return True


def _refused(name: str, reason: str) -> StateError:
    message = " ".join(reason.split())
    registry = name.partition("/")[0]
    causes = ("denied", "unauthorized", "authentication", "no basic auth")
    denied = any(cause in message.lower() for cause in causes)
    return StateError(
        f"{name} could not be pushed: {message}",
        hint=f"log in first: docker login {registry}" if denied else f"check that {registry} is reachable",
    )
