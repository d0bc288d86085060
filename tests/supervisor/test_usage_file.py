"""Tests of the writer of samples: rounds, merging, a full disk and changed files."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from torchx.jobs.measurement import HEADER, MOST_ATTEMPTS, Row, decode, rounds_kept
from torchx.scheduling.measurement import Sample, merged
from torchx.supervisor.measurement.file import UsageFile


def row(replica: int, time: float, span: float = 1.0, attempt: int = 1, **values: float) -> Row:
    return Row(replica, attempt, Sample(time, span, **values))


def read(path: Path, replicas: int = 1) -> list[Row]:
    data = path.read_bytes()
    assert data.startswith(HEADER)
    return list(decode(data[len(HEADER) :], replicas))


@pytest.mark.parametrize("replicas", [1, 3])
def test_old_rounds_are_merged_and_the_latest_kept(
    replicas: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, last = 40, 399
    monkeypatch.setattr("torchx.supervisor.measurement.file.rounds_kept", lambda replicas: limit)
    file = UsageFile(tmp_path / "usage", replicas)
    for second in range(1, last + 1):
        file.add([row(n, float(second), cpu=float(second % 7), memory=second << 10) for n in range(replicas)])
    rows = read(tmp_path / "usage", replicas)
    assert len(rows) <= limit * replicas
    for replica in range(replicas):
        samples = [one.sample for one in rows if one.replica == replica]
        total = merged(samples)
        assert total.span == total.time == last
        assert total.cpu == pytest.approx(sum(n % 7 for n in range(1, last + 1)) / last)
        assert total.memory == last << 10
        assert all(sample.span == 1.0 for sample in samples[-limit // 4 :]), "the latest are not merged"
        assert max(sample.span for sample in samples) <= last / (limit // 4) + 1, "they cover it evenly"


def test_many_attempts_keep_the_file_small(tmp_path: Path) -> None:
    file = UsageFile(tmp_path / "usage", 1)
    for second in range(1, 600):
        file.add([row(0, float(second), attempt=second)])
    rows = read(tmp_path / "usage")
    assert len(rows) <= rounds_kept(1) * MOST_ATTEMPTS
    assert rows[-1].attempt == 599


def test_a_full_disk_loses_samples_only(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            file = UsageFile(path, 1)
            file.add([row(0, 1.0)])
            size = path.stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
            file.add([row(0, 2.0)])
            assert path.stat().st_size == size, "no part of a sample is left"
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            file.add([row(0, 3.0)])
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [one.sample.time for one in read(path)] == [1.0, 3.0]


@pytest.mark.parametrize("change", ["removed", "shortened", "replaced"])
def test_a_changed_file_is_begun_again(change: str, tmp_path: Path) -> None:
    path = tmp_path / "usage"
    file = UsageFile(path, 1)
    file.add([row(0, 1.0)])
    if change == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if change == "shortened" else b"something else, longer" * 9)
    file.add([row(0, 2.0)])
    file.add([row(0, 3.0)])
    assert [one.sample.time for one in read(path)] == [2.0, 3.0]


def test_a_file_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    file = UsageFile(path, 1)
    os.mkfifo(path)
    file.add([row(0, 1.0)])
    path.unlink()
    UsageFile(tmp_path / "removed" / "usage", 1).add([row(0, 1.0)])
    file.add([])
    assert not path.exists(), "a round without samples writes nothing"
    file.add([row(0, 2.0)])
    assert path.stat().st_mode & 0o777 == 0o600
