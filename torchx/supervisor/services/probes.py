"""Probes of services: single checks that never block; each is polled until it has an answer.

Slurm's nodes run a copy of this file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shlex
import signal
import socket
import time
from collections.abc import Callable
from typing import Protocol

from torchx.scheduling.patterns import SearchTooLongError, any_matches
from torchx.services.probe import CMD, HTTP, TCP, Probe

LONGEST_CHECK = 5.0
"""Seconds in which a port must answer, or a program must end, in one check."""

LONGEST_ANSWER = 4096
"""Bytes that are read of an answer, and kept of an unfinished line."""

LONGEST_PAUSE = 1.0
"""Maximum seconds between two checks of a replica; the first pauses are shorter."""

HERE = "127.0.0.1"
CLOSED = "the connection was closed without an answer"


class Check(Protocol):
    """One check of one replica.

    Attributes:
        interval: maximum seconds between two polls; output and the end of a program wake the supervisor.
    """

    interval: float

    def poll(self) -> str | None:
        """Returns None until it has ended, then an empty text if the replica is ready, else the answer."""

    def close(self) -> None:
        """Releases its resources; a check that has not ended is given up."""


class PortCheck:
    """Connects to a port, and sends a request if there is a path.

    Args:
        port: the port.
        path: the path of the request; empty for none.
        host: the address or the name of the machine.
        stays: seconds for which the connection must stay open without a request; a proxy accepts
            connections for a server that does not run, and then closes them.
    """

    interval = 0.05

    def __init__(self, port: int, path: str = "", host: str = HERE, stays: float = 0.0) -> None:
        self._until = time.monotonic() + LONGEST_CHECK
        if path:
            self._unsent = f"GET {path} HTTP/1.0\r\nHost: localhost:{port}\r\n\r\n".encode()
        else:
            self._unsent = b""
        self._answer = b""
        self._connected = False
        self._path, self._stays, self._open_until = path, stays, 0.0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._error = self._socket.connect_ex((host, port))

    def poll(self) -> str | None:
        """Returns None until it has ended, then an empty text if the replica is ready, else the answer."""
        try:
            answer = self._step()
        except BlockingIOError:
            answer = None
        except OSError as error:
            answer = error.strerror or str(error)
        late = answer is None and time.monotonic() > self._until
        if late:
            return f"no answer in {LONGEST_CHECK:g} s"
        return answer

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def _step(self) -> str | None:
        if not self._connected:
            if self._error not in (0, errno.EINPROGRESS):
                return os.strerror(self._error)
            poll = select.poll()
            poll.register(self._socket, select.POLLOUT)
            if not poll.poll(0):
                return None
            if error := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return os.strerror(error)
            # without a listener, the kernel may connect a socket to itself
            if self._socket.getsockname() == self._socket.getpeername():
                return os.strerror(errno.ECONNREFUSED)
            self._connected = True
            self._open_until = time.monotonic() + self._stays
        if not self._path:
            return self._after_connecting()
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        data = self._socket.recv(LONGEST_ANSWER)
        self._answer += data
        if data and b"\n" not in self._answer and len(self._answer) < LONGEST_ANSWER:
            return None
        return status_of(self._answer)

    def _after_connecting(self) -> str | None:
        if not self._stays:
            return ""
        try:
            if self._socket.recv(1, socket.MSG_PEEK):
                return ""
            return CLOSED
        except BlockingIOError:
            if time.monotonic() >= self._open_until:
                return ""
            return None


def status_of(answer: bytes) -> str:
    """Returns an empty text for an HTTP status from 200 to 399, else the answer for messages.

    >>> status_of(b"HTTP/1.0 200 OK"), status_of(b"HTTP/1.1 503 Busy" + bytes([13, 10])), status_of(b"hi")
    ('', 'HTTP 503', 'not an HTTP answer')
    """
    match = re.match(rb"HTTP/\d\.\d (\d{3})\b", answer)
    if match is None:
        if answer:
            return "not an HTTP answer"
        return CLOSED
    if 200 <= int(match[1]) < 400:
        return ""
    return f"HTTP {int(match[1])}"


class Started(Protocol):
    """A process in a session of its own."""

    @property
    def pid(self) -> int:
        """Its pid."""


class CommandCheck:
    """Runs a program in the environment of a replica, without a shell.

    Args:
        command: its command line.
        spawn: starts a program in a session of its own, with the environment of the replica.
    """

    interval = 1.0

    def __init__(self, command: str, spawn: Callable[[list[str]], Started]) -> None:
        self._until = time.monotonic() + LONGEST_CHECK
        self._killed = False
        self._answer: str | None = None
        self._process: Started | None = None
        try:
            self._process = spawn(shlex.split(command))
        except (OSError, ValueError) as error:
            self._answer = getattr(error, "strerror", None) or str(error)

    @property
    def pid(self) -> int | None:
        """The process; None if it could not be started."""
        if self._process is None:
            return None
        return self._process.pid

    def reaped(self, status: int) -> None:
        """Handles the end of the process."""
        if self._killed:
            self._answer = f"it did not end in {LONGEST_CHECK:g} s"
        elif os.WIFSIGNALED(status):
            self._answer = f"signal {os.WTERMSIG(status)}"
        else:
            code = os.WEXITSTATUS(status)
            self._answer = f"exit {code}" if code else ""

    def poll(self) -> str | None:
        """Returns None until it has ended, then an empty text if the replica is ready, else the answer."""
        if self._answer is None and not self._killed and time.monotonic() > self._until:
            self.close()
        return self._answer

    def close(self) -> None:
        """Kills the process and those that it has started, if it has not ended."""
        if self._answer is None and self._process is not None and not self._killed:
            self._killed = True
            with contextlib.suppress(OSError):  # not reaped yet: its pid is its own
                os.killpg(self._process.pid, signal.SIGKILL)


class LineCheck:
    """Searches the output of a replica for a pattern.

    Args:
        pattern: the pattern.

    Attributes:
        answer: the reason why the search has ended without a match; empty while it continues.
    """

    interval = 60.0

    def __init__(self, pattern: str) -> None:
        self._search = re.compile(pattern).search
        self._rest: dict[int, bytes] = {}
        self._found = False
        self.answer = ""

    def feed(self, stream: int, data: bytes) -> None:
        """Handles output of one stream."""
        if self._found or self.answer:
            return
        *lines, rest = (self._rest.get(stream, b"") + data).split(b"\n")
        self._rest[stream] = rest[-LONGEST_ANSWER:]
        # also the unfinished line: a prompt may have no end
        shown = [line[-LONGEST_ANSWER:] for line in (*lines, self._rest[stream]) if line]
        texts = [line.decode("utf-8", "replace").rstrip("\r") for line in shown]
        try:
            self._found = any_matches(self._search, filter(None, texts))
        except SearchTooLongError:
            self.answer = "the search for the pattern takes too long"

    def poll(self) -> str | None:
        """Returns None until a line matches, then an empty text."""
        if self._found:
            return ""
        return None

    def close(self) -> None:
        """Does nothing."""


def start_check(probe: Probe, port: int, spawn: Callable[[list[str]], Started]) -> Check | None:
    """Starts a check; returns None for a probe that needs none.

    Args:
        probe: the probe; not one of lines.
        port: the number of its port, 0 without one.
        spawn: starts a program in a session of its own, with the environment of the replica.

    Raises:
        OSError: this process has too many open files.
    """
    if probe.kind == HTTP:
        return PortCheck(port, probe.text)
    if probe.kind == TCP:
        return PortCheck(port)
    if probe.kind == CMD:
        return CommandCheck(probe.text, spawn)
    return None


def port_of(probe: Probe, number: bytes) -> int:
    """Returns the number of the port of a probe, 0 if it is unknown.

    Args:
        probe: the probe.
        number: the value of the variable with the number, if the probe has the name of a port.
    """
    if probe.port.isdigit():
        text = probe.port.encode()
    else:
        text = number
    if text.isdigit() and int(text) < 65536:
        return int(text)
    return 0
