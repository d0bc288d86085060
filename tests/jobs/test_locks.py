"""The lock of a supervisor: held by one process, waited for by many, and never made by who only looks."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from torchx.machine import files, locks


def test_one_process_holds_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = locks.acquire(path)
    assert held is not None
    assert path.stat().st_mode & 0o777 == 0o600
    before = len(os.listdir("/proc/self/fd"))
    assert locks.acquire(path) is None
    assert locks.is_held(path)
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(held)
    assert not locks.is_held(path)
    again = locks.acquire(path)
    assert again is not None
    os.close(again)


def test_a_lock_leaves_the_content_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"content")
    with locks.exclusive(path):
        assert locks.is_held(path)
    held = locks.acquire(path)
    assert held is not None
    os.close(held)
    assert path.read_bytes() == b"content"


def test_a_missing_lock_is_free_and_not_made(tmp_path: Path) -> None:
    assert not locks.is_held(tmp_path / "lock")
    assert locks.wait_free(tmp_path / "lock")
    assert locks.wait_free(tmp_path / "missing" / "lock", 5.0)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        locks.acquire(tmp_path / "missing" / "lock")


def test_a_wait_ends_after_its_time(tmp_path: Path) -> None:
    held = locks.acquire(tmp_path / "lock")
    assert held is not None
    began = time.monotonic()
    assert not locks.wait_free(tmp_path / "lock", 0.1)
    assert 0.1 <= time.monotonic() - began < 30
    os.close(held)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_all_who_wait_are_woken(tmp_path: Path, timeout: float | None) -> None:
    path = tmp_path / "lock"
    held = locks.acquire(path)
    assert held is not None
    answers: list[bool] = []
    waiting = [
        threading.Thread(target=lambda: answers.append(locks.wait_free(path, timeout))) for _ in range(3)
    ]
    for thread in waiting:
        thread.start()
    assert not locks.wait_free(path, 0.02)
    assert answers == []
    os.close(held)
    for thread in waiting:
        thread.join(60)
    assert answers == [True] * 3


def test_those_who_look_do_not_block_each_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not locks.is_held(path)
        assert locks.wait_free(path)
        assert locks.acquire(path) is None


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_lock_that_cannot_be_written_can_be_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "lock"
    path.touch()
    real = files.open_file

    def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
        if flags != os.O_RDONLY:
            raise OSError(number, os.strerror(number))
        return real(path)

    monkeypatch.setattr(locks.files, "open_file", open_file)
    if number == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            locks.acquire(path)
        return
    held = locks.acquire(path)
    assert held is not None
    assert locks.is_held(path)
    os.close(held)
