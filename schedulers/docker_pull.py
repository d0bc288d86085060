"""Images on their way to the engine: pulled with progress; what is there is used when that fails."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchx.errors import StateError
from torchx.schedulers.docker_engine import Engine, EngineError

MB = 1_000_000
DOCKER_HUB = "https://index.docker.io/v1/"


def provide(engine: Engine, image: str, tell: Callable[[str], None]) -> str | None:
    """Sees to it that the engine has an image, of its newest version where there is a registry that has it.

    What was made on the engine itself is not looked for elsewhere, nor what is there and named by its digest.

    Args:
        engine: the engine.
        image: the image.
        tell: called with a line about what is going on, at once and whenever it changes.

    Returns:
        What there is to say about it afterwards, None for nothing.

    Raises:
        StateError: it is not there and cannot be pulled.
    """
    here = inspect_image(engine, image)
    if here is not None and (not here.get("RepoDigests") or "@sha256:" in image or image == here["Id"]):
        return None
    try:
        _pull(engine, image, tell)
    except StateError as error:
        if here is not None:
            return f"{image} could not be pulled, the one that is here is used ({_short(error.message)})"
        raise StateError(
            f"the image {image} is not here and cannot be pulled: {_short(error.message)}",
            hint="see what is here: docker images; name one with --image or in the component",
        ) from error
    return None


def inspect_image(engine: Engine, image: str) -> Mapping[str, Any] | None:
    """Returns what the engine says of an image, None when it does not have it."""
    try:
        found: Mapping[str, Any] = engine.call("GET", f"/images/{quote(image, safe='/:@')}/json")
        return found
    except EngineError as error:
        if error.status == 404:
            return None
        raise


def split_image(image: str) -> tuple[str, str]:
    """Returns the repository of an image, and its tag or digest.

    >>> split_image("python"), split_image("box:5000/a/b:1"), split_image("a@sha256:12")
    (('python', 'latest'), ('box:5000/a/b', '1'), ('a', 'sha256:12'))
    """
    name, at, digest = image.partition("@")
    if at:
        return name, digest
    head, colon, tag = image.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (image, "latest")


def _pull(engine: Engine, image: str, tell: Callable[[str], None]) -> None:
    repository, tag = split_image(image)
    headers = {}
    credentials = credentials_for(repository)
    if credentials is not None:
        headers["X-Registry-Auth"] = credentials
    tell(f"pulling {image}")
    connection, rest = engine.stream(
        "/images/create", {"fromImage": repository, "tag": tag}, method="POST", headers=headers
    )
    progress = Progress(f"pulling {image}")
    with closing(connection):
        for line in lines_of(connection, rest):
            if "error" in line:
                raise StateError(str(line["error"]))
            progress.add(line)
            tell(progress.text)


_DONE = ("Download complete", "Pull complete", "Already exists", "Layer already exists", "Pushed")


class Progress:
    """How far a pull, a push or an upload is.

    Args:
        what: what is done, as it is told to people.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._layers: dict[str, tuple[int, int]] = {}
        self._done: set[str] = set()

    def add(self, line: Mapping[str, Any]) -> None:
        """Takes one line of what the engine tells."""
        layer, detail = str(line.get("id") or ""), line.get("progressDetail") or {}
        status = line.get("status")
        _, total = self._layers.get(layer, (0, 0))
        if status in ("Downloading", "Pushing") and detail.get("total"):
            self._layers[layer] = (min(int(detail["current"]), int(detail["total"])), int(detail["total"]))
        elif status in ("Pulling fs layer", "Preparing", "Waiting"):
            self._layers.setdefault(layer, (0, 0))
        elif status in _DONE:
            self._layers[layer] = (total, total)
            self._done.add(layer)

    @property
    def text(self) -> str:
        """One line.

        >>> p = Progress("pulling a:1")
        >>> p.add({"id": "x", "status": "Downloading", "progressDetail": {"current": 4e6, "total": 31e6}})
        >>> p.add({"id": "y", "status": "Already exists"})
        >>> p.text
        'pulling a:1, 1 of 2 layers, 4 of 31 MB'
        """
        done, total = (sum(column) for column in zip((0, 0), *self._layers.values(), strict=True))
        layers = f", {len(self._done)} of {len(self._layers)} layers" if len(self._layers) > 1 else ""
        return self._what + layers + (f", {done / MB:,.0f} of {total / MB:,.0f} MB" if total else "")


def lines_of(connection: socket.socket, rest: bytes) -> Iterator[Mapping[str, Any]]:
    """Yields the lines of an answer that comes as it is made, each of them JSON."""
    while True:
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)
        more = connection.recv(1 << 16)
        if not more:
            if rest.strip():
                yield json.loads(rest)
            return
        rest += more


def credentials_for(repository: str) -> str | None:
    """Returns what the user's docker configuration holds for the registry of an image."""
    folder = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")  # noqa: PTH111  # without a home too
    if not (Path(folder) / "config.json").exists():
        return None
    from docker import auth  # on demand: it takes longer to load than most commands take in all
    from docker.errors import DockerException

    first, slash, _ = repository.partition("/")
    registry = first if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB
    try:
        found = auth.load_config(config_path=str(Path(folder) / "config.json")).resolve_authconfig(registry)
    except DockerException as error:
        raise StateError(f"the credentials for {registry} cannot be read: {error}") from error
    return base64.urlsafe_b64encode(json.dumps(found).encode()).decode() if found else None


def _short(reason: str) -> str:
    """Returns the last part of a chain of reasons, where the cause stands.

    >>> _short('Get "https://r.io/v2/": dial tcp: lookup r.io on 10.0.0.1:53: no such host')
    'lookup r.io on 10.0.0.1:53: no such host'
    """
    return reason.partition("dial tcp: ")[2] or reason
