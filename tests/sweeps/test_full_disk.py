"""Submissions on a disk that is full: after an error nothing of them exists, and nothing runs later."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchx.errors import StateError
from torchx.machine import files
from torchx.runner import Runner
from torchx.sweeps import requests, submission
from torchx_cli.main import main


@contextmanager
def full_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Lets that number of files be written; the next ones fail and leave no byte."""
    written: list[Path] = []

    def counted(path: Path) -> None:
        written.append(path)
        if len(written) > writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real_write, real_append = files.write_file, files.append_lines

    def write(path: Path, data: bytes, *, sync: bool = False) -> None:
        counted(path)
        real_write(path, data, sync=sync)

    def append(path: Path, lines: list[bytes]) -> None:
        counted(path)
        real_append(path, lines)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_file", write)
        for module in (submission, requests):
            patched.setattr(module, "append_lines", append)
        yield written


def handles(capfd: pytest.CaptureFixture[str]) -> list[str]:
    capfd.readouterr()
    assert main(["list", "-q"]) == 0
    return capfd.readouterr().out.split()


@pytest.mark.parametrize(
    "flags",
    [["--each", "msg=a,b"], ["--after", "first"], ["--once", "one"], []],
    ids=["sweep", "after", "once", "job"],
)
def test_an_error_leaves_nothing(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    line = ["run", "-s", "local_cwd", "-d"]
    assert (
        main([*line, "--name", "first", "utils.sh", "true"]) == 0
    )  # makes the files that all commands share
    before, codes = handles(capfd), []
    message = [] if "--each" in flags else ["--msg", "x"]
    for writes in range(30):
        with full_after(writes, monkeypatch) as written:
            codes.append(main([*line, *flags, "utils.echo", *message]))
        out, err = capfd.readouterr()
        if codes[-1] == 0:
            assert out.strip() in handles(capfd)
            break
        assert "No space left on device" in err
        assert out == ""
        assert handles(capfd) == before, written
    assert codes[0] != 0
    assert codes[-1] == 0
    assert ": :" not in err


def test_an_error_adds_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with Runner("s") as runner:
        handle = runner.sweep("utils.echo", {"msg": ["a"]}, "local_cwd")
        runner.wait(handle)
        paths = submission.paths_of(handle.rpartition("/")[2])
        before = paths.plan.read_bytes()
        for writes in range(30):
            with full_after(writes, monkeypatch):
                try:
                    runner.sweep("utils.echo", {"msg": ["a", "b"]}, "local_cwd")
                    break
                except StateError as error:
                    assert "No space left on device" in str(error)
            assert paths.plan.read_bytes() == before
            assert not paths.requests.exists()
        assert writes > 0
        runner.wait(handle)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_appended_lines_are_whole_or_absent(tmp_path: Path) -> None:
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)], check=False
    ).returncode:
        pytest.skip("no file system can be mounted")
    try:
        path = tmp_path / "lines"
        files.append_lines(path, [b"one\n"])
        with pytest.raises(OSError, match="No space left"):
            files.append_lines(path, [b"x" * 1023 + b"\n"] * 100)
        assert path.read_bytes() == b"one\n"
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
