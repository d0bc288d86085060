"""Old applications removed from a Docker engine, and images of workspaces that nobody uses any more."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence

from torchx.errors import StateError
from torchx.schedulers.docker_end import remove
from torchx.schedulers.docker_engine import Engine, EngineError, in_parallel
from torchx.schedulers.docker_facts import Container, look
from torchx.schedulers.docker_guard import docker_home
from torchx.schedulers.docker_story import job_of, tell
from torchx.schedulers.workspace_images_prune import remove_images, unused_images
from torchx.selection import Pruned

IMAGES_KEPT = 24 * 3600.0
"""Seconds for which an image that no container uses is kept, since the next run may want it."""


def prune(engine: Engine, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
    """Removes applications that have ended, then images of workspaces that no container uses.

    Args:
        engine: where they are.
        app_ids: the applications; one that has not ended is passed over.
        dryrun: yield all the same, and remove nothing.

    Raises:
        StateError: something cannot be removed.
    """
    known = look(engine)
    for app_id in app_ids:
        containers = known.get(app_id, [])
        if not containers or tell(job_of(containers), containers).end is None:
            continue
        if any(container.live for container in containers):
            continue
        room = _room(engine, containers)
        if not dryrun:
            failed = remove(engine, [container.id for container in containers])
            if failed:
                raise StateError(f"{app_id} cannot be removed: {failed[0]}") from failed[0]
            shutil.rmtree(docker_home().job(app_id).folder, ignore_errors=True)
        yield Pruned(containers[0].name, room, app_id)
    old = [image for image in unused_images(engine) if image.made < time.time() - IMAGES_KEPT]
    for image in old if dryrun else remove_images(engine, old):
        yield Pruned(image.name, image.size)


def _room(engine: Engine, containers: Sequence[Container]) -> int:
    """Returns the bytes that containers have written into their files; engines do not tell those of logs."""

    def one(container: Container) -> int:
        try:
            told = engine.call("GET", f"/containers/{container.id}/json", {"size": 1})
        except EngineError:
            return 0  # gone meanwhile
        return int(told.get("SizeRw") or 0)

    return sum(size for size in in_parallel(one, containers) if isinstance(size, int))
