"""Tests of the file of measurements: format, merging, limits and damage."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.jobs.measurement import HEADER, LAYOUT, Row, decode, encode, read_usage
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import AttemptView, JobView, ReplicaView
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Sample

KIB = 1 << 10


def view_of(replicas: int = 2, attempts: int = 1) -> JobView:
    role = RoleRecord("trainer", [ReplicaRecord(["true"], {})] * replicas, {})
    record = JobRecord("a-1", "local_cwd", "torchx", "a", 0.0, "/logs/torchx/a-1", [role], {}, {})
    numbers = range(1, attempts + 1)
    views = [ReplicaView("trainer", n, 0, [AttemptView(a) for a in numbers]) for n in range(replicas)]
    return JobView(record, views, state="RUNNING")


def row(replica: int, time: float, span: float = 1.0, attempt: int = 1, **values: float) -> Row:
    return Row(replica, attempt, Sample(time, span, **values))


@pytest.fixture
def paths(tmp_path: Path) -> JobPaths:
    return JobPaths(tmp_path)


def write(paths: JobPaths, *rows: Row, more: bytes = b"") -> None:
    paths.usage.write_bytes(HEADER + b"".join(map(encode, rows)) + more)


VALUES = st.one_of(st.none(), st.floats(0, 1e6, width=32))
SIZES = st.one_of(st.none(), st.integers(0, 1 << 30).map(lambda kib: kib * KIB))
SAMPLES = st.builds(
    Sample,
    st.floats(0, 1e9),
    st.floats(0, 1e6, width=32),
    VALUES,
    SIZES,
    VALUES,
    SIZES,
    VALUES,
    VALUES,
    VALUES,
)


@settings(max_examples=30)
@given(st.lists(st.builds(Row, st.integers(0, 9), st.integers(1, 65535), SAMPLES), max_size=5))
def test_samples_are_read_as_written(rows: list[Row]) -> None:
    assert list(decode(b"".join(map(encode, rows)), 10)) == rows


def test_extreme_values_are_written_within_the_format() -> None:
    one = row(0, 1.0, attempt=1 << 20, memory=1 << 60)
    (read,) = decode(encode(one), 1)
    assert read.attempt == 65535
    assert read.sample.memory == ((1 << 32) - 2) * KIB


@pytest.mark.parametrize(
    "damage",
    [
        {"time": math.nan},
        {"time": -1.0},
        {"span": math.inf},
        {"replica": 2},
        {"attempt": 0},
        {"cpu": -1.0},
        {"gpu": math.inf},
    ],
)
def test_a_damaged_sample_is_ignored(damage: dict[str, float]) -> None:
    names = (
        "time",
        "span",
        "replica",
        "attempt",
        "cpu",
        "memory",
        "gpu",
        "gpu_memory",
        "out",
        "read",
        "write",
    )
    values = dict(zip(names, LAYOUT.unpack(encode(row(1, 5.0))), strict=True))
    wrong = LAYOUT.pack(*{**values, **damage}.values())
    good = row(0, 6.0, cpu=1.0)
    assert list(decode(wrong + encode(good), 2)) == [good]


@given(st.binary(max_size=300))
def test_any_content_is_harmless(data: bytes) -> None:
    list(decode(data, 3))


def test_a_foreign_file_is_ignored(paths: JobPaths) -> None:
    paths.usage.write_bytes(b"something else".ljust(len(HEADER)) + encode(row(0, 1.0, cpu=1.0)))
    assert read_usage(view_of(), paths) is None
    paths.usage.unlink()
    os.mkfifo(paths.usage)
    assert read_usage(view_of(), paths) is None, "a pipe does not block the reader"


def test_a_job_without_a_file_has_no_measurements(paths: JobPaths) -> None:
    assert read_usage(view_of(), paths) is None


def test_peaks_and_means_are_derived_from_samples(paths: JobPaths) -> None:
    write(
        paths,
        row(0, 11.0, 1.0, cpu=1.0, memory=100 * KIB),
        row(1, 11.0, 1.0, cpu=4.0, memory=700 * KIB),
        row(0, 14.0, 3.0, cpu=2.0, memory=300 * KIB, output=8.0),
        more=b"incomplete",
    )
    found = read_usage(view_of(), paths)
    assert found is not None
    first, second = found.replicas
    assert (first.name, first.attempt, first.running) == ("trainer/0", 1, True)
    assert [sample.time for sample in first.samples] == [11.0, 14.0]
    assert first.total == Sample(14.0, 4.0, cpu=1.75, memory=300 * KIB, output=8.0)
    assert first.latest == first.samples[-1]
    assert found.largest is second
    assert found.peak_memory == 700 * KIB
    assert found.mean_cpu == pytest.approx(2.2)
    assert found.mean_gpu is found.peak_gpu_memory is None, "unknown is not 0"
    assert found.now is not None
    assert (found.now.cpu, found.now.memory, found.now.output) == (6.0, 1000 * KIB, 8.0)
    assert found.interval == 1.0


def test_total_of_ended_attempt_is_that_of_its_event(paths: JobPaths) -> None:
    write(paths, row(0, 11.0, cpu=1.0), row(0, 12.0, attempt=2, cpu=3.0))
    view = view_of(1, attempts=2)
    view.replicas[0].attempts[0].ended_at = 11.5
    view.replicas[0].attempts[0].usage = Sample(11.5, 1.5, cpu=1.2)
    found = read_usage(view, paths)
    assert found is not None
    first, second = found.replicas
    assert first.total.cpu == 1.2
    assert first.latest is None, "it has ended"
    assert second.total.cpu == 3.0
    assert second.latest == Sample(12.0, 1.0, cpu=3.0)


def test_the_layout_is_that_of_older_files() -> None:
    assert LAYOUT.size == 48
    assert struct.calcsize("<dfIHxxfIfIfff") == LAYOUT.size


def test_a_role_can_be_selected() -> None:
    one, other = (ReplicaUsage(role, 0, 1, Sample(1.0, 1.0, memory=9)) for role in ("a", "b"))
    found = AppUsage((one, other), "test")
    assert found.of_role("b").replicas == (other,)
    assert found.of_role("c").total is found.of_role("c").now is found.of_role("c").peak_memory is None


def test_json_has_the_samples_if_requested() -> None:
    sample = Sample(2.0, 1.0, cpu=0.5, memory=9)
    found = AppUsage((ReplicaUsage("a", 0, 1, sample, (sample,), running=True),), "test", 1.0)
    data = found.to_json()
    assert (data["peak_memory"], data["mean_cpu"], data["largest"], data["mean_gpu"]) == (9, 0.5, "a/0", None)
    assert "samples" not in data["replicas"][0]
    assert found.to_json(samples=True)["replicas"][0]["samples"] == [sample._asdict()]
