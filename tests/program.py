"""Running the command line in tests: as a process of its own, with or without a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import outputs
import pytest
from forks import fork

from torchx.machine import processes

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "torchx_cli"]


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command, so that it runs this checkout in any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **(env or {})}


def torchx(
    *words: str, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs one command line to its end."""
    done = None if stdin else _forked(words, environment(env), cwd)
    done = done or subprocess.run(
        [*COMMAND, *words],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(env),
        cwd=cwd,
        timeout=180,
    )
    outputs.check(words, done.stdout)
    return done


def _forked(
    words: Sequence[str], env: Mapping[str, str], cwd: Path | None
) -> subprocess.CompletedProcess[str] | None:
    """Does the same without stdin, faster; returns None if that cannot be."""
    pipes = [os.pipe() for _ in range(3)]
    (stdin, empty), (out, their_out), (err, their_err) = pipes
    try:
        os.close(empty)
        process = fork(words, (stdin, their_out, their_err), env, cwd)
    finally:
        for fd in (stdin, their_out, their_err):
            os.close(fd)
    output = {out: b"", err: b""}
    end = time.monotonic() + 180
    with selectors.DefaultSelector() as open_pipes:
        for fd in output:
            open_pipes.register(fd, selectors.EVENT_READ)
        while process is not None and open_pipes.get_map():
            assert time.monotonic() < end, f"{words} does not end: {output}"
            for key, _ in open_pipes.select(end - time.monotonic()):
                data = os.read(key.fd, 1 << 16)
                output[key.fd] += data
                if not data:
                    open_pipes.unregister(key.fd)
    for fd in output:
        os.close(fd)
    if process is None:
        return None
    code = process.wait(end - time.monotonic())
    texts = [re.sub("\r\n?", "\n", data.decode()) for data in output.values()]  # as subprocess does
    return subprocess.CompletedProcess([*COMMAND, *words], code, *texts)


def start(*words: str, env: Mapping[str, str] | None = None, stdin: bool = False) -> subprocess.Popen[str]:
    """Starts a command line in a session of its own, its stdout and stderr, and perhaps stdin, as pipes."""
    return subprocess.Popen(
        [*COMMAND, *words],
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(env),
        start_new_session=True,
    )


def answer(*words: str) -> Any:
    """Runs a command line that prints JSON, and returns what it printed."""
    done = torchx(*words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def on_terminal(*words: str, columns: int = 80, env: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Runs a command line on a terminal; returns what it showed and its exit code."""
    import fcntl
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environ = environment({"TERM": "xterm", "COLUMNS": "0", **(env or {})})
    process = fork(words, [slave] * 3, environ, session=True) or subprocess.Popen(
        [*COMMAND, *words], stdin=slave, stdout=slave, stderr=slave, env=environ, start_new_session=True
    )
    os.close(slave)
    shown = b""
    while True:
        ready, _, _ = select.select([master], [], [], 60)
        assert ready, "the command neither prints nor ends"
        try:
            data = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(master)
    return shown.decode().replace("\r\n", "\n"), process.wait(60)


def pids_of(module: str, folder: Path) -> list[int]:
    """Returns the pids of the processes of a module for a folder, the oldest first."""
    found = []
    for entry in processes.table():
        try:
            words = processes.read_proc(f"/proc/{entry.process.pid}/cmdline").split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder) in words and any(module.encode() in word for word in words):
            found.append((entry.process.start, entry.process.pid))
    return [pid for _, pid in sorted(found)]


def end_background(folder: Path) -> None:
    """Ends the processes that commands have left in the background, of all state homes in a folder."""
    for entry in processes.table():
        with suppress(OSError):
            words = processes.read_proc(f"/proc/{entry.process.pid}/cmdline").split(b"\0")
            if b"-c" in words and any(word.startswith(os.fsencode(folder)) for word in words):
                os.kill(entry.process.pid, signal.SIGKILL)


@contextmanager
def component_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, component: str) -> Iterator[None]:
    """Works in a folder with the component file `c.py`; deletes all applications at the end."""
    monkeypatch.chdir(folder)
    Path("c.py").write_text(component, encoding="utf-8")
    yield
    delete_all()


def delete_all() -> None:
    """Deletes all local applications, running ones too."""
    for app in answer("list", "-s", "local_cwd", "-o", "json"):
        torchx("delete", "--force", app["handle"])
