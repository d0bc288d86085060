"""Descriptors: those above 1,023, and those of files of which one cannot be opened."""

from __future__ import annotations

import ast
import os
import pty
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchx.jobs.events import Clock, EventLog
from torchx.machine.polling import readable
from torchx.schedulers.docker.engine import http
from torchx.schedulers.kubernetes import exec as kubernetes_exec
from torchx.supervisor import output
from torchx.supervisor.output import AttemptOutput, Index
from torchx_cli.top.keys import Keyboard

ROOT = Path(__file__).parents[2]
MANY = 1100


@pytest.fixture
def many_open() -> Iterator[None]:
    """All descriptors up to 1,023 are in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < MANY + 100:
        pytest.skip(f"needs a hard limit of {MANY + 100} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY + 100), hard))
    held: list[int] = []
    try:
        while not held or held[-1] < MANY:
            held.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_data_and_ends_are_noticed(many_open: None) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert ours.fileno() > 1023
        assert readable([ours], 0.0) == []
        theirs.send(b"x")
        assert readable([ours, theirs.fileno()]) == [ours.fileno()]
        connection = SimpleNamespace(sock=ours)
        assert kubernetes_exec.readable(connection, 10.0)
        connection.getresponse = lambda: iter([b"line"])
        assert next(http.Lines(cast(Any, connection), lambda _: None)) == b"line"
        ours.recv(1)
        theirs.close()
        assert readable([ours], 10.0) == [ours.fileno()]


def test_keys_are_read(many_open: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, terminal = pty.openpty()
    try:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: terminal))
        with Keyboard() as keys:
            os.write(ours, b"l\x1b[F")
            assert keys.read(60) == "l"
            assert keys.read(60) == "end"
            keys.wake()
            assert keys.read(60) == ""
    finally:
        os.close(ours)
        os.close(terminal)


def test_no_file_uses_select() -> None:
    """It rejects descriptors above 1,023; :func:`torchx.machine.polling.readable` does not."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    uses = []
    for name in listed.stdout.split():
        if name.partition("/")[0] not in ("torchx", "torchx_cli", "schedulers", "components"):
            continue
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "select.select":
                uses.append(f"{name}:{node.lineno}")
    assert uses == []


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("failing", [*output.NAMES.values(), output.COMBINED])
def test_logs_of_an_attempt_are_opened_together(tmp_path: Path, failing: str) -> None:
    index = Index(tmp_path / "index")
    before = open_files()
    (tmp_path / "w" / failing).mkdir(parents=True)
    with pytest.raises(OSError, match=failing):
        AttemptOutput(tmp_path / "w", 0, 1, index, Clock())
    assert open_files() == before
    index.close()


def test_events_that_cannot_be_continued_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed writer left half a line, and the disk is full."""
    path = tmp_path / "events"
    path.write_text('{"t":')

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    before = open_files()
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            EventLog(path, Clock())
    assert open_files() == before
