"""Workspaces in images: what is built, named after what goes in, and built only where it is not there yet."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from torchx.errors import StateError, UsageError
from torchx.schedulers.docker_engine import Engine, EngineError
from torchx.schedulers.docker_pull import Progress, inspect_image, provide
from torchx.schedulers.docker_push import push
from torchx.specs.app import Role
from torchx.specs.run_options import CfgVal
from torchx.workspace.tree import Tree

NAME = "torchx-workspace"
"""The repository of images that no registry is named for."""

DOCKERFILE = "Dockerfile.torchx"
"""A file of this name at the top of a workspace says how its image is built."""

CONTENT_LABEL, BASE_LABEL = "torchx.pytorch.org/workspace", "torchx.pytorch.org/workspace-base"
"""What went into an image, and the id of the image below it."""

MB = 1_000_000
MUCH = 50 * MB
"""Bytes from which on it is told beforehand that they are sent to the engine."""

PIECE = 1 << 18
"""Bytes that are sent at a time."""

_ABOVE = "workspace"
"""The folder of the files in what is sent, where the Dockerfile is not one of them."""

_PLAIN = "ARG IMAGE\nFROM $IMAGE\nCOPY {above}/ ./\n"


@dataclass(frozen=True)
class ImagePlan:
    """An image that is to be built, unless the engine has it.

    Attributes:
        name: what it will be called.
        base: the image below it.
        workspace: what is laid over that, as it was asked for.
        dockerfile: the file of the workspace that says how; empty to lay them over its working directory.
        digest: the hash of all of this.
        push: whether it goes to a registry, for engines that pull.
        tree: the files.
    """

    name: str
    base: str
    workspace: str
    dockerfile: str
    digest: str
    push: bool
    tree: Tree = field(compare=False)

    @property
    def about(self) -> str:
        """What goes into it, for people."""
        how = f" by its {self.dockerfile}" if self.dockerfile else ""
        size = f"{self.tree.files:,} files, {self.tree.size / MB:,.1f} MB"
        return f"{self.base} with workspace {self.workspace}{how} ({size})"

    @property
    def why(self) -> str:
        """One line for people who look at a dry-run."""
        return f"{self.name} is built from {self.about}" + (", and pushed" if self.push else "")


def plan_image(role: Role, tree: Tree, cfg: Mapping[str, CfgVal]) -> ImagePlan:
    """Returns the image that a role's workspace makes of its image; reads files, and contacts nothing.

    Args:
        role: its image is the one below, its workspace what the tree was read from.
        tree: the files.
        cfg: ``image_repo`` names the repository of a registry that it is pushed to.

    Raises:
        UsageError: the role has no image, or ``image_repo`` is no repository.
    """
    if not role.image:
        raise UsageError(f"role `{role.name}` has a workspace, but no image to lay it over")
    repository = str(cfg.get("image_repo") or "")
    if "@" in repository or ":" in repository.rpartition("/")[2]:
        raise UsageError(
            f"run option `image_repo` is `{repository}`, expected a repository without a tag",
            hint="e.g. -cfg image_repo=registry.example.com/team/jobs",
        )
    entry = tree.find(DOCKERFILE)
    dockerfile = DOCKERFILE if entry is not None and entry.kind == "file" else ""
    workspace = str(role.workspace)
    # a Dockerfile is told the name of the workspace; nothing else depends on it
    parts = [tree.digest, role.image, dockerfile, workspace if dockerfile else ""]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    name = f"{repository or NAME}:{digest[:24]}"
    return ImagePlan(name, role.image, workspace, dockerfile, digest, bool(repository), tree)


def provide_image(engine: Engine, plan: ImagePlan, tell: Callable[[str], None]) -> tuple[str, list[str]]:
    """Sees to it that the engine has an image, built from the present version of the one below it.

    Args:
        engine: the engine.
        plan: the image.
        tell: called with a line about what is going on, at once and often.

    Returns:
        What to run, which means this image for ever: its id, or its digest in the registry it was pushed to;
        and what there is to say about it, a line each.

    Raises:
        StateError: it cannot be built or pushed; what was made on the way is removed.
    """
    base = ""
    notes = []
    if not plan.dockerfile or b"IMAGE" in plan.tree.read(_entry(plan)):
        note = provide(engine, plan.base, tell)
        notes += [note] if note else []
        base = str((inspect_image(engine, plan.base) or {}).get("Id", ""))
    image = inspect_image(engine, plan.name)
    labels = ((image or {}).get("Config") or {}).get("Labels") or {}
    if image is None or (labels.get(CONTENT_LABEL), labels.get(BASE_LABEL)) != (plan.digest, base):
        _build(engine, plan, base, tell)
        image = inspect_image(engine, plan.name)
        if image is None:
            raise StateError(f"the engine has built {plan.name}, and does not have it")
    if plan.push:
        return push(engine, plan.name, image, tell), notes
    return str(image["Id"]), notes


def _build(engine: Engine, plan: ImagePlan, base: str, tell: Callable[[str], None]) -> None:
    query = {
        "t": plan.name,
        "dockerfile": plan.dockerfile or "Dockerfile",
        "buildargs": {"IMAGE": plan.base, "WORKSPACE": plan.workspace},
        "labels": {CONTENT_LABEL: plan.digest, BASE_LABEL: base},
        # of a step that fails nothing is left; what is below has been pulled already
        "rm": 1,
        "forcerm": 1,
    }
    tell(f"building {plan.name}, from {plan.about}")
    said: list[str] = []
    with engine.upload("/build", query, lambda take: _send(plan, take, tell)) as lines:
        for line in map(json.loads, lines):
            if "error" in line:
                _clear_away(engine, said)
                raise _failed(plan, said, str(line["error"]))
            if step := str(line.get("stream", "")).strip():
                said.append(step)
                if step.startswith("Step "):
                    tell(f"building {plan.name}, {_of_step(step)}")


def _send(plan: ImagePlan, take: Callable[[bytes], None], tell: Callable[[str], None]) -> None:
    """Sends the files as they are, or below a folder beside a Dockerfile of ours."""
    progress, held, count = Progress(f"sending {plan.workspace}"), bytearray(), 0

    class Pieces:
        """Takes what the archive is written to, and sends it in larger pieces."""

        def write(self, data: bytes, /) -> None:
            held.extend(data)
            if len(held) >= PIECE:
                flush()

    def flush() -> None:
        nonlocal count
        if not held:
            return
        take(bytes(held))
        count += len(held)
        held.clear()
        done = {"current": count, "total": max(1, plan.tree.size)}
        progress.add({"status": "Pushing", "progressDetail": done})
        if plan.tree.size > MUCH:
            tell(progress.text)

    if not plan.dockerfile:
        import tarfile

        text = _PLAIN.format(above=_ABOVE).encode()
        info = tarfile.TarInfo("Dockerfile")
        info.size, info.mode = len(text), 0o644
        Pieces().write(info.tobuf(tarfile.GNU_FORMAT) + text + b"\0" * (-len(text) % tarfile.BLOCKSIZE))
    plan.tree.write_tar(Pieces(), below="" if plan.dockerfile else _ABOVE)
    flush()


def _entry(plan: ImagePlan) -> Any:
    entry = plan.tree.find(plan.dockerfile)
    if entry is None:
        raise StateError(f"workspace {plan.workspace} has no {plan.dockerfile} any more")
    return entry


def _failed(plan: ImagePlan, said: list[str], error: str) -> StateError:
    steps = [line for line in said if line.startswith("Step ")]
    after = said[said.index(steps[-1]) + 1 :] if steps else []
    last = [line for line in after if not line.startswith(("--->", "Removing intermediate"))]
    lines = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(last)).splitlines()
    told = "\n".join(f"│ {line}" for line in lines[-10:] if line.strip())
    where = f" at {_of_step(steps[-1])}" if steps else ""
    reason = " ".join(error.split())
    return StateError(
        f"{plan.name} could not be built{where}: {reason}" + (f"\n{told}" if told else ""),
        hint=f"it is built by {plan.dockerfile} of workspace {plan.workspace}" if plan.dockerfile else None,
    )


def _clear_away(engine: Engine, said: list[str]) -> None:
    """Removes what a build that failed has made on the way."""
    made = [line.removeprefix("---> ") for line in said if re.fullmatch("---> [0-9a-f]{12}", line)]
    for image in reversed(made):
        told = inspect_image(engine, image)
        if told is None or told.get("RepoTags") or told.get("RepoDigests"):
            continue  # gone with the one above it, or what is below and not ours
        with suppress(EngineError):  # others are built on it
            engine.call("DELETE", f"/images/{image}")


def _of_step(line: str) -> str:
    """Returns a step as it is told to people.

    >>> _of_step("Step 2/5 : COPY a b")
    'step 2 of 5: COPY a b'
    """
    number, _, what = line.removeprefix("Step ").partition(" : ")
    return f"step {number.replace('/', ' of ')}: {what}"


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
        if image["Id"] not in used:
            names = [tag for tag in image.get("RepoTags") or [] if tag != "<none>:<none>"]
            name = names[0] if names else str(image["Id"])
            found.append(OldImage(str(image["Id"]), name, int(image["Size"]), float(image["Created"])))
    return sorted(found, key=lambda one: one.made)


def remove_images(engine: Engine, images: list[OldImage]) -> list[OldImage]:
    """Removes images, all their names with them, and returns those that are gone."""
    gone = []
    for image in images:
        # one that a container has begun to use meanwhile stays, and so does one that others are built on
        with suppress(EngineError):
            engine.call(
                "DELETE", f"/images/{quote(image.id, safe=':')}", {"force": _has_many_names(engine, image)}
            )
            gone.append(image)
    return gone


def _has_many_names(engine: Engine, image: OldImage) -> int:
    told = inspect_image(engine, image.id) or {}
    return int(len(told.get("RepoTags") or []) + len(told.get("RepoDigests") or []) > 1)
