"""Tests of the reading of control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx.machine import cgroups
from torchx.machine.cgroups import Cgroup, Totals, cgroup_of
from torchx.machine.processes import read_proc

FIRST = {
    "memory/docker/abc/memory.usage_in_bytes": "1000\n",
    "memory/docker/abc/memory.stat": "inactive_file 7\ntotal_inactive_file 300\n",
    "cpuacct/docker/abc/cpuacct.usage": "2500000000\n",
    "blkio/docker/abc/blkio.throttle.io_service_bytes_recursive": (
        "8:0 Read 10\n8:0 Write 20\n8:0 Sync 5\n8:16 Read 1\nTotal 31\n"
    ),
}
SECOND = {
    "system.slice/docker-abc.scope/memory.current": "1000\n",
    "system.slice/docker-abc.scope/memory.stat": "anon 700\ninactive_file 300\n",
    "system.slice/docker-abc.scope/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
    "system.slice/docker-abc.scope/io.stat": "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=0\n",
}
OF_FIRST = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n2:blkio:/docker/abc\n1:name=systemd:/\n0::/\n"
OF_SECOND = "0::/system.slice/docker-abc.scope\n"
VERSIONS = pytest.mark.parametrize(("files", "of_process"), [(FIRST, OF_FIRST), (SECOND, OF_SECOND)])


def group_in(
    root: Path, files: dict[str, str], of_process: str, monkeypatch: pytest.MonkeyPatch
) -> Cgroup | None:
    """The group of a process with these files."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def read(path: str) -> bytes:
        return of_process.encode() if path == "/proc/7/cgroup" else read_proc(path)

    monkeypatch.setattr(cgroups, "ROOT", str(root))
    monkeypatch.setattr(cgroups, "read_proc", read)
    return cgroup_of(7, "abc")


@VERSIONS
def test_both_versions_are_read(
    files: dict[str, str], of_process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = group_in(tmp_path, files, of_process, monkeypatch)
    assert group is not None
    assert group.read() == Totals(2.5, 700, 11, 20)
    for name in files:
        (tmp_path / name).unlink()
    assert group.read() is None, "its processes have ended"


@VERSIONS
def test_a_group_that_is_not_here_is_none(
    files: dict[str, str], of_process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("", of_process.replace("abc", "another"), of_process.replace(":/", ":/../")):
        assert group_in(tmp_path, files, other, monkeypatch) is None
    assert group_in(tmp_path / "none", {}, of_process, monkeypatch) is None
    assert cgroup_of(2**22, "abc") is None


@VERSIONS
def test_storage_may_be_unknown(
    files: dict[str, str], of_process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {name: text for name, text in files.items() if "io." not in name}
    group = group_in(tmp_path, files, of_process, monkeypatch)
    assert group is not None
    assert group.read() == Totals(2.5, 700, None, None)
