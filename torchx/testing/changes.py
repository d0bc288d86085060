"""Records the changes that this process makes, to test that queries make none."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FILES = frozenset(
    f"os.{name}"
    for name in (
        "chmod", "chown", "link", "mkdir", "remove", "rename", "rmdir", "setxattr", "symlink", "truncate",
        "utime",
    )
)  # fmt: skip
_SIGNALS = frozenset({"os.kill", "os.killpg", "signal.pidfd_send_signal"})
_SAFE_METHODS = (b"GET ", b"HEAD ")
_IGNORED = ("__pycache__", "/dev/", "/proc/")

_recorders: list[list[str]] = []


@contextmanager
def recorded_changes() -> Iterator[list[str]]:
    """Collects a line for each file that is written, each signal, and each HTTP request that is not a GET.

    Programs that this process starts are not observed.
    """
    _install()
    changes: list[str] = []
    _recorders.append(changes)
    try:
        yield changes
    finally:
        _recorders.remove(changes)


@cache  # a hook cannot be removed
def _install() -> None:
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _recorders and (change := _change(event, args)):
        for changes in _recorders:
            changes.append(change)


def _change(event: str, args: tuple[Any, ...]) -> str:
    """Returns a description of an audit event, or an empty string if nothing is changed."""
    if event == "open":
        path, _, flags = args
        changes = isinstance(flags, int) and flags & _WRITES and not isinstance(path, int)
        if changes and not _is_ignored(path):
            return f"open {os.fsdecode(path)}"
        return ""
    if event in _FILES:
        if _is_ignored(args[0]):
            return ""
        return f"{event} {args[0]!r}"
    if event in _SIGNALS:
        if args[1]:
            return f"{event} {args[:2]!r}"
        return ""
    if event == "http.client.send":
        head = b""
        if isinstance(args[1], (bytes, bytearray)):
            head = bytes(args[1][:200])
        line = head.partition(b"\r\n")[0]
        if line.endswith(b" HTTP/1.1") and not line.startswith(_SAFE_METHODS):
            return line.decode("latin-1")
        return ""
    return ""


def _is_ignored(path: object) -> bool:
    text = ""
    if isinstance(path, (str, bytes, os.PathLike)):
        text = os.fsdecode(path)
    return any(part in text for part in _IGNORED)
