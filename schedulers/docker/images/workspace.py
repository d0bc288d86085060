"""Workspaces in images: what is built, named after what goes in, and built only where it is not there yet."""

from __future__ import annotations

import fcntl
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

from torchx.errors import StateError
from torchx.machine.files import make_folder
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images.build import Writer, build
from torchx.schedulers.docker.images.dockerfile import CONTENT_LABEL as CONTENT_LABEL
from torchx.schedulers.docker.images.dockerfile import FILES, default_dockerfile, mentions
from torchx.schedulers.docker.images.plan import NAME, TAG_LENGTH
from torchx.schedulers.docker.images.plan import ImagePlan as ImagePlan
from torchx.schedulers.docker.images.plan import plan_image as plan_image
from torchx.schedulers.docker.images.pull import inspect_image, provide
from torchx.schedulers.docker.images.push import push
from torchx.schedulers.docker.supervisor_launch import docker_home
from torchx.scheduling.progress import Ongoing
from torchx.specs.app import AppDef
from torchx.workspace.tree import MADE

_PODMANS = ".containerignore"
"""Podman's own name for a .dockerignore, which it does not look at where this one is there."""

BASE_LABEL = "torchx.pytorch.org/workspace-base"
"""Label of an image: the ids of the images below it."""


def build_planned(engine: Engine, app: AppDef) -> None:
    """Builds the images that a dry-run has planned for the roles of an application, in the roles."""
    for role in app.roles:
        plan = getattr(role.workspace, "plan", None)
        if isinstance(plan, ImagePlan):
            role.image, _ = provide_image(engine, plan, lambda line: None)
            role.workspace = None


def provide_image(engine: Engine, plan: ImagePlan, tell: Callable[[str], None]) -> tuple[str, list[str]]:
    """Sees to it that the engine has an image, built from the present version of those below it.

    Args:
        engine: the engine.
        plan: the image.
        tell: called with a line about what is going on, when it takes long.

    Returns:
        What to run, which means this image for ever: its id, or its digest in the registry it was pushed to;
        and what there is to say about it, a line each.

    Raises:
        StateError: it cannot be built or pushed; what was made on the way is removed.
    """
    notes = [note for note in (provide(engine, image, tell) for image in plan.below) if note]
    below = [inspect_image(engine, image) or {} for image in plan.below]
    ids = ",".join(str(image.get("Id", "")) for image in below)
    image = _find(engine, plan, ids)
    if image is None:
        with _alone(plan, tell):  # another may have built it meanwhile
            image = _find(engine, plan, ids) or _build(engine, plan, below, ids, tell)
    if plan.push:
        return push(engine, plan.name, image, tell), notes
    return str(image["Id"]), notes


def _find(engine: Engine, plan: ImagePlan, below: str) -> Mapping[str, Any] | None:
    """Returns the image where the engine has it, whether it was meant for a registry or not."""
    for name in dict.fromkeys((plan.name, f"{NAME}:{plan.digest[:TAG_LENGTH]}")):
        image = inspect_image(engine, name)
        labels = ((image or {}).get("Config") or {}).get("Labels") or {}
        if image is not None and (labels.get(CONTENT_LABEL), labels.get(BASE_LABEL)) == (plan.digest, below):
            if name != plan.name:
                repository, _, tag = plan.name.rpartition(":")
                engine.call("POST", f"/images/{quote(name, safe='/:')}/tag", {"repo": repository, "tag": tag})
            return image
    return None


@contextmanager
def _alone(plan: ImagePlan, tell: Callable[[str], None]) -> Iterator[None]:
    """Waits for others on this machine who build the same; without a state home all may build it."""
    lock = _lock_file(plan)
    if lock is None:
        yield
        return
    try:
        with Ongoing(tell, f"waiting for another who builds {plan.name}"):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _lock_file(plan: ImagePlan) -> int | None:
    with suppress(OSError, StateError):
        home = docker_home().path
        make_folder(home)
        path = home / f"build-{plan.digest[:2]}.lock"  # a few for all that is ever built
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return None


def _build(
    engine: Engine,
    plan: ImagePlan,
    below: list[Mapping[str, Any]],
    ids: str,
    tell: Callable[[str], None],
) -> Mapping[str, Any]:
    arguments = {"IMAGE": plan.base, "WORKSPACE": plan.workspace}
    query = {
        "t": plan.name,
        "dockerfile": plan.dockerfile or "Dockerfile",
        "buildargs": {n: v for n, v in arguments.items() if not plan.dockerfile or mentions(plan.steps, n)},
        "labels": {CONTENT_LABEL: plan.digest, BASE_LABEL: ids},
        "rm": 1,
        "forcerm": 1,  # also the container of a step that failed
    }
    steps = plan.steps if plan.dockerfile else default_dockerfile(below[0], plan.digest)
    made = build(engine, plan, query, lambda out: _pack(plan, steps, out, engine.is_podman), tell)
    image = inspect_image(engine, made)
    if image is None:
        raise StateError(f"the engine has built {plan.name}, and does not have it")
    return image


def _pack(plan: ImagePlan, steps: str, out: Writer, podman: bool) -> None:
    """Writes what is sent: the files as they are, or in a folder beside a Dockerfile of ours."""
    tree = plan.tree

    def add(name: str, kind: bytes, mode: int, data: bytes = b"") -> None:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.size, info.mtime = kind, mode, len(data), MADE
        out.write(info.tobuf(tarfile.GNU_FORMAT) + data + b"\0" * (-len(data) % tarfile.BLOCKSIZE))

    if not plan.dockerfile:
        add("Dockerfile", tarfile.REGTYPE, 0o644, steps.encode())
        add(FILES, tarfile.DIRTYPE, 0o755)  # also where it holds nothing
    elif tree.find(plan.dockerfile) is None:  # left behind by an ignore file: it counts
        add(plan.dockerfile, tarfile.REGTYPE, 0o644, steps.encode())
    if podman and plan.dockerfile and tree.find(_PODMANS) is None and tree.find(".dockerignore") is not None:
        # Podman would leave behind once more what a line in .torchxignore has taken along
        left = [_PODMANS] if tree.find(plan.dockerfile) else [_PODMANS, plan.dockerfile]
        add(_PODMANS, tarfile.REGTYPE, 0o644, "\n".join(left).encode())
    tree.write_tar(out, below="" if plan.dockerfile else FILES)
