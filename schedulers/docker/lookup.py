"""Finds the containers of applications on an engine; one that cannot be read hides no other."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torchx.errors import StateError
from torchx.schedulers.docker.containers import (
    DAMAGED,
    Container,
    id_for,
    mapping_in,
    read,
    split_name,
    status_in,
    text_in,
)
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel
from torchx.schedulers.docker.labels import APP_ID, LAST_TIME

STEADY = ("running", "paused", "exited")
"""States that a container does not leave without an event."""
LATE = 0.5
"""Seconds by which the engine may hear of the want of memory before or after the end it came to."""
_DAMAGED = re.compile(DAMAGED + "[0-9a-f]{12}")


def entries(engine: Engine, app_id: str | None = None) -> list[Mapping[str, Any]]:
    """Returns what the engine lists of the containers of one application, or of all.

    Raises:
        StateError: the engine does not answer, or with something else than a list.
    """
    wanted: dict[str, list[str]] = {"label": [APP_ID if app_id is None else f"{APP_ID}={app_id}"]}
    if app_id is not None and _DAMAGED.fullmatch(app_id):
        wanted = {"label": [APP_ID], "id": [app_id.removeprefix(DAMAGED)]}
    listed = engine.call("GET", "/containers/json", {"all": 1, "filters": wanted})
    if not isinstance(listed, list) or not all(isinstance(e, dict) and text_in(e, "Id") for e in listed):
        raise StateError(f"the answer of {engine.address} is not that of a Docker engine")
    found = [(id_for(mapping_in(e, "Labels").get(APP_ID), e["Id"]), e) for e in listed]
    return [entry for own, entry in found if app_id is None or own == app_id]


def look(
    engine: Engine, app_id: str | None = None, known: Iterable[Container] = (), *, tolerant: bool = False
) -> dict[str, list[Container]]:
    """Returns the containers of one application, or of all, by application, in the order of creation.

    Those with damaged labels are left out where there are others of the same application. Where the engine
    cannot inspect one, nothing is concluded from the others: that one is the first of the list.

    Args:
        engine: where they are.
        app_id: the application; all by default.
        known: containers of which nothing has been heard since an earlier look: they are not requested again,
            unless they are about to start.
        tolerant: one that the engine cannot inspect is not an error.
    """
    same = {c.id: c for c in known if c.status in STEADY}

    def inspect(entry: Mapping[str, Any]) -> Container | None:
        if entry["Id"] in same:
            return same[entry["Id"]]
        try:
            answer = engine.call("GET", f"/containers/{entry['Id']}/json")
        except EngineError as error:
            if error.status == 404:
                return None  # removed at this very moment
            if not tolerant:
                raise
            return _uninspected(entry, f"the engine cannot inspect it: {error.message}")
        if isinstance(answer, dict) and answer.get("Id") == entry["Id"]:
            return read(answer)
        return _uninspected(entry, "the engine cannot inspect it")

    found: dict[str, list[Container]] = defaultdict(list)
    for container in all_of(in_parallel(inspect, entries(engine, app_id))):
        if container is not None:
            found[container.app_id].append(container)
    for containers in found.values():
        containers.sort(key=lambda c: (c.created, c.name))
    return {app: sound(containers) for app, containers in found.items()}


def sound(containers: list[Container]) -> list[Container]:
    """Returns the containers of one application that belong together; all when they cannot be read.

    Those belong together that carry what the first one carries: another may have been given its labels.
    """
    if not all(c.inspected for c in containers):
        return sorted(containers, key=lambda c: c.inspected)
    readable = [c for c in containers if not c.damage]
    first = next((c.job for c in readable if c.job), {})
    return [c for c in readable if c.job is first or c.job == first] or containers


def _uninspected(entry: Mapping[str, Any], damage: str) -> Container:
    """Returns a container of which there is only its line in a listing."""
    names = entry.get("Names")
    first = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    name, mark = split_name(first.lstrip("/"))
    at = entry.get("Created")
    return Container(
        id=entry["Id"],
        name=name,
        mark=mark,
        app_id=id_for(mapping_in(entry, "Labels").get(APP_ID), entry["Id"]),
        role="",
        replica=0,
        status=status_in(entry, "State"),
        created=float(at) if isinstance(at, int) and 0 < at < LAST_TIME else 0.0,
        damage=damage,
        inspected=False,
    )


def told_late(engine: Engine, containers: Iterable[Container]) -> list[Container]:
    """Returns containers with what the engine has heard of the want of memory only after their end.

    The kernel's word of it and the end of the program come to the engine by different ways. Where the second
    comes first, Docker tells of the first in its events, and nowhere else.

    Args:
        engine: where they are.
        containers: all of an application.
    """
    known = list(containers)
    asked = [c for c in known if c.signal == "SIGKILL" and c.memory and c.finished and not (c.oom or c.mark)]
    if not asked:
        return known
    moments = [c.finished or 0.0 for c in asked]
    query = {
        "since": f"{min(moments) - LATE:.6f}",
        "until": f"{max(moments) + LATE:.6f}",  # one that is still to come is waited for
        "filters": {"type": ["container"], "event": ["oom"], "container": [c.id for c in asked]},
    }
    with suppress(EngineError):
        told = json.dumps(engine.call("GET", "/events", query))  # one event, several as text, or none
        return [replace(c, oom=True) if c in asked and c.id in told else c for c in known]
    return known
