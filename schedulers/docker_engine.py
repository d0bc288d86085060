"""Calls to a Docker engine and streams from it, over HTTP; needs nothing that is not in Python itself.

The ``docker`` package takes longer to load than most commands take in all, hands out log streams piece by
piece, and cannot be loaded by a supervisor, which sees no installed packages.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlencode

from torchx.errors import StateError
from torchx.schedulers.docker_address import (
    NO_SOCKET,
    START,
    WITHOUT,
    Address,
    NoEngineError,
    encrypted,
    find_address,
    no_engine,
)

OLDEST = (1, 40)
"""The oldest version of the engine's interface that is spoken here: Docker 19.03."""
NEWEST = (1, 47)
"""The newest that is known here; an engine that is newer speaks it too."""
PATIENCE = 60.0
"""Seconds that an engine may take for an answer, unless it is asked to wait for something."""
AT_A_TIME = 32
LOOKS = 10

T = TypeVar("T")
R = TypeVar("R")


class EngineError(StateError):
    """The engine has refused something.

    Args:
        status: the status of its answer.
        message: its reason.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """A Docker engine.

    Args:
        address: where it is; found as the docker command finds it unless told.
    """

    def __init__(self, address: Address | None = None) -> None:
        self.address = address or find_address()
        self._version = ""
        self._is_podman = False

    @property
    def version(self) -> str:
        """The version of the interface to speak with it.

        Raises:
            NoEngineError: nothing answers.
            StateError: what answers is no engine, or too old a one.
        """
        if not self._version:
            status, headers, _ = self._request("GET", "/_ping", None, 10.0)
            told = headers.get("Api-Version") or ""
            parts = tuple(int(p) for p in told.split(".") if p.isdigit())
            if status != 200 or not parts:
                raise StateError(f"what answers at {self.address} is no Docker engine")
            if parts < OLDEST:
                oldest = ".".join(map(str, OLDEST))
                raise StateError(
                    f"the Docker engine at {self.address} is too old: it speaks version {told} of its "
                    f"interface, {oldest} is needed",
                    hint=f"upgrade it to Docker 19.03 or newer; {WITHOUT}",
                )
            self._is_podman = "Libpod-Api-Version" in headers
            self._version = ".".join(map(str, min(parts, NEWEST)))
        return self._version

    @property
    def is_podman(self) -> bool:
        """Whether this is Podman, which speaks the same with some words of its own."""
        return bool(self.version) and self._is_podman

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        patience: float | None = PATIENCE,
    ) -> Any:
        """Returns the answer to a call.

        Args:
            method: GET, POST or DELETE.
            path: without the version.
            query: mappings and lists are told as JSON.
            body: told as JSON.
            patience: seconds to wait for the answer; None for ever.

        Raises:
            EngineError: the engine refuses.
            NoEngineError: it does not answer.
        """
        url = self._url(path, query)
        for _ in range(LOOKS if method == "GET" else 1):
            status, _, data = self._request(method, url, body, patience)
            # Podman cannot tell of anything when a container ends or goes while it looks at all of them
            ended = status >= 500 and "no such process" in _reason(data)
            gone = status >= 400 and path == "/containers/json" and "no such container" in _reason(data)
            if not (ended or gone):
                break
        if status >= 400:
            # Podman calls it a failure of its own when a container goes while it is looked at
            absent = status >= 500 and "no such container" in _reason(data)
            raise EngineError(404 if absent else status, _reason(data))
        try:
            return json.loads(data) if data else None
        except ValueError:
            return data.decode("utf-8", "replace")

    def stream(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> tuple[socket.socket, bytes]:
        """Returns a connection on which the answer comes as it is made, and what has come of it already.

        Args:
            path: without the version.
            query: mappings and lists are told as JSON.
            method: GET or POST.
            headers: further ones.
            body: told as JSON.

        Raises:
            EngineError: the engine refuses.
            NoEngineError: it does not answer.
        """
        url = self._url(path, query)
        # in the older HTTP an answer is sent as it is, without a word of how long its pieces are
        lines = [
            f"{method} {url} HTTP/1.0",
            "Host: docker",
            *(f"{k}: {v}" for k, v in (headers or {}).items()),
        ]
        sent = b"" if body is None else json.dumps(body).encode()
        if sent:
            lines += ["Content-Type: application/json", f"Content-Length: {len(sent)}"]
        try:
            connection = self._connect(PATIENCE)
            try:
                connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + sent)
                data = b""
                while b"\r\n\r\n" not in data:
                    more = connection.recv(1 << 16)
                    if not more:
                        raise ConnectionResetError("it hung up")
                    data += more
                head, _, rest = data.partition(b"\r\n\r\n")
                status = int(head.split(None, 2)[1])
                if status >= 400:
                    while more := connection.recv(1 << 16):
                        rest += more
                    raise EngineError(status, _reason(rest))
                connection.settimeout(None)
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise self._unreachable(error) from error
        return connection, rest

    @contextmanager
    def upload(
        self, path: str, query: Mapping[str, Any], send: Callable[[Callable[[bytes], None]], None]
    ) -> Iterator[Iterable[bytes]]:
        """Posts a tar archive that is made while it is sent; gives the lines of the answer as they come.

        Args:
            path: without the version.
            query: mappings and lists are told as JSON.
            send: called with what takes the pieces of the archive.

        Raises:
            EngineError: the engine refuses.
            NoEngineError: it does not answer.
        """
        try:
            with closing(http.client.HTTPConnection("docker")) as connection:
                connection.sock = self._connect(PATIENCE)
                connection.putrequest("POST", self._url(path, query))
                connection.putheader("Content-Type", "application/x-tar")
                connection.putheader("Transfer-Encoding", "chunked")
                connection.endheaders()
                with suppress(BrokenPipeError, ConnectionResetError):  # it has refused: its answer tells why
                    send(lambda piece: connection.send(b"%x\r\n%b\r\n" % (len(piece), piece)))
                    connection.send(b"0\r\n\r\n")
                connection.sock.settimeout(None)  # a step may take its time
                response = connection.getresponse()
                if response.status >= 400:
                    raise EngineError(response.status, _reason(response.read()))
                yield response
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _url(self, path: str, query: Mapping[str, Any] | None) -> str:
        told = {
            key: json.dumps(value) if isinstance(value, (dict, list)) else str(value)
            for key, value in (query or {}).items()
        }
        return f"/v{self.version}{path}{'?' + urlencode(told) if told else ''}"

    def _request(
        self, method: str, url: str, body: Any, patience: float | None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        try:
            with closing(http.client.HTTPConnection("docker")) as connection:
                connection.sock = self._connect(patience)
                connection.request(method, url, data, headers)
                response = connection.getresponse()
                return response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _connect(self, patience: float | None) -> socket.socket:
        where = self.address
        if not where.path:
            plain = socket.create_connection((where.host, where.port), min(patience or PATIENCE, 10.0))
            plain.settimeout(patience)
            return plain if where.certificates is None else encrypted(plain, where)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(patience)
            connection.connect(where.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _unreachable(self, error: Exception) -> NoEngineError:
        if isinstance(error, socket.gaierror):
            why, hint = "no such host", "check the address"
        elif isinstance(error, PermissionError):
            why, hint = "permission denied", "add yourself to the group `docker`, or set DOCKER_HOST"
        elif isinstance(error, FileNotFoundError):
            why, hint = NO_SOCKET, START
        elif isinstance(error, TimeoutError):
            why, hint = "no answer in time", "see how it fares: docker info"
        elif isinstance(error, ConnectionRefusedError):
            why, hint = "nothing listens there", START
        else:
            why, hint = str(error) or type(error).__name__, START
        return no_engine(self.address, why, hint)


def receive(connection: socket.socket, size: int) -> tuple[bytes, bool]:
    """Returns what has come on a connection that does not block, and whether that was the end of it."""
    data = b""
    while len(data) < size:
        try:
            more = connection.recv(size)
        except OSError as error:
            # the second is the first on an encrypted connection; its module is not loaded for its name alone
            waits = isinstance(error, BlockingIOError) or type(error).__name__ == "SSLWantReadError"
            return data, not waits
        if not more:
            return data, True
        data += more
    return data, False


def _reason(data: bytes) -> str:
    """Returns the reason in an answer of the engine, on one line."""
    text = data.decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["message"])
    return " ".join(text.split()) or "no reason was given"


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R | Exception]:
    """Calls a function with each item, many at a time, and returns the results or errors in order."""
    work = deque(enumerate(items))
    count = len(work)
    results: dict[int, R | Exception] = {}

    def run() -> None:
        while True:
            try:
                number, item = work.popleft()
            except IndexError:
                return
            try:
                results[number] = function(item)
            except Exception as error:
                results[number] = error

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(AT_A_TIME, count) - 1)]
    for thread in threads:
        thread.start()
    try:
        run()
    finally:
        work.clear()  # when this thread was interrupted: the others begin nothing more
        for thread in threads:
            thread.join()
    return [results[number] for number in range(count)]


def all_of(results: Iterable[R | Exception]) -> list[R]:
    """Returns results, and raises the first error among them."""
    done: list[R] = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        done.append(result)
    return done
