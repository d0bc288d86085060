"""A secret value for tests, and a search for it wherever another user could read it."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PAUSE = 0.01
"""Seconds between two looks at the processes: a program that lives shorter may be missed."""


def canary() -> str:
    """Returns a value that occurs nowhere else."""
    return f"canary{secrets.token_hex(12)}"


def _arguments() -> Iterator[list[bytes]]:
    """Yields the arguments of each process, as any user can read them."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield (Path(entry.path) / "cmdline").read_bytes().split(b"\0")[:-1]


class Watched:
    """A context in which the arguments of all processes are searched again and again.

    Args:
        values: the values to search for.
        may: returns True for the arguments of a process that may have them: the program of the role itself.

    Attributes:
        seen: the arguments that had one.
        looks: how often all processes were searched.
    """

    def __init__(self, *values: str, may: Callable[[list[bytes]], bool] = lambda argv: False) -> None:
        self._values = [value.encode() for value in values]
        self._may = may
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: list[list[bytes]] = []
        self.looks = 0

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(PAUSE):
            for argv in _arguments():
                has_one = any(value in word for value in self._values for word in argv)
                if has_one and not self._may(argv) and argv not in self.seen:
                    self.seen.append(argv)
            self.looks += 1


def files_for_others(folder: Path, *values: str) -> list[str]:
    """Returns the files below a folder that have a value and that another user can read.

    A file is out of reach when it, or a folder on the way to it from ``folder`` on, is private.
    """
    found: list[str] = []
    for path in folder.iterdir():
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            if status.st_mode & 0o011:
                found += files_for_others(path, *values)
        elif stat.S_ISREG(status.st_mode) and status.st_mode & 0o044:
            data = path.read_bytes()
            found += [str(path)] * any(value.encode() in data for value in values)
    return found


def open_files(folder: Path) -> list[str]:
    """Returns all files and folders below a folder, and itself, that are not private to their owner."""
    paths = [folder, *folder.rglob("*")]
    return [f"{path} {path.lstat().st_mode & 0o777:o}" for path in paths if path.lstat().st_mode & 0o077]


def in_outputs(commands: Sequence[Sequence[str]], *values: str) -> list[str]:
    """Returns the commands whose output has a value; each has to run."""
    found = []
    for argv in commands:
        done = subprocess.run(argv, capture_output=True, timeout=60)
        assert done.returncode == 0, (argv, done.stderr)
        found += [" ".join(argv)] * any(value.encode() in done.stdout + done.stderr for value in values)
    return found
