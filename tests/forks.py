"""Command lines in processes that are forked from one that has loaded torchx: most of their time is imports.

Run as a program, this file is that process. It has no threads, and runs nothing but imports; each request
brings the arguments, the environment, the folder and the three streams of a command.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import pkgutil
import runpy
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
LARGEST = 100_000
"""Bytes of a request."""

READ_ONCE = ("PYTHON", "LC_", "LANG", "TYPER_")
"""Starts of the names of variables that Python, or a module, reads only when it is loaded."""

WITHOUT = ("torchx.distributed", "torchx.notebook", "torchx.testing")
"""Modules that no command loads."""

USED = "ast email.parser fsspec http.client kubernetes.config rich.console rich.table ssl uuid yaml"
"""Modules of others that commands load on demand."""

STARTING = threading.Lock()


class Fork:
    """A command that runs.

    Args:
        reply: receives its pid, and at its end its exit code.
    """

    def __init__(self, reply: socket.socket) -> None:
        self._reply = reply
        self.pid = int(reply.recv(64))

    def wait(self, timeout: float) -> int:
        """Waits for its end and returns its exit code, negative for a signal."""
        self._reply.settimeout(timeout)
        with self._reply:
            return int(self._reply.recv(64))


def fork(
    words: Sequence[str],
    streams: Sequence[int],
    env: Mapping[str, str],
    cwd: Path | None = None,
    *,
    session: bool = False,
) -> Fork | None:
    """Starts a command line; returns None if only a new process can run it.

    Args:
        words: its arguments.
        streams: its stdin, stdout and stderr.
        env: its environment.
        cwd: its folder.
        session: whether it gets a session of its own.
    """
    request = json.dumps([list(words), dict(env), str(cwd or Path.cwd()), _umask(), session]).encode()
    if len(request) > LARGEST or _read_once(env) != USUAL:
        return None
    reply, remote = socket.socketpair()
    with remote:
        with STARTING:
            server = _server(os.getpid())
        socket.send_fds(server, [request], [*streams, remote.fileno()])
    return Fork(reply)


def _umask() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("Umask:")[2].split()[0], 8)


def _read_once(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_ONCE)}


USUAL = _read_once({**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"})


@functools.cache
def _server(owner: int) -> socket.socket:
    """Starts the process that is forked."""
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        process = subprocess.Popen(
            [sys.executable, __file__, str(other.fileno())],
            pass_fds=[other.fileno()],
            env={"PATH": os.environ["PATH"], **USUAL},
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        if os.getpid() == owner:
            mine.close()
            process.kill()
            process.wait()

    atexit.register(end)
    return mine


# --- in the process that is forked ---------------------------------------------------------------


def serve(requests: socket.socket) -> None:
    """Forks a process for each request, until the other side is closed."""
    _load()
    gc.collect()
    gc.freeze()
    running: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                pid, reply = running.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                with reply, contextlib.suppress(BrokenPipeError):
                    reply.send(str(os.waitstatus_to_exitcode(status)).encode())
                continue
            request, fds, _, _ = socket.recv_fds(requests, 2 * LARGEST, 4)
            if not request:
                return
            pid = os.fork()
            if not pid:
                _command(request, fds)
            for fd in fds[:3]:
                os.close(fd)
            reply = socket.socket(fileno=fds[3])
            reply.send(str(pid).encode().ljust(64))
            watched = os.pidfd_open(pid)
            running[watched] = (pid, reply)
            poll.register(watched, select.POLLIN)


def _load() -> None:
    import torchx
    import torchx_cli

    for package in (torchx, torchx_cli):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and not module.name.startswith(WITHOUT):
                __import__(module.name)
    for name in USED.split():
        with contextlib.suppress(Exception):  # a command that needs it reports it
            __import__(name)


def _command(request: bytes, fds: Sequence[int]) -> None:
    """Becomes a command, with the state that a new process would have, except for the loaded modules."""
    words, env, cwd, umask, session = json.loads(request)
    if session:
        os.setsid()
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.closerange(3, 1 << 20)
    unbuffered = sys.stderr.write_through  # type: ignore[union-attr]  # by PYTHONUNBUFFERED
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old, write = getattr(sys, name), number > 0
        stream = io.TextIOWrapper(
            os.fdopen(number, "wb" if write else "rb", 0 if unbuffered and write else -1),
            encoding=old.encoding,
            errors=old.errors,
            newline="\n",
            line_buffering=not unbuffered and (number == 2 or os.isatty(number)),
            write_through=unbuffered,
        )
        stream.mode = old.mode  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    os.umask(umask)
    time.tzset()
    sys.path[0] = cwd
    sys.argv[1:] = words
    runpy.run_module("torchx_cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as served:
        serve(served)
