"""Reads the measurements of a batch job from the files of its attempts."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torchx.json_limits import without_none
from torchx.json_shape import mapping, read
from torchx.lazy import lazy_imports
from torchx.schedulers.shared.batch.measurement.meter import LONGEST_PAUSE, USAGE
from torchx.schedulers.shared.batch.paths import parse_json, read_own
from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.shared.measurement import requests_of
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Requested, Sample

with lazy_imports:
    from torchx.specs import serialize

SOURCE = "/proc of the nodes"

LATE = 2 * LONGEST_PAUSE
"""Seconds after which a measurement is not a current one: its replica was killed, with the agent."""


class _Measured(NamedTuple):
    """The measurements of an attempt, in seconds and bytes; those of a running one have the last time too."""

    span: float
    cpu: float
    peak: int
    at: float = 0.0
    memory: int = 0
    recent_cpu: float = 0.0
    recent_span: float = 0.0


def usage_of(record: BatchRecord) -> AppUsage | None:
    """Returns the measurements of a job; None if there are none."""
    roles = serialize.app_from_dict(record.app).roles
    requests = requests_of(roles)
    measured = []
    for role in roles:
        for replica in range(role.num_replicas):
            for number, folder in record.paths.attempts(role.name, replica):
                if found := _read(folder):
                    measured.append(_usage(role.name, replica, number, found, requests[role.name]))
    if not measured:
        return None
    return AppUsage(tuple(measured), SOURCE)


def usage_many(engine: str, app_ids: Collection[str]) -> dict[str, AppUsage]:
    """Returns the measurements of jobs with a record, by their ids; those without any are left out."""
    return without_none({key: usage_of(record) for key, record in Records(engine).of(app_ids).items()})


def _read(folder: Path) -> _Measured | None:
    """Returns the measurements of an attempt: those of its end, else the last ones."""
    for name in ("end.json", USAGE):
        with suppress(KeyError, TypeError, ValueError):
            data = mapping(parse_json(read_own(folder / name) or b""), name)
            found: _Measured = read(_Measured, data["usage"], name)
            return found
    return None


def _usage(role: str, replica: int, number: int, found: _Measured, requested: Requested) -> ReplicaUsage:
    total = Sample(found.at, found.span, found.cpu / max(found.span, 0.001), found.peak)
    if time.time() - found.at > LATE:
        return ReplicaUsage(role, replica, number, total, requested=requested)
    now = Sample(found.at, found.recent_span, found.recent_cpu, found.memory)
    return ReplicaUsage(role, replica, number, total, (now,), True, requested)
