"""Connections to an engine over ssh, as the docker command makes them.

Each connection is an ``ssh`` process that runs ``docker system dial-stdio`` on the other machine. Its start
takes a part of a second, and an ssh server accepts few at the same time. So short requests share a few
connections, which are kept for some seconds. The ``docker`` package cannot poll connections over ssh, and is
not available to a supervisor.
"""

from __future__ import annotations

import http.client
import os
import shlex
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO
from urllib.parse import unquote, urlsplit

from torchx.schedulers.docker.engine.http import closed_on_error

SETTINGS = ("-T", "-oBatchMode=yes", "-oConnectTimeout=20", "-oClearAllForwardings=yes", "-oLogLevel=ERROR")
AT_A_TIME = 3
"""Maximum short requests, and streams being opened, at the same time; new connections are slow."""
KEPT_FOR = 10.0
"""Seconds for which an idle connection is used again."""
LONGEST = 2000
"""Maximum bytes of an error message."""


def dial_command(text: str) -> tuple[str, ...] | None:
    """Returns the command that connects its input and output to an engine, or None for an invalid address.

    >>> dial_command("ssh://me@box:2222")[-6:]
    ('me', '-p', '2222', '--', 'box', 'docker system dial-stdio')
    >>> dial_command("ssh://box/run/user/1000/docker.sock")[-1]
    'docker --host unix:///run/user/1000/docker.sock system dial-stdio'
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or host.startswith("-") or parts.password is not None or parts.query or parts.fragment:
        return None
    begin = parts.netloc.lower().rindex(host)
    host = parts.netloc[begin : begin + len(host)]  # with capital letters, as in the configuration of ssh
    user = []
    if parts.username:
        user = ["-l", unquote(parts.username)]
    at = ""
    if parts.path.strip("/"):
        at = f" --host {shlex.quote('unix://' + parts.path)}"
    dial = f"docker{at} system dial-stdio"
    return ("ssh", *SETTINGS, *user, *(["-p", str(port)] if port else []), "--", host, dial)


class Tunnels:
    """The connections of one client.

    Args:
        command: the command of a connection, from :func:`dial_command`.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._kept: list[tuple[float, http.client.HTTPConnection]] = []
        weakref.finalize(self, _close, self._errors, self._kept)
        self.shown = shlex.join(["ssh", *command[1 + len(SETTINGS) : -3], command[-2], "docker", "version"])
        self.slots = threading.BoundedSemaphore(AT_A_TIME)

    def open(self, patience: float | None) -> socket.socket:
        """Returns a new connection.

        Raises:
            OSError: ssh cannot be started.
        """
        ours, theirs = socket.socketpair()
        with closed_on_error(ours), theirs:
            # in a session of its own, so that Ctrl-C does not end it before the job is cancelled
            process = subprocess.Popen(
                self._command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )
        threading.Thread(target=process.wait, daemon=True).start()  # it ends when our end is closed
        ours.settimeout(patience)
        return ours

    @contextmanager
    def lent(self, patience: float | None) -> Iterator[http.client.HTTPConnection]:
        """Lends a connection for one request; it is kept if the whole response was read."""
        with self.slots:
            connection = self._take(patience)
            with closed_on_error(connection):
                yield connection
            if connection.sock is not None:  # unless the engine has closed it
                self._kept.append((time.monotonic(), connection))

    def _take(self, patience: float | None) -> http.client.HTTPConnection:
        while self._kept:
            try:
                since, connection = self._kept.pop()
            except IndexError:
                break  # another thread took it
            if time.monotonic() - since < KEPT_FOR:
                connection.sock.settimeout(patience)
                return connection
            connection.close()
        connection = http.client.HTTPConnection("docker")
        connection.sock = self.open(patience)
        return connection

    def reason(self) -> str:
        """Returns the last line that ssh, or docker on the other machine, has written on standard error."""
        # the processes share this file's position, so it is not moved
        size = os.fstat(self._errors.fileno()).st_size
        data = os.pread(self._errors.fileno(), LONGEST, max(0, size - LONGEST))
        lines = data.decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _close(errors: IO[bytes], kept: list[tuple[float, http.client.HTTPConnection]]) -> None:
    errors.close()
    for _, connection in kept:
        connection.close()
