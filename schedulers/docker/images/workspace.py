"""Builds the images of workspaces, unless the engine already has them."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import quote

from torchx.errors import StateError
from torchx.jobs.paths import Home, user_home
from torchx.json_limits import Data
from torchx.machine import locks
from torchx.schedulers.docker.dockerfile import (
    BASE_LABEL,
    CONTENT_LABEL,
    FILES,
    default_dockerfile,
    mentions,
)
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.image_plan import NAME, TAG_LENGTH, ImagePlan
from torchx.schedulers.docker.image_plan import plan_image as plan_image
from torchx.schedulers.docker.images.build import Writer, build
from torchx.schedulers.docker.images.prune import remove_leftovers
from torchx.schedulers.docker.images.pull import inspect_image, provide
from torchx.schedulers.docker.images.push import push
from torchx.scheduling.checks import require_application
from torchx.scheduling.progress import Ongoing
from torchx.specs.app import AppDryRunInfo, Role
from torchx.specs.workspace import Workspace
from torchx.workspace.tree import MADE, scan

_PODMAN_IGNORE = ".containerignore"
"""Podman's name of the .dockerignore file, which it ignores if this one exists."""


def provide_images(
    plans: Iterable[ImagePlan], report: Callable[[str], None]
) -> tuple[dict[str, str], list[str]]:
    """Builds images on this machine's engine, for an engine of jobs that runs them elsewhere.

    Args:
        plans: the images.
        report: called with a progress message if it takes long.

    Returns:
        Planned name -> name of the image: its digest in the registry it was pushed to, or else the planned
        name, as other machines know an image that was not pushed by its name at most; and notes.

    Raises:
        StateError: no engine is reachable, or an image cannot be built or pushed.
    """
    images: dict[str, str] = {}
    notes: list[str] = []
    for plan in plans:
        image, more = provide_image(Engine(), plan, report)
        if plan.push:
            images[plan.name] = image
        else:
            images[plan.name] = plan.name
        notes += more
    return images, notes


def build_planned(plans: Iterable[ImagePlan], info: AppDryRunInfo[Any], engine: Engine | None = None) -> None:
    """Builds planned images, and sets the images of the application's roles to them.

    Args:
        plans: the images.
        info: the dry-run of the application.
        engine: the engine; the one of this machine by default.
    """
    app = require_application(info)
    for plan in plans:
        image, _ = provide_image(engine or Engine(), plan, lambda line: None)
        for role in app.roles:
            if role.workspace and role.image == plan.name:
                role.image, role.workspace = image, None


def build_workspace_image(engine: Engine, img: str, workspace: str) -> str:
    """Builds an image with a workspace; see ``DockerScheduler.build_workspace_image``."""
    parsed = Workspace.from_str(workspace)
    plan = plan_image(Role("workspace", img, workspace=parsed), scan(parsed), {})
    return provide_image(engine, plan, lambda line: None)[0]


def provide_image(engine: Engine, plan: ImagePlan, report: Callable[[str], None]) -> tuple[str, list[str]]:
    """Builds an image from the current version of its base images, unless the engine has it.

    Args:
        engine: the engine.
        plan: the image.
        report: called with a progress message if it takes long.

    Returns:
        The image's id, or its digest in the registry it was pushed to; and notes for the user.

    Raises:
        StateError: the build or the push failed; intermediate images are removed.
    """
    notes = [note for note in (provide(engine, image, report) for image in plan.below) if note]
    below = [inspect_image(engine, image) or {} for image in plan.below]
    ids = ",".join(str(image.get("Id", "")) for image in below)
    image = _find(engine, plan, ids)
    if image is None:
        with _build_lock(plan, report):  # another process may have built it meanwhile
            image = _find(engine, plan, ids) or _build(engine, plan, below, ids, report)
    if plan.push:
        return push(engine, plan.name, image, report), notes
    return str(image["Id"]), notes


def _find(engine: Engine, plan: ImagePlan, below: str) -> Data | None:
    """Returns the image if the engine has it, under its own or the local name, or None."""
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
def _build_lock(plan: ImagePlan, report: Callable[[str], None]) -> Iterator[None]:
    """Waits for other builds of the same image on this machine; does nothing without a state home."""
    waiting = Ongoing(report, f"waiting for another process that builds {plan.name}")
    with ExitStack() as held:
        with suppress(OSError, StateError), waiting:
            name = f"build-{plan.digest[:2]}.lock"  # limits the number of lock files
            held.enter_context(locks.exclusive(Home(user_home()).containers.path / name))
        yield


def _build(
    engine: Engine,
    plan: ImagePlan,
    below: list[Data],
    ids: str,
    report: Callable[[str], None],
) -> Data:
    arguments = {"IMAGE": plan.base, "WORKSPACE": plan.workspace}
    query = {
        "t": plan.name,
        "dockerfile": plan.dockerfile or "Dockerfile",
        "buildargs": {n: v for n, v in arguments.items() if not plan.dockerfile or mentions(plan.steps, n)},
        "labels": {CONTENT_LABEL: plan.digest, BASE_LABEL: ids},
        "rm": 1,
        "forcerm": 1,  # also the container of a step that failed
    }
    remove_leftovers(engine)
    if plan.dockerfile:
        steps = plan.steps
    else:
        steps = default_dockerfile(below[0], plan.digest)
    made = build(engine, plan, query, lambda out: _pack(plan, steps, out, engine.is_podman), report)
    image = inspect_image(engine, made)
    if image is None:
        raise StateError(f"the engine has built {plan.name}, but no longer has it")
    return image


def _pack(plan: ImagePlan, steps: str, out: Writer, podman: bool) -> None:
    """Writes the build context: the files, or a default Dockerfile and a folder with the files."""
    tree = plan.tree

    def add(name: str, kind: bytes, mode: int, data: bytes = b"") -> None:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.size, info.mtime = kind, mode, len(data), MADE
        out.write(info.tobuf(tarfile.GNU_FORMAT) + data + b"\0" * (-len(data) % tarfile.BLOCKSIZE))

    if not plan.dockerfile:
        add("Dockerfile", tarfile.REGTYPE, 0o644, steps.encode())
        add(FILES, tarfile.DIRTYPE, 0o755)  # also if it is empty
    elif tree.find(plan.dockerfile) is None:  # excluded by an ignore file, but used
        add(plan.dockerfile, tarfile.REGTYPE, 0o644, steps.encode())
    if (
        podman
        and plan.dockerfile
        and tree.find(_PODMAN_IGNORE) is None
        and tree.find(".dockerignore") is not None
    ):
        # Podman would apply .dockerignore again, and exclude files that .torchxignore includes
        if tree.find(plan.dockerfile):
            left = [_PODMAN_IGNORE]
        else:
            left = [_PODMAN_IGNORE, plan.dockerfile]
        add(_PODMAN_IGNORE, tarfile.REGTYPE, 0o644, "\n".join(left).encode())
    tree.write_tar(out, below="" if plan.dockerfile else FILES)
