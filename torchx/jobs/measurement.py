"""The measurements of a job: a small file of samples, and the totals in its events.

The supervisor appends one round of samples at a time, one for each running replica. The number of rounds is
limited: when it is reached, old rounds are merged and the file is replaced, so that the whole run stays
covered and the latest rounds keep their resolution.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from torchx.jobs.paths import JobPaths
from torchx.jobs.view import JobView
from torchx.json_limits import Data
from torchx.json_shape import LATEST, items_at
from torchx.machine import files
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Requested, Sample, merged

LAYOUT = struct.Struct("<dfIHxxfIfIfff")
HEADER = b"torchx usage 1\n".ljust(LAYOUT.size, b"\0")
"""The beginning of the file, one record long."""

MOST_ROUNDS = 240
"""Maximum rounds of samples that a job keeps; fewer if it has many replicas."""

FEWEST_ROUNDS = 32
"""Rounds of samples that each job keeps."""

MOST_ROWS = 1 << 15
"""Maximum samples of all replicas together, unless that is less than :data:`FEWEST_ROUNDS`."""

MOST_ATTEMPTS = 2
"""Maximum attempts of a replica in one round."""

LARGEST = 1 << 28
"""Maximum bytes of the file that are read."""

SOURCE = "/proc"
_LARGEST_VALUE = 1e15
_UNKNOWN = 0xFFFFFFFF


class Row(NamedTuple):
    """One sample in the file.

    Attributes:
        replica: ordinal of the replica within the application.
        attempt: from 1.
        sample: the measurements.
    """

    replica: int
    attempt: int
    sample: Sample


def rounds_kept(replicas: int) -> int:
    """Returns the maximum number of rounds for a number of replicas.

    >>> rounds_kept(1), rounds_kept(1000)
    (240, 32)
    """
    return max(min(MOST_ROUNDS, MOST_ROWS // max(replicas, 1)), FEWEST_ROUNDS)


# --- the format ----------------------------------------------------------------------------------


def encode(row: Row) -> bytes:
    """Returns the bytes of a sample."""
    time, span, cpu, memory, gpu, gpu_memory, output, read, write = row.sample
    attempt = min(row.attempt, 0xFFFF)
    return LAYOUT.pack(
        time,
        span,
        row.replica,
        attempt,
        _float(cpu),
        _kib(memory),
        _float(gpu),
        _kib(gpu_memory),
        _float(output),
        _float(read),
        _float(write),
    )


def _float(value: float | None) -> float:
    if value is None:
        return math.nan
    return value


def _kib(value: int | None) -> int:
    if value is None:
        return _UNKNOWN
    return min(value >> 10, _UNKNOWN - 1)


def decode(data: bytes, replicas: int) -> Iterator[Row]:
    """Yields samples in order; ignores damaged and incomplete ones.

    Args:
        data: the file after its header.
        replicas: the number of replicas of the job.
    """
    whole = len(data) - len(data) % LAYOUT.size
    for time, span, replica, attempt, cpu, memory, gpu, gpu_memory, *rates in LAYOUT.iter_unpack(
        data[:whole]
    ):
        # NaN is an unknown value; it is neither negative nor too large
        values = (cpu, gpu, *rates)
        if replica >= replicas or not attempt or not 0 <= time <= LATEST or not 0 <= span <= LATEST:
            continue
        if any(value < 0 or value > _LARGEST_VALUE for value in values):
            continue
        cpu, gpu, output, read, write = (None if value != value else value for value in values)
        memory, gpu_memory = (None if value == _UNKNOWN else value << 10 for value in (memory, gpu_memory))
        yield Row(replica, attempt, Sample(time, span, cpu, memory, gpu, gpu_memory, output, read, write))


# --- reading -------------------------------------------------------------------------------------


def read_usage(view: JobView, paths: JobPaths, source: str = SOURCE) -> AppUsage | None:
    """Returns the measurements of a job, or None if there are none.

    Args:
        view: the job.
        paths: its record.
        source: the origin of the measurements.
    """
    attempts = [
        Measured(
            ordinal,
            replica.role,
            replica.id,
            attempt.number,
            attempt.ended_at is None and not view.has_ended,
            attempt.usage,
        )
        for ordinal, replica in enumerate(view.replicas)
        for attempt in replica.attempts
    ]
    samples = read_samples(paths.usage, len(view.replicas))
    return usage_from(samples, attempts, _requests(view.record.app), source)


class Measured(NamedTuple):
    """An attempt that may have measurements.

    Attributes:
        ordinal: ordinal of its replica within the application.
        role: name of the role.
        replica: id of the replica.
        attempt: its number.
        running: whether it is running.
        total: the measurements of all its time, if they are known.
    """

    ordinal: int
    role: str
    replica: int
    attempt: int
    running: bool
    total: Sample | None = None


def read_samples(path: Path, replicas: int) -> dict[tuple[int, int], list[Sample]]:
    """Returns the samples in a file by ordinal of the replica and number of the attempt.

    Args:
        path: the file; it may not exist.
        replicas: the number of replicas of the application.
    """
    try:
        data = files.read_file(path, LARGEST)
    except OSError:  # none yet, removed, or not a file of this user
        data = b""
    samples: dict[tuple[int, int], list[Sample]] = {}
    for row in decode(data[len(HEADER) :] if data.startswith(HEADER) else b"", replicas):
        samples.setdefault((row.replica, row.attempt), []).append(row.sample)
    return samples


def usage_from(
    samples: Mapping[tuple[int, int], list[Sample]],
    attempts: Iterable[Measured],
    requests: Mapping[str, Requested],
    source: str,
) -> AppUsage | None:
    """Returns the measurements of an application, or None if there are none.

    Args:
        samples: from :func:`read_samples`.
        attempts: its attempts, in the order of roles, replicas and attempts.
        requests: the resources requested by each role.
        source: the origin of the measurements.
    """
    measured = []
    for ordinal, role, replica, number, running, total in attempts:
        known = sorted(samples.get((ordinal, number), ()), key=lambda sample: sample.time)
        total = total or (merged(known) if known else None)
        if total is not None:
            requested = requests.get(role, Requested())
            measured.append(ReplicaUsage(role, replica, number, total, tuple(known), running, requested))
    interval = min((r.latest.span for r in measured if r.latest is not None), default=None)
    if measured:
        return AppUsage(tuple(measured), source, interval)
    return None


def _requests(app: Data) -> dict[str, Requested]:
    """Returns the resources requested by each role of an application; the record may be damaged."""
    found = {}
    for role in items_at(app, dict, "roles"):
        resource = role.get("resource")
        if isinstance(resource, dict) and isinstance(role.get("name"), str):
            found[role["name"]] = Requested.of(*map(resource.get, ("cpu", "memMB", "gpu")))
    return found
