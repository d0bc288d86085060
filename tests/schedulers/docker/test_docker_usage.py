"""Tests of the measurements of containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from containers import IMAGE
from support import wait_until

from torchx.schedulers.docker.scheduler import create_scheduler
from torchx.schedulers.docker.usage import sample_of
from torchx.scheduling.usage import AppUsage, Requested
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource

MB = 1 << 20


@pytest.mark.docker
def test_running_containers_are_measured() -> None:
    scheduler = create_scheduler("torchx")
    size = Resource(1, 0, 512)
    script = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); while [ ! -e /tmp/end ]; do sleep 0.05; done"
    role = Role("w", IMAGE, entrypoint="sh", args=["-c", script], num_replicas=2, resource=size)
    app_id = scheduler.submit(AppDef("job", [role]), {"grace_period": 0.1})
    try:

        def look() -> AppUsage | None:
            found = scheduler.usage(app_id)
            large = found is not None and len(found.replicas) == 2 and (found.peak_memory or 0) > 15 * MB
            return found if large else None

        found = wait_until(look, "both are measured")
        assert [replica.name for replica in found.replicas] == ["w/0", "w/1"]
        for replica in found.replicas:
            assert replica.running
            assert (replica.total.cpu or 0) > 0
            assert replica.total.gpu is None
            assert replica.requested == Requested(1, 512 * MB, None)
        assert found.current == ("memory",)
    finally:
        scheduler.kill(app_id)
    wait_until(lambda: scheduler.usage(app_id) is None, "ended containers have no statistics")
    scheduler.delete(app_id)
    assert scheduler.usage(app_id) is None


STATISTICS: dict[str, Any] = {
    "memory_stats": {"usage": 100 * MB, "stats": {"inactive_file": 30 * MB}},
    "cpu_stats": {"cpu_usage": {"total_usage": 5_000_000_000}},
    "blkio_stats": {
        "io_service_bytes_recursive": [
            {"op": "read", "value": 100}, {"op": "Read", "value": 50}, {"op": "write", "value": 20}, 7,
        ]
    },
}  # fmt: skip


def test_rates_are_means_since_the_start() -> None:
    found = sample_of(STATISTICS, 100.0, 110.0)
    assert found is not None
    assert (found.span, found.cpu, found.memory, found.read, found.write) == (10.0, 0.5, 70 * MB, 15.0, 2.0)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: {},
        lambda data: "text",
        lambda data: {**data, "memory_stats": {}},
        lambda data: {**data, "memory_stats": {"usage": "7"}},
        lambda data: {**data, "memory_stats": None},
    ],
)
def test_a_container_that_has_ended_has_no_sample(change: Callable[[Any], Any]) -> None:
    assert sample_of(change(STATISTICS), 100.0, 110.0) is None


def test_unknown_values_are_none() -> None:
    found = sample_of(
        {**STATISTICS, "cpu_stats": {}, "blkio_stats": {"io_service_bytes_recursive": None}}, 1.0, 2.0
    )
    assert found is not None
    assert found.cpu is found.read is found.write is None
