"""The measurements in JSON output, as types."""

from __future__ import annotations

from typing import Annotated, TypedDict

from torchx_cli.schemas.keys import (
    AttemptNumber,
    Cores,
    GpuMemory,
    GpuShare,
    Memory,
    OutputRate,
    ReadRate,
    ReplicaId,
    RoleName,
    WriteRate,
)


class Totals(TypedDict):
    """Means and peaks."""

    seconds: Annotated[float, "the measured time"]
    mean_cpu: Annotated[float | None, "CPU cores in use, the mean"]
    peak_memory: Annotated[int | None, "memory in bytes, the largest value"]
    mean_gpu: Annotated[float | None, "utilisation of the GPUs, 0 to 1, the mean"]
    peak_gpu_memory: Annotated[int | None, "memory of the GPUs in bytes, the largest value"]
    output_rate: OutputRate
    read_rate: ReadRate
    write_rate: WriteRate


class Requested(TypedDict):
    """The requested resources of a replica."""

    cpu: Annotated[float | None, "CPU cores"]
    memory: Memory
    gpu: Annotated[int | None, "GPUs"]


class ReplicaUsage(Totals):
    """The measurements of an attempt of a replica."""

    role: RoleName
    replica: ReplicaId
    attempt: AttemptNumber
    running: Annotated[bool, "whether the attempt is running"]
    requested: Annotated[Requested, "the requested resources"]


class Sample(TypedDict):
    """Measurements of a span of time."""

    time: Annotated[float, "the end of the span, seconds since the epoch"]
    span: Annotated[float, "the duration in seconds"]
    cpu: Cores
    memory: Memory
    gpu: GpuShare
    gpu_memory: GpuMemory
    output: OutputRate
    read: ReadRate
    write: WriteRate


class SampledReplica(ReplicaUsage):
    """The measurements of an attempt of a replica, with its samples."""

    samples: Annotated[list[Sample], "the samples in order of time"]


class AppUsage(Totals):
    """The measurements of an application; means and peaks are those of a mean replica."""

    source: Annotated[str, "the origin of the measurements, such as /proc"]
    interval: Annotated[float | None, "seconds between two samples; null if the engine is queried on demand"]
    current: Annotated[list[str], "the measurements that are current values, not means or peaks"]
    largest: Annotated[str | None, "the replica with the largest memory, as ROLE/ID"]


class Usage(AppUsage):
    """The measurements of an application and its replicas."""

    replicas: Annotated[list[ReplicaUsage], "an object for each attempt"]


class SampledUsage(AppUsage):
    """The measurements of an application and its replicas, with samples."""

    replicas: Annotated[list[SampledReplica], "an object for each attempt"]
    summary: Annotated[dict[str, str], "the peaks and means of each role, as `status` shows them"]
