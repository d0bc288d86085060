"""Removes ended applications and unused images of workspaces from a Docker engine."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence

from torchx.schedulers.docker.cancel import remove_all
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import in_parallel
from torchx.schedulers.docker.images.prune import remove_images, unused_images
from torchx.schedulers.docker.lookup import find_containers, owner_of
from torchx.schedulers.docker.record import forget_absent
from torchx.schedulers.docker.replay import is_under_way
from torchx.schedulers.shared.owner import is_foreign
from torchx.scheduling.query import Pruned

IMAGES_KEPT = 24 * 3600.0
"""Seconds for which an unused image is kept, as the next run may use it."""


def prune(
    engine: Engine, app_ids: Iterable[str], needed: Collection[str] = (), *, dryrun: bool = False
) -> Iterator[Pruned]:
    """Removes ended applications, then images of workspaces that no container uses.

    Args:
        engine: the engine.
        app_ids: the applications; those that have not ended or belong to another user are skipped.
        needed: further images in use, by id or name.
        dryrun: remove nothing, only yield what would be removed.

    Raises:
        StateError: an application or an image cannot be removed.
    """
    known = find_containers(engine, tolerant=True)
    for app_id in app_ids:
        containers = known.get(app_id, [])
        if not containers or is_under_way(containers) or any(container.live for container in containers):
            continue
        if is_foreign(owner_of(containers)):
            continue
        size = _written_bytes(engine, containers)
        if not dryrun:
            remove_all(engine, app_id)
        yield Pruned(containers[0].name, size, app_id)
    if not dryrun:
        forget_absent(engine.address.text, known)
    latest = time.time() - IMAGES_KEPT
    unused = [image for image in unused_images(engine) if not {image.id, image.name}.intersection(needed)]
    old = [image for image in unused if image.made < latest]
    for image in old if dryrun else remove_images(engine, old):
        yield Pruned(image.name, image.size)


def _written_bytes(engine: Engine, containers: Sequence[Container]) -> int:
    """Returns the bytes that containers have written to files; engines do not report the size of logs."""

    def one(container: Container) -> int:
        try:
            inspected = engine.call("GET", f"/containers/{container.id}/json", {"size": 1})
        except EngineError:
            return 0  # removed meanwhile
        return int(inspected.get("SizeRw") or 0)

    return sum(size for size in in_parallel(one, containers) if isinstance(size, int))
