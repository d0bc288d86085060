"""Images on their way to a registry, for engines that pull."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

from torchx.errors import StateError
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.images.layers import Layers, lines_of
from torchx.schedulers.docker.images.pull import credentials_for, split_image
from torchx.scheduling.progress import MB, Ongoing

NOBODY = base64.urlsafe_b64encode(b"{}").decode()
"""What is told a registry that nobody has logged in to: the engine insists on the header."""


def push(engine: Engine, name: str, image: Mapping[str, Any], tell: Callable[[str], None]) -> str:
    """Pushes an image, unless its registry has it, and returns its address there, by digest.

    Args:
        engine: the engine that has it.
        name: its name, which begins with the registry.
        image: what the engine says of it.
        tell: called with a line about what is going on.

    Raises:
        StateError: the registry does not take it.
    """
    repository, tag = split_image(name)
    pushed = [d for d in image.get("RepoDigests") or [] if d.rpartition("@")[0] == repository]
    if pushed and _is_there(engine, repository, pushed[0]):
        return str(pushed[0])
    headers = {"X-Registry-Auth": credentials_for(repository) or NOBODY}
    layers, digest = Layers(), ""
    with Ongoing(tell, f"pushing {name}") as ongoing:
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
        raise _refused(name, "the engine does not tell its digest")
    return f"{repository}@{digest}"


def _is_there(engine: Engine, repository: str, address: str) -> bool:
    headers = {"X-Registry-Auth": credentials_for(repository) or NOBODY}
    path = f"/distribution/{quote(address, safe='/:@')}/json"
    try:
        connection, _ = engine.stream(path, None, "GET", headers)
    except EngineError:  # not there any more, or an engine that cannot ask
        return False
    connection.close()
    return True


def _refused(name: str, reason: str) -> StateError:
    told = " ".join(reason.split())
    registry = name.partition("/")[0]
    denied = any(
        word in told.lower() for word in ("denied", "unauthorized", "authentication", "no basic auth")
    )
    return StateError(
        f"{name} could not be pushed: {told}",
        hint=f"log in first: docker login {registry}" if denied else f"see whether {registry} can be reached",
    )
