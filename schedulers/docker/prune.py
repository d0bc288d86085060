"""Removes ended applications and unused images of workspaces from a Docker engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from torchx.errors import StateError
from torchx.jobs import pruning
from torchx.json_limits import Data
from torchx.schedulers.docker.cancel import remove_all
from torchx.schedulers.docker.containers import LIVE, status_in
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import in_parallel
from torchx.schedulers.docker.folder import find, images_of_waiting, own_folder
from torchx.schedulers.docker.images.prune import remove_images, unused_images
from torchx.schedulers.docker.lookup import app_of, containers_of, entries, owner_of
from torchx.schedulers.docker.replay import is_under_way
from torchx.schedulers.shared.owner import is_foreign
from torchx.scheduling.query import Pruned

IMAGES_KEPT = 24 * 3600.0
"""Seconds for which an unused image is kept, as the next run may use it."""


def prune(engine: Engine, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
    """Removes ended applications, then images of workspaces that no container uses.

    Args:
        engine: the engine.
        app_ids: the applications; those that have not ended or belong to another user are skipped.
        dryrun: remove nothing, only yield what would be removed.

    Raises:
        StateError: an application or an image cannot be removed.
    """
    listed: dict[str, list[Data]] = {}
    for entry in entries(engine):
        listed.setdefault(app_of(entry), []).append(entry)
    for app_id in app_ids:
        present = listed.get(app_id, [])
        if any(status_in(entry, "State") in LIVE for entry in present) or not _has_ended(engine, app_id):
            continue
        paths = own_folder(app_id)
        size = _written_bytes(engine, [str(entry["Id"]) for entry in present])
        if paths is not None:
            size += pruning.size(paths.folder)
        if not dryrun:
            remove_all(engine, app_id)
        yield Pruned(app_id, size, app_id)
    latest = time.time() - IMAGES_KEPT
    needed = images_of_waiting(engine.address)
    unused = [image for image in unused_images(engine) if not {image.id, image.name}.intersection(needed)]
    old = [image for image in unused if image.made < latest]
    for image in old if dryrun else remove_images(engine, old):
        yield Pruned(image.name, image.size)


def _has_ended(engine: Engine, app_id: str) -> bool:
    """Returns True if an application of this user has ended, by its folder or else by its containers."""
    try:
        submitted = find(engine.address, app_id)
    except StateError:  # it cannot be read: `torchx delete` removes it
        return False
    if submitted is not None and (submitted.view.has_ended or submitted.is_unstarted):
        return submitted.view.has_ended
    containers = containers_of(engine, app_id)
    if not containers:  # they were removed while nothing watched them
        return submitted is not None and submitted.view.orphaned
    return not is_under_way(containers) and not is_foreign(owner_of(containers))


def _written_bytes(engine: Engine, containers: Sequence[str]) -> int:
    """Returns the bytes that containers have written to files; engines do not report the size of logs."""

    def one(container: str) -> int:
        try:
            inspected = engine.call("GET", f"/containers/{container}/json", {"size": 1})
        except EngineError:
            return 0  # removed meanwhile
        return int(inspected.get("SizeRw") or 0)

    return sum(size for size in in_parallel(one, containers) if isinstance(size, int))
