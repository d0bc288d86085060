"""Images of workspaces that nobody uses any more: which they are, and how they go."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.images.plan import TAG_LENGTH
from torchx.schedulers.docker.images.pull import inspect_image
from torchx.schedulers.docker.images.workspace import CONTENT_LABEL


@dataclass(frozen=True)
class OldImage:
    """An image of a workspace that no container uses.

    Attributes:
        id: the image.
        name: what it is called; its id where another has taken its name.
        size: its bytes, those of the image below it among them.
        made: when it was built, in seconds since 1970.
    """

    id: str
    name: str
    size: int
    made: float


def unused_images(engine: Engine) -> list[OldImage]:
    """Returns the images of workspaces that no container uses, the oldest first."""
    asked = {"filters": {"label": [CONTENT_LABEL]}}
    used = {str(c.get("ImageID")) for c in engine.call("GET", "/containers/json", {"all": 1})}
    found = []
    for image in engine.call("GET", "/images/json", asked):
        if image["Id"] not in used and is_ours(image):
            name = next(iter(_names(image)), str(image["Id"]))
            found.append(OldImage(str(image["Id"]), name, int(image["Size"]), float(image["Created"])))
    return sorted(found, key=lambda one: one.made)


def is_ours(image: Mapping[str, Any]) -> bool:
    """Tells whether an image was made for a workspace, and nobody has given it a name of his own.

    What is built on one has its labels as well.

    Args:
        image: what the engine says of it in a listing.
    """
    tag = str((image.get("Labels") or {}).get(CONTENT_LABEL, ""))[:TAG_LENGTH]
    return bool(tag) and all(name.endswith(f":{tag}") for name in _names(image))


def _names(image: Mapping[str, Any]) -> list[str]:
    return [name for name in image.get("RepoTags") or [] if name != "<none>:<none>"]


def remove_images(engine: Engine, images: list[OldImage]) -> list[OldImage]:
    """Removes images, all their names with them, and returns those that are gone."""
    gone = []
    for image in images:
        told = inspect_image(engine, image.id) or {}
        names = [*(told.get("RepoTags") or []), *(told.get("RepoDigests") or [])]
        # never by force: one that is used by a container or another image meanwhile stays
        for name in names or [image.id]:
            with suppress(EngineError):  # with the last tag in a repository its digests go as well
                engine.call("DELETE", f"/images/{quote(name, safe='/:@')}")
        if inspect_image(engine, image.id) is None:
            gone.append(image)
    return gone
