"""Pulls images with progress; falls back to the engine's copy if a pull fails."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from torchx.errors import StateError
from torchx.json_limits import Data
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.images.layers import Layers, lines_of
from torchx.scheduling.progress import MB, Ongoing

_DENIED = r"(?i)unauthorized|denied|authentication required|no basic auth|\b40[13]\b"
"""Part of the message of a registry that rejects a request without credentials."""
DOCKER_HUB = "https://index.docker.io/v1/"


def provide(engine: Engine, image: str, report: Callable[[str], None]) -> str | None:
    """Pulls the newest version of an image.

    Images built on the engine are not pulled, nor are present images named by digest.

    Args:
        engine: the engine.
        image: the image.
        report: called with a progress message if the pull takes long.

    Returns:
        A note for the user, or None.

    Raises:
        StateError: the engine does not have the image and cannot pull it.
    """
    here = inspect_image(engine, image)
    if here is not None and (_is_local(image, here) or "@sha256:" in image or image == here["Id"]):
        return None
    try:
        _pull(engine, image, report)
    except StateError as error:
        if here is not None:
            return f"{image} could not be pulled, using the local copy ({_short(error.message)})"
        hint = "list the engine's images: docker images; name one with --image or in the component"
        if re.search(_DENIED, error.message):
            registry = _registry_of(split_image(image)[0])
            hint = f"if it is private, log in: docker login {registry}".rstrip() + "; else check its name"
        raise StateError(
            f"the image {image} is not on the engine and cannot be pulled: {_short(error.message)}",
            hint=hint,
            code="unknown_image",
            facts={"image": image},
        ) from error
    return None


def _is_local(image: str, here: Data) -> bool:
    """Returns True if an image got its name on the engine itself.

    Images pulled from or pushed to a registry have a digest of its repository. With Podman, images that were
    tagged locally also have one, but of another host.
    """
    digests = {_short_name(digest.rpartition("@")[0]) for digest in here.get("RepoDigests") or []}
    return _short_name(split_image(image)[0]) not in digests


def _short_name(repository: str) -> str:
    """Returns a repository without the prefix of Docker Hub.

    >>> _short_name("docker.io/library/python"), _short_name("me/tool"), _short_name("r.io/x")
    ('python', 'me/tool', 'r.io/x')
    """
    return re.sub(r"^(?:(?:index\.)?docker\.io/)?(?:library/)?", "", repository)


def inspect_image(engine: Engine, image: str) -> Data | None:
    """Returns the engine's description of an image, or None if it does not have it."""
    try:
        info: Data = engine.call("GET", f"/images/{quote(image, safe='/:@')}/json")
        return info
    except EngineError as error:
        if error.status == 404:
            return None
        raise


def split_image(image: str) -> tuple[str, str]:
    """Splits an image into its repository, and its tag or digest.

    >>> split_image("python"), split_image("box:5000/a/b:1"), split_image("a@sha256:12")
    (('python', 'latest'), ('box:5000/a/b', '1'), ('a', 'sha256:12'))
    """
    name, at, digest = image.partition("@")
    if at:
        return name, digest
    head, colon, tag = image.rpartition(":")
    if colon and "/" not in tag:
        return (head, tag)
    return (image, "latest")


def _pull(engine: Engine, image: str, report: Callable[[str], None]) -> None:
    repository, tag = split_image(image)
    headers = {}
    credentials = credentials_for(repository)
    if credentials is not None:
        headers["X-Registry-Auth"] = credentials
    layers = Layers()
    with Ongoing(report, f"pulling {image}") as ongoing:
        connection, rest = engine.stream(
            "/images/create", {"fromImage": repository, "tag": tag}, method="POST", headers=headers
        )
        with closing(connection):
            for line in lines_of(connection, rest):
                if "error" in line:
                    raise StateError(str(line["error"]))
                layers.add(line)
                ongoing.update(layers.text, layers.parts)
        if layers.size:
            ongoing.done(f"pulled {image}: {layers.size / MB:,.1f} MB in {ongoing.seconds:.1f} s")


def _registry_of(repository: str) -> str:
    """Returns the host of the registry of a repository; an empty text for Docker Hub.

    >>> _registry_of("ghcr.io/me/tool"), _registry_of("localhost/a"), _registry_of("me/tool")
    ('ghcr.io', 'localhost', '')
    """
    first, slash, _ = repository.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return first * bool(is_host)


def credentials_for(repository: str) -> str | None:
    """Returns the credentials for an image's registry from the user's docker configuration, or None."""
    # Path.home() raises without a home
    folder = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")  # noqa: PTH111
    if not (Path(folder) / "config.json").exists():
        return None
    from docker import auth  # on demand: slow to import
    from docker.errors import DockerException

    registry = _registry_of(repository) or DOCKER_HUB
    try:
        login = auth.load_config(config_path=str(Path(folder) / "config.json")).resolve_authconfig(registry)
    except DockerException as error:
        raise StateError(f"the credentials for {registry} cannot be read: {error}") from error
    if login:
        return base64.urlsafe_b64encode(json.dumps(login).encode()).decode()
    return None


def _short(reason: str) -> str:
    """Returns the last part of a chained error message, which has the cause.

    >>> _short('Get "https://r.io/v2/": dial tcp: lookup r.io on 10.0.0.1:53: no such host')
    'lookup r.io on 10.0.0.1:53: no such host'
    """
    return reason.partition("dial tcp: ")[2] or reason
