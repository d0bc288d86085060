"""Read the statistics of a container from an engine."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from torchx.json_limits import Data
from torchx.json_shape import integer, items_at, typed_at
from torchx.machine.cgroups import Totals
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import PATIENCE, Engine

ONCE = {"stream": "false", "one-shot": "true"}
"""Query for statistics without a second reading, for which the engine would wait a second."""


SLACK = 60.0
"""CPU seconds that a container may seem to have used too much."""


def measure(engine: Engine, container: Container, patience: float = PATIENCE) -> Totals | None:
    """Returns the resources that a container has used; None if it has ended or the engine does not know.

    Without control groups, as a rootless engine may be, it reports the resources of the whole machine.
    """
    answer = engine.call("GET", f"/containers/{container.id}/stats", ONCE, patience=patience)
    totals = totals_of(answer)
    if totals is None or engine.lacks_control_groups:
        return None
    processors = _number(typed_at(answer, dict, "cpu_stats"), "online_cpus") or math.inf
    most = max(engine.clock.now() - (container.started or 0.0), 0.0) * processors + SLACK
    if totals.cpu is not None and totals.cpu > most:
        return None
    return totals


def totals_of(statistics: Any) -> Totals | None:
    """Returns the resources in an engine's answer; None if the container has ended."""
    if not isinstance(statistics, dict):
        return None
    memory = typed_at(statistics, dict, "memory_stats")
    used = _number(memory, "usage")
    if used is None:
        return None
    details = typed_at(memory, dict, "stats")
    # files in the page cache that the kernel can drop at any time, as `docker stats` shows it
    cache = _number(details, "inactive_file") or _number(details, "total_inactive_file") or 0
    cpu = _number(typed_at(statistics, dict, "cpu_stats", "cpu_usage"), "total_usage")
    read, write = (_storage(typed_at(statistics, dict, "blkio_stats"), kind) for kind in ("read", "write"))
    return Totals(None if cpu is None else cpu / 1e9, max(used - cache, 0), read, write)


def _number(data: Data, name: str) -> int | None:
    with suppress(TypeError, ValueError):
        return integer(data.get(name), name)
    return None


def _storage(data: Data, kind: str) -> int | None:
    """Returns the bytes that were read or written, of all devices; None if the engine counts none."""
    name = "io_service_bytes_recursive"
    if not isinstance(data.get(name), list):
        return None
    entries = [entry for entry in items_at(data, dict, name) if str(entry.get("op")).lower() == kind]
    return sum(_number(entry, "value") or 0 for entry in entries)
