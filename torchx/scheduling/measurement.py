"""Measurements of the replicas of an application: CPU, memory, GPUs, output and storage.

``torchx.schedulers.api`` is the documented name of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torchx.json_limits import Object


class Sample(NamedTuple):
    """Measurements of one replica, with all of its processes, during a span of time.

    A value that could not be measured is None. ``cpu``, ``gpu`` and the rates are means of the span, and
    ``memory`` and ``gpu_memory`` are the largest values in it.

    Attributes:
        time: the end of the span, seconds since the epoch.
        span: its duration in seconds.
        cpu: CPU cores in use.
        memory: resident memory, bytes.
        gpu: utilisation of its GPUs from 0 to 1, the mean of all of them.
        gpu_memory: memory of its GPUs in use, bytes.
        output: output to its log, bytes per second.
        read: reads from storage, bytes per second.
        write: writes to storage, bytes per second.
    """

    time: float
    span: float
    cpu: float | None = None
    memory: int | None = None
    gpu: float | None = None
    gpu_memory: int | None = None
    output: float | None = None
    read: float | None = None
    write: float | None = None


def merged(samples: Sequence[Sample]) -> Sample:
    """Returns one sample that covers the spans of several, which are at least one.

    >>> merged([Sample(1.0, 1.0, cpu=3.0, memory=5), Sample(3.0, 2.0, cpu=0.0, memory=7)])[:5]
    (3.0, 3.0, 1.0, 7, None)
    """
    if len(samples) == 1:
        return samples[0]

    def mean(name: str) -> float | None:
        known = [(value, s.span) for s in samples if (value := getattr(s, name)) is not None]
        total = sum(span for _, span in known)
        if total:
            return float(sum(value * span for value, span in known) / total)
        return _mean([value for value, _ in known])

    values: Object = {name: mean(name) for name in ("cpu", "gpu", "output", "read", "write")}
    values |= {name: max(_known(samples, name), default=None) for name in ("memory", "gpu_memory")}
    return Sample(max(sample.time for sample in samples), sum(s.span for s in samples), **values)


def _known(samples: Iterable[Sample], name: str) -> list[Any]:
    """Returns the known values of a field."""
    return [value for sample in samples if (value := getattr(sample, name)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    if values:
        return sum(values) / len(values)
    return None


_NONE = Sample(0.0, 0.0)
"""Without measurements."""


class Requested(NamedTuple):
    """The resources that were requested for a replica; None if none were.

    Attributes:
        cpu: CPU cores.
        memory: bytes.
        gpu: GPUs.
    """

    cpu: float | None = None
    memory: int | None = None
    gpu: int | None = None

    @classmethod
    def of(cls, cpu: object, mem_mb: object, gpu: object) -> Requested:
        """Returns the request of a :class:`torchx.specs.Resource`, in which values below 1 are none.

        >>> Requested.of(2, 1024, 0)
        Requested(cpu=2, memory=1073741824, gpu=None)
        """
        known = [v if isinstance(v, (int, float)) and 0 < v < 1 << 53 else None for v in (cpu, mem_mb, gpu)]
        if known[1] is None:
            memory = None
        else:
            memory = int(known[1]) << 20
        return cls(known[0], memory, None if known[2] is None else int(known[2]))


class ReplicaUsage(NamedTuple):
    """The measurements of one attempt of one replica.

    Attributes:
        role: name of its role.
        replica: its id within the role, from 0.
        attempt: the number of the attempt, from 1.
        total: all of its time as one sample: means, and the largest memory.
        samples: its time in order, in spans of different durations; may be empty even if ``total`` is known.
        running: whether the attempt is running, so that the last sample is its current use.
        requested: the resources that were requested for it.
    """

    role: str
    replica: int
    attempt: int
    total: Sample
    samples: tuple[Sample, ...] = ()
    running: bool = False
    requested: Requested = Requested()

    @property
    def name(self) -> str:
        """``role/replica``."""
        return f"{self.role}/{self.replica}"

    @property
    def latest(self) -> Sample | None:
        """The last sample of a running replica; None if it has ended or has no samples yet."""
        if self.running and self.samples:
            return self.samples[-1]
        return None

    def to_json(self, samples: bool = False) -> Object:
        """Returns plain data for ``json``; with the samples if requested."""
        data = {
            "role": self.role,
            "replica": self.replica,
            "attempt": self.attempt,
            "running": self.running,
            "requested": self.requested._asdict(),
            **_as_json(self.total),
        }
        if samples:
            data["samples"] = [sample._asdict() for sample in self.samples]
        return data


class AppUsage(NamedTuple):
    """The measurements of an application.

    Attributes:
        replicas: one entry for each measured attempt, in the order of roles, replicas and attempts.
        source: the origin of the measurements, for display, such as ``/proc``.
        interval: seconds between two samples; None if the engine is queried on demand.
        current: the fields of the totals for which the engine knows only the current value, instead of the
            mean or the largest.
    """

    replicas: tuple[ReplicaUsage, ...]
    source: str
    interval: float | None = None
    current: tuple[str, ...] = ()

    def of_role(self, role: str) -> AppUsage:
        """Returns the measurements of one role."""
        return self._replace(replicas=tuple(r for r in self.replicas if r.role == role))

    @property
    def largest(self) -> ReplicaUsage | None:
        """The attempt that used the most memory; None if no memory was measured."""
        known = [replica for replica in self.replicas if replica.total.memory is not None]
        return max(known, key=lambda replica: replica.total.memory or 0, default=None)

    @property
    def total(self) -> Sample | None:
        """The mean replica over all time, and the memory of the largest; None without measurements."""
        if self.replicas:
            return merged([replica.total for replica in self.replicas])
        return None

    @property
    def peak_memory(self) -> int | None:
        """The most memory that one replica used, bytes."""
        return (self.total or _NONE).memory

    @property
    def mean_cpu(self) -> float | None:
        """CPU cores that a replica used on average."""
        return (self.total or _NONE).cpu

    @property
    def mean_gpu(self) -> float | None:
        """Utilisation of the GPUs of a replica from 0 to 1 on average."""
        return (self.total or _NONE).gpu

    @property
    def peak_gpu_memory(self) -> int | None:
        """The most GPU memory that one replica used, bytes."""
        return (self.total or _NONE).gpu_memory

    @property
    def now(self) -> Sample | None:
        """The current use of all running replicas together; None if none is measured."""
        latest = [replica.latest for replica in self.replicas if replica.latest is not None]
        if not latest:
            return None
        sums = ("cpu", "memory", "gpu_memory", "output", "read", "write")
        values: Object = {name: sum(known) for name in sums if (known := _known(latest, name))}
        values["gpu"] = _mean(_known(latest, "gpu"))
        return Sample(max(s.time for s in latest), max(s.span for s in latest), **values)

    def to_json(self, samples: bool = False) -> Object:
        """Returns plain data for ``json``; with the samples if requested."""
        largest, total = self.largest, self.total
        return {
            "source": self.source,
            "interval": self.interval,
            "current": list(self.current),
            **_as_json(total or _NONE),
            "largest": None if largest is None else largest.name,
            "replicas": [replica.to_json(samples) for replica in self.replicas],
        }


def _as_json(total: Sample) -> Object:
    return {
        "seconds": total.span,
        "mean_cpu": total.cpu,
        "peak_memory": total.memory,
        "mean_gpu": total.gpu,
        "peak_gpu_memory": total.gpu_memory,
        "output_rate": total.output,
        "read_rate": total.read,
        "write_rate": total.write,
    }
