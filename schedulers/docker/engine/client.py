"""A client for the Docker engine's HTTP API that needs only the standard library.

The ``docker`` package takes longer to import than most commands take to run, returns log streams in small
pieces, and is not available to a supervisor, which runs without installed packages.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.printable import first_line
from torchx.schedulers.docker.engine.address import (
    NO_SOCKET,
    START,
    WITHOUT_DOCKER,
    Address,
    NoEngineError,
    encrypted,
    find_address,
    no_engine,
)
from torchx.schedulers.docker.engine.http import (
    Lines,
    closed_on_error,
    keep_alive,
    plain_request,
    read_all,
    reason,
    status_of,
)
from torchx.schedulers.shared.clock import EngineClock
from torchx.scheduling.pace import Answers

with lazy_imports:
    from torchx.schedulers.docker.engine import duplex, ssh

if TYPE_CHECKING:
    from torchx.json_limits import Data
    from torchx.schedulers.docker.engine.ssh import Tunnels

PATIENCE = 60.0
"""Default timeout of a request in seconds."""
LOADED_PATIENCE = 900.0
"""Timeout of the requests of a submission in seconds: an engine may start other containers first."""
FIRST_PATIENCE = 10.0
"""Timeout of the first request, a ping, in seconds; longer over ssh, and for a submission."""
GET_TRIES = 10


class EngineError(StateError):
    """The engine has rejected a request.

    Args:
        status: the HTTP status.
        message: the engine's message.
    """

    code = "engine_error"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """A Docker engine.

    Args:
        address: its address (default: found as the docker command does).

    Attributes:
        patience: the default timeout of a request in seconds.
        clock: its clock.
    """

    def __init__(self, address: Address | None = None) -> None:
        self.address = address or find_address()
        self.patience = PATIENCE
        self.clock = EngineClock()
        self._version = ""
        self._is_podman = False
        self._lock = Lock()
        self._answers: Answers[list[Data]] | None = None

    @property
    def version(self) -> str:
        """The API version to use with the engine.

        Raises:
            NoEngineError: the engine does not answer.
            StateError: the server is not a Docker engine, or too old.
        """
        if not self._version:
            patience = FIRST_PATIENCE
            if self.address.command or self.patience > PATIENCE:
                patience = PATIENCE
            status, headers, _ = self._request("GET", "/_ping", None, patience)
            offered = parse_version(headers.get("Api-Version"))
            if status >= 500:
                raise no_engine(self.address, f"it answers with status {status}", "see: docker info")
            if status != 200 or not offered:
                raise StateError(f"the server at {self.address} is not a Docker engine")
            self._is_podman = "Libpod-Api-Version" in headers
            self._version = choose_version(self.address, offered, self._oldest_version)
        return self._version

    def _oldest_version(self) -> tuple[int, ...]:
        status, _, data = self._request("GET", "/version", None, PATIENCE)
        if status != 200:
            raise EngineError(status, reason(data))
        return parse_version(json.loads(data).get("MinAPIVersion"))

    @property
    def is_podman(self) -> bool:
        """Whether the engine is Podman, whose API differs in a few places."""
        return bool(self.version) and self._is_podman

    @cached_property
    def lacks_control_groups(self) -> bool:
        """Whether its containers have no control groups of their own, as without root on version 1."""
        info = self.call("GET", "/info")
        rootless = any("rootless" in str(option) for option in info.get("SecurityOptions") or ())
        old = str(info.get("CgroupVersion") or "1") == "1"
        return info.get("CgroupDriver") == "none" or (rootless and old)

    def answers(self, query: Callable[[Collection[str]], Mapping[str, list[Data]]]) -> Answers[list[Data]]:
        """Returns the listings of containers that threads share.

        Args:
            query: lists them; that of the first call is used.
        """
        with self._lock:
            if self._answers is None:
                self._answers = Answers(query, complete=True, nearby=True)
            return self._answers

    def call(
        self,
        method: str,
        path: str,
        query: Data | None = None,
        body: Any = None,
        patience: float | None = None,
    ) -> Any:
        """Sends a request and returns the decoded response.

        Args:
            method: GET, HEAD, POST, PUT or DELETE.
            path: the path without the version.
            query: the query; mappings and lists are sent as JSON.
            body: the body, sent as JSON; bytes are a tar archive.
            patience: the timeout in seconds (default: that of the engine).

        Raises:
            EngineError: the engine rejects the request.
            NoEngineError: the engine does not answer.
        """
        url = self._url(path, query)
        if patience is None:
            patience = self.patience
        for _ in range(GET_TRIES if method == "GET" else 1):
            status, headers, data = self._request(method, url, body, patience)
            self.clock.read(headers.get("Date", ""))
            # Podman fails a listing when a container ends or is removed while it lists
            ended = status >= 500 and "no such process" in reason(data)
            gone = status >= 400 and path == "/containers/json" and "no such container" in reason(data)
            if not (ended or gone):
                break
        if status >= 400:
            # Podman returns 500 if the container is removed during the request
            absent = status >= 500 and "no such container" in reason(data)
            raise EngineError(404 if absent else status, reason(data))
        try:
            if data:
                return json.loads(data)
            return None
        except (ValueError, RecursionError):
            return data.decode("utf-8", "replace")

    def stream(
        self,
        path: str,
        query: Data | None = None,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
    ) -> tuple[socket.socket, bytes]:
        """Returns a connection that streams the response, and the bytes received so far.

        Args:
            path: the path without the version.
            query: the query; mappings and lists are sent as JSON.
            method: GET or POST.
            headers: additional headers.
            patience: maximum seconds without data; None for no limit.

        Raises:
            EngineError: the engine rejects the request.
            NoEngineError: the engine does not answer.
        """
        request = plain_request(method, self._url(path, query), headers or {})
        try:
            with self._tunnels.slots if self._tunnels is not None else nullcontext():
                connection, head, rest = self._answered(request)
            with closed_on_error(connection):
                status = status_of(head)
                if status >= 400:
                    while more := connection.recv(1 << 16):
                        rest += more
                    raise EngineError(status, reason(rest))
                connection.settimeout(patience)
        except OSError as error:
            raise self.unreachable(error) from error
        return connection, rest

    def _answered(self, request: bytes) -> tuple[socket.socket, bytes, bytes]:
        """Sends a request; returns its connection, the head of the response, and the data after it."""
        connection = self._sent(request)
        with closed_on_error(connection):
            data = b""
            while b"\r\n\r\n" not in data:
                more = connection.recv(1 << 16)
                if not more:
                    raise ConnectionResetError("connection closed")
                data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        return connection, head, rest

    def send(self, path: str, query: Data) -> socket.socket:
        """Sends a GET request; returns the connection on which the response arrives.

        Raises:
            NoEngineError: the engine does not answer.
        """
        request = plain_request("GET", self._url(path, query), {})
        try:
            with self._tunnels.slots if self._tunnels is not None else nullcontext():
                return self._sent(request)
        except OSError as error:
            raise self.unreachable(error) from error

    def _sent(self, request: bytes) -> socket.socket:
        connection = self._connect(PATIENCE)
        with closed_on_error(connection):
            connection.sendall(request)
        return connection

    def exchange(self, path: str, body: Any) -> tuple[duplex.Duplex, bytes]:
        """Returns a two-way connection, and the bytes received so far.

        Args:
            path: the path without the version.
            body: the body to post, sent as JSON.

        Raises:
            EngineError: the engine rejects the request.
            NoEngineError: the engine does not answer.
        """
        sent = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
        try:
            connection = duplex.Duplex(self._plain(PATIENCE), self.address)
            with closed_on_error(connection):
                connection.send(plain_request("POST", self._url(path, None), headers) + sent)
                head, rest = connection.head(PATIENCE)
                status = status_of(head)
                if status >= 400:
                    raise EngineError(status, reason(rest + connection.rest(PATIENCE)))
        except OSError as error:
            raise self.unreachable(error) from error
        return connection, rest

    @contextmanager
    def upload(
        self, path: str, query: Data, send: Callable[[Callable[[bytes], None]], None], method: str = "POST"
    ) -> Iterator[Iterable[bytes]]:
        """Sends a tar archive while it is created, and streams the lines of the response.

        The iteration of the lines can be continued after a KeyboardInterrupt, unless the context was left.

        Args:
            path: the path without the version.
            query: the query; mappings and lists are sent as JSON.
            send: writes the archive with the function passed to it.
            method: POST or PUT.

        Raises:
            EngineError: the engine rejects the request; raised by the iteration.
            NoEngineError: the engine does not answer.
        """
        try:
            with closing(http.client.HTTPConnection("docker")) as connection:
                connection.sock = self._connect(PATIENCE)
                connection.putrequest(method, self._url(path, query))
                connection.putheader("Content-Type", "application/x-tar")
                connection.putheader("Transfer-Encoding", "chunked")
                connection.endheaders()
                with suppress(BrokenPipeError, ConnectionResetError):  # rejected: the response has the reason
                    send(lambda piece: connection.send(b"%x\r\n%b\r\n" % (len(piece), piece)))
                    connection.send(b"0\r\n\r\n")
                connection.sock.settimeout(None)  # a step may take long
                yield Lines(connection, _raise_rejection)
        except (OSError, http.client.HTTPException) as error:
            raise self.unreachable(error) from error

    def _url(self, path: str, query: Data | None) -> str:
        encoded = {
            key: json.dumps(value) if isinstance(value, (dict, list)) else str(value)
            for key, value in (query or {}).items()
        }
        return f"/v{self.version}{path}{'?' + urlencode(encoded) if encoded else ''}"

    def _request(
        self, method: str, url: str, body: Any, patience: float | None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        data, headers = None, {}
        if isinstance(body, bytes):
            data, headers = body, {"Content-Type": "application/x-tar"}
        elif body is not None:
            data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        try:
            with self._lent(patience) as connection:
                connection.request(method, url, data, headers)
                response = connection.getresponse()
                return response.status, response.headers, read_all(response, patience)
        except (OSError, http.client.HTTPException) as error:
            raise self.unreachable(error) from error

    @contextmanager
    def _lent(self, patience: float | None) -> Iterator[http.client.HTTPConnection]:
        """Yields a connection for one request."""
        if self._tunnels is not None:
            with self._tunnels.lent(patience) as kept:
                yield kept
            return
        with closing(http.client.HTTPConnection("docker")) as connection:
            connection.sock = self._connect(patience)
            yield connection

    @cached_property
    def _tunnels(self) -> ssh.Tunnels | None:
        """The ssh connections, if the engine is reached over ssh."""
        if not self.address.command:
            return None
        return ssh.Tunnels(self.address.command)

    def _connect(self, patience: float | None) -> socket.socket:
        plain = self._plain(patience)
        if self.address.certificates is None:
            return plain
        return encrypted(plain, self.address)

    def _plain(self, patience: float | None) -> socket.socket:
        where = self.address
        if self._tunnels is not None:
            return self._tunnels.open(patience)
        if not where.path:
            plain = socket.create_connection((where.host, where.port), min(patience or PATIENCE, 10.0))
            keep_alive(plain)
            plain.settimeout(patience)
            return plain
        connection = socket.socket(socket.AF_UNIX)
        with closed_on_error(connection):
            connection.settimeout(patience)
            connection.connect(where.path)
        return connection

    def unreachable(self, error: Exception) -> NoEngineError:
        """Converts a connection error to a NoEngineError with the reason and a hint."""
        return explain(self.address, self._tunnels, error)


def _raise_rejection(response: http.client.HTTPResponse) -> None:
    if response.status >= 400:
        raise EngineError(response.status, reason(response.read()))


def explain(address: Address, tunnels: Tunnels | None, error: Exception) -> NoEngineError:
    """Converts a connection error to a NoEngineError with the reason and a hint.

    Args:
        address: the address of the engine.
        tunnels: the ssh connections, if the engine is reached over ssh.
        error: the error.
    """
    if tunnels is not None:
        if isinstance(error, FileNotFoundError):
            why, hint = "no program `ssh`", "install an ssh client"
        else:
            why = tunnels.reason() or first_line(error)
            hint = f"this has to work without a password: {tunnels.shown}"
    elif isinstance(error, socket.gaierror):
        why, hint = "no such host", "check the address"
    elif isinstance(error, PermissionError):
        why, hint = "permission denied", "add yourself to the group `docker`, or set DOCKER_HOST"
    elif isinstance(error, FileNotFoundError):
        why, hint = NO_SOCKET, START
    elif isinstance(error, TimeoutError):
        why, hint = "timed out", "check the engine: docker info"
    elif isinstance(error, ConnectionRefusedError):
        why, hint = "connection refused", START
    elif type(error).__name__ == "SSLCertVerificationError":  # by name, to not import ssl
        why = f"its certificate is not trusted: {getattr(error, 'verify_message', error)}"
        context = address.origin.startswith("context")
        any_certificate = "DOCKER_TLS_VERIFY=0"
        if context:
            any_certificate = "SkipTLSVerify in the context"
        hint = (
            f"save its CA certificate as {address.certificates}/ca.pem, "
            f"or accept any certificate: {any_certificate}"
        )
    else:
        why, hint = first_line(error), START
    return no_engine(address, why, hint)


OLDEST = (1, 40)
"""The oldest supported version: Docker 19.03."""
NEWEST = (1, 47)
"""The newest version used, unless an engine requires a newer one."""
SETTING = "DOCKER_API_VERSION"

_Version = tuple[int, ...]


def parse_version(text: object) -> _Version:
    """Returns a version as numbers; empty if it is invalid.

    >>> parse_version("1.41"), parse_version("v1"), parse_version(None)
    ((1, 41), (), ())
    """
    match = None
    if isinstance(text, str):
        match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", text)
    if match:
        return (int(match[1]), int(match[2]))
    return ()


def choose_version(address: Address, offered: _Version, minimum: Callable[[], _Version]) -> str:
    """Returns the version to use with an engine.

    Args:
        address: its address.
        offered: the newest version that it supports.
        minimum: returns the oldest version that it supports; called for engines newer than this client.

    Raises:
        StateError: the engine is too old.
        UsageError: DOCKER_API_VERSION is invalid, or not supported.
    """
    if offered < OLDEST:
        raise StateError(
            f"the Docker engine at {address} is too old: its API version is {_text(offered)}, "
            f"{_text(OLDEST)} is needed",
            hint=f"upgrade it to Docker 19.03 or newer; {WITHOUT_DOCKER}",
        )
    setting = os.environ.get(SETTING, "")
    if setting:
        wanted = parse_version(setting.removeprefix("v"))
        if not OLDEST <= wanted <= offered:
            raise UsageError(
                f"{SETTING} is {setting}, expected a version from {_text(OLDEST)} to {_text(offered)}, "
                f"the newest of the engine at {address}",
                hint=f"use the newest version that both support: unset {SETTING}",
            )
        return _text(wanted)
    return _text(offered if offered <= NEWEST else max(NEWEST, minimum()))


def _text(version: _Version) -> str:
    return ".".join(map(str, version))
