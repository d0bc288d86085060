"""The current measurements of running containers, from the engine's statistics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from torchx.schedulers.docker.containers import Container, damage_of, mapping_in
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.parallel import in_parallel
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.docker.status import describe_all
from torchx.schedulers.shared.usage import requests_of
from torchx.scheduling.usage import AppUsage, ReplicaUsage, Requested, Sample

ONCE = {"stream": "false", "one-shot": "true"}
"""Query for statistics without a second reading, for which the engine would wait a second."""


def usage(engine: Engine, app_id: str) -> AppUsage | None:
    """Returns the measurements of an application; None if no container is running.

    An engine keeps no statistics of ended containers.
    """
    containers = containers_of(engine, app_id)
    running = [c for c in containers if c.status == "running" and c.started is not None]
    if not running or damage_of(containers):
        return None
    requests = requests_of(describe_all(containers).roles)

    def measure(container: Container) -> ReplicaUsage | None:
        statistics = engine.call("GET", f"/containers/{container.id}/stats", ONCE)
        sample = sample_of(statistics, container.started or 0.0, time.time())
        if sample is None:
            return None
        requested = requests.get(container.role, Requested())
        role, replica, attempt = container.role, container.replica, container.attempt
        return ReplicaUsage(role, replica, attempt, sample, (sample,), True, requested)

    order = {name: number for number, name in enumerate(requests)}
    running.sort(key=lambda c: (order.get(c.role, 0), c.replica))
    measured = [found for found in in_parallel(measure, running) if isinstance(found, ReplicaUsage)]
    return (
        AppUsage(tuple(measured), "the statistics of the engine", current=("memory",)) if measured else None
    )


def sample_of(statistics: Any, started: float, now: float) -> Sample | None:
    """Returns the measurements in an engine's answer; None if the container has ended.

    Args:
        statistics: the answer.
        started: the start of the container, seconds since the epoch.
        now: the current time.
    """
    if not isinstance(statistics, dict):
        return None
    memory = mapping_in(statistics, "memory_stats")
    used = _number(memory, "usage")
    if used is None:
        return None
    details = mapping_in(memory, "stats")
    # files in the page cache that the kernel can drop at any time, as `docker stats` shows it
    cache = _number(details, "inactive_file") or _number(details, "total_inactive_file") or 0
    cpu = _number(mapping_in(mapping_in(statistics, "cpu_stats"), "cpu_usage"), "total_usage")
    span = max(now - started, 1e-3)
    read, write = (_storage(mapping_in(statistics, "blkio_stats"), kind) for kind in ("read", "write"))
    return Sample(
        now,
        span,
        None if cpu is None else cpu / 1e9 / span,
        max(used - cache, 0),
        read=None if read is None else read / span,
        write=None if write is None else write / span,
    )


def _number(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _storage(data: Mapping[str, Any], kind: str) -> int | None:
    """Returns the bytes that were read or written, of all devices; None if the engine counts none."""
    entries = data.get("io_service_bytes_recursive")
    if not isinstance(entries, list):
        return None
    found = [e for e in entries if isinstance(e, dict) and str(e.get("op")).lower() == kind]
    return sum(_number(entry, "value") or 0 for entry in found)
