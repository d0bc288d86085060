"""Finds the containers of applications on an engine; an unreadable container does not affect others."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from torchx.errors import StateError
from torchx.json_limits import Data
from torchx.json_shape import items_at, typed_at
from torchx.schedulers.docker.containers import (
    DAMAGED,
    Container,
    id_for,
    read,
    status_in,
)
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel
from torchx.schedulers.docker.folder import is_known
from torchx.schedulers.docker.journal import merged
from torchx.schedulers.docker.labels import APP_ID, LAST_TIME
from torchx.schedulers.docker.marks import split_marks
from torchx.scheduling.pace import ALL

STEADY = ("running", "paused", "exited")
"""States that a container does not leave without an event."""
LATE = 0.5
"""Seconds between an out-of-memory event and the end of its container, in either order."""
_DAMAGED = DAMAGED + "[0-9a-f]{12}"


def entries(engine: Engine, app_id: str | None = None) -> list[Data]:
    """Returns the engine's listing of the containers of one application, or of all.

    Raises:
        StateError: the engine does not answer, or its answer is not a list.
    """
    return engine.answers(partial(_query, engine)).about(app_id or ALL) or []


def _query(engine: Engine, app_ids: Collection[str]) -> dict[str, list[Data]]:
    """Returns the engine's listing of the containers of one application, or of all, by application."""
    only, filters = ALL, {"label": [APP_ID]}
    if len(app_ids) == 1:
        (only,) = app_ids
    if only:
        filters = {"label": [f"{APP_ID}={only}"]}
    if re.fullmatch(_DAMAGED, only):
        filters = {"label": [APP_ID], "id": [only.removeprefix(DAMAGED)]}
    listed = engine.call("GET", "/containers/json", {"all": 1, "filters": filters})
    if not isinstance(listed, list) or not all(typed_at(entry, str, "Id") for entry in listed):
        raise StateError(f"{engine.address} is not a Docker engine")
    found: dict[str, list[Data]] = defaultdict(list)
    for entry in listed:
        found[app_of(entry)].append(entry)
    if not only:
        found[ALL] = listed
    return found


def find_containers(
    engine: Engine,
    app_id: str | None = None,
    known: Iterable[Container] = (),
    *,
    tolerant: bool = False,
    without: Collection[str] = (),
) -> dict[str, list[Container]]:
    """Returns the containers of one application, or of all, by application, in order of creation.

    Containers with damaged labels are left out if the application has others. A container that the engine
    cannot inspect, or whose state is not known, comes first in its list: the application cannot be read
    then. Replicas whose containers were removed come last, if the supervisor has recorded their ends.

    Args:
        engine: the engine.
        app_id: the application (default: all).
        known: containers without an event since they were inspected; those in a steady state are reused.
        tolerant: accept containers that the engine cannot inspect.
        without: applications to leave out.
    """
    unchanged = {c.id: c for c in known if c.status in STEADY}

    def inspect(entry: Data) -> Container | None:
        if entry["Id"] in unchanged:
            return unchanged[entry["Id"]]
        try:
            answer = engine.call("GET", f"/containers/{entry['Id']}/json")
        except EngineError as error:
            if error.status == 404:
                return None  # removed meanwhile
            if not tolerant:
                raise
            return _uninspected(entry, f"the engine cannot inspect it: {error.message}")
        if isinstance(answer, dict) and answer.get("Id") == entry["Id"]:
            return read(answer)
        return _uninspected(entry, "the engine cannot inspect it")

    by_app: dict[str, list[Container]] = defaultdict(list)
    listed = [entry for entry in entries(engine, app_id) if app_of(entry) not in without]
    for container in all_of(in_parallel(inspect, listed)):
        if container is not None:
            by_app[container.app_id].append(container)
    for containers in by_app.values():
        containers.sort(key=lambda c: (c.created, c.name))
    if app_id is not None and not by_app and is_known(engine.address, app_id):
        by_app[app_id] = []  # all were removed
    merges = {app: merged(app, consistent(containers)) for app, containers in by_app.items()}
    return {app: containers for app, containers in merges.items() if containers}


def app_of(entry: Data) -> str:
    """Returns the id of the application of a listed container."""
    return id_for(typed_at(entry, dict, "Labels").get(APP_ID), entry["Id"])


def consistent(containers: list[Container]) -> list[Container]:
    """Returns the containers of one application that belong together, or all if they cannot be read.

    They belong together if they have the label JOB of the first one, and each is another attempt: other
    containers may have forged labels.

    Args:
        containers: the containers in order of creation.
    """
    if not all(c.inspected for c in containers):
        return sorted(containers, key=lambda c: c.inspected)
    readable = [c for c in containers if not c.damage]
    first = next((c.job for c in readable if c.job), {})
    attempts: dict[tuple[str, int, int], Container] = {}
    for container in readable:
        if container.job is first or container.job == first:
            attempts.setdefault((container.role, container.replica, container.attempt), container)
    return list(attempts.values()) or containers


def containers_of(engine: Engine, app_id: str, known: Iterable[Container] = ()) -> list[Container]:
    """Returns the containers of an application, readable or not; see :func:`find_containers`."""
    return find_containers(engine, app_id, known, tolerant=True).get(app_id, [])


def owner_of(containers: Sequence[Container]) -> str:
    """Returns the name of an application's owner, or an empty string if unknown."""
    return next((c.user for c in containers if c.user), "")


def _uninspected(entry: Data, damage: str) -> Container:
    """Returns a container from its entry in a listing."""
    first = "".join(items_at(entry, str, "Names")[:1])
    name, _, mark = split_marks(first.lstrip("/"))
    at = entry.get("Created")
    return Container(
        id=entry["Id"],
        name=name,
        mark=mark,
        app_id=app_of(entry),
        role="",
        replica=0,
        status=status_in(entry, "State"),
        created=float(at) if isinstance(at, int) and 0 < at < LAST_TIME else 0.0,
        damage=damage,
        inspected=False,
    )


def with_late_oom(engine: Engine, containers: Iterable[Container]) -> list[Container]:
    """Returns containers with ``oom`` set also if the engine learned of it only after their end.

    If the end of the program reaches Docker before the kernel's report, only its events show the latter.

    Args:
        engine: the engine.
        containers: the containers of an application.
    """
    known = list(containers)
    killed = [c for c in known if c.signal == "SIGKILL" and c.memory and c.finished and not (c.oom or c.mark)]
    if not killed:
        return known
    moments = [c.finished or 0.0 for c in killed]
    query = {
        "since": f"{min(moments) - LATE:.6f}",
        "until": f"{max(moments) + LATE:.6f}",  # waits for late events
        "filters": {"type": ["container"], "event": ["oom"], "container": [c.id for c in killed]},
    }
    with suppress(EngineError):
        events = json.dumps(engine.call("GET", "/events", query))  # an event, several as text, or None
        return [replace(c, oom=True) if c in killed and c.id in events else c for c in known]
    return known
