"""Finds and removes unused images of workspaces."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from torchx.json_limits import Data
from torchx.schedulers.docker.dockerfile import BASE_LABEL, CONTENT_LABEL
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.image_plan import TAG_LENGTH
from torchx.schedulers.docker.images.pull import inspect_image
from torchx.schedulers.docker.labels import APP_ID

ABANDONED = 3600.0
"""Age in seconds from which an intermediate image belongs to no current build."""


class OldImage(NamedTuple):
    """An image of a workspace that no container uses.

    Attributes:
        id: its id.
        name: its name, or its id if another image has taken the name.
        size: its size in bytes, including the base image.
        made: the time it was built, in seconds since the epoch.
    """

    id: str
    name: str
    size: int
    made: float


def unused_images(engine: Engine) -> list[OldImage]:
    """Returns the images of workspaces that no container uses, oldest first."""
    query = {"filters": {"label": [CONTENT_LABEL]}}
    used = {str(c.get("ImageID")) for c in engine.call("GET", "/containers/json", {"all": 1})}
    unused = []
    for image in engine.call("GET", "/images/json", query):
        if image["Id"] not in used and is_ours(image):
            name = next(iter(_names(image)), str(image["Id"]))
            unused.append(OldImage(str(image["Id"]), name, int(image["Size"]), float(image["Created"])))
    return sorted(unused, key=lambda image: image.made)


def is_ours(image: Data) -> bool:
    """Returns True if an image was built for a workspace and has no other names.

    The names are checked because images built on top of it inherit its labels. One that was made from the
    container of a replica has those of that, too.

    Args:
        image: the image in the engine's listing.
    """
    labels = image.get("Labels") or {}
    tag = str(labels.get(CONTENT_LABEL, ""))[:TAG_LENGTH]
    return bool(tag) and APP_ID not in labels and all(name.endswith(f":{tag}") for name in _names(image))


def _names(image: Data) -> list[str]:
    return [name for name in image.get("RepoTags") or [] if name != "<none>:<none>"]


def remove_images(engine: Engine, images: list[OldImage]) -> list[OldImage]:
    """Removes images with all their names, and returns the removed ones."""
    removed = []
    for image in images:
        info = inspect_image(engine, image.id) or {}
        names = [*(info.get("RepoTags") or []), *(info.get("RepoDigests") or [])]
        # never forced: an image that is now used by a container or another image stays
        for name in names or [image.id]:
            with suppress(EngineError):  # removing the last tag in a repository removes its digests too
                engine.call("DELETE", f"/images/{quote(name, safe='/:@')}")
        if inspect_image(engine, image.id) is None:
            removed.append(image)
    return removed


def remove_leftovers(engine: Engine) -> None:
    """Removes what an engine has finished of a build whose process was killed: an image without a name."""
    query = {"filters": {"dangling": ["true"], "label": [CONTENT_LABEL]}}
    for image in engine.call("GET", "/images/json", query):
        if BASE_LABEL not in (image.get("Labels") or {}) and image["Created"] < time.time() - ABANDONED:
            with suppress(EngineError):  # another process has removed or used it
                engine.call("DELETE", f"/images/{image['Id']}")
