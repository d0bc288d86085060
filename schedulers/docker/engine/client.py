"""Calls to a Docker engine and streams from it, over HTTP; needs nothing that is not in Python itself.

The ``docker`` package takes longer to load than most commands take in all, hands out log streams piece by
piece, and cannot be loaded by a supervisor, which sees no installed packages.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from torchx.errors import StateError
from torchx.schedulers.docker.engine.address import (
    NO_SOCKET,
    START,
    WITHOUT,
    Address,
    NoEngineError,
    encrypted,
    find_address,
    no_engine,
)
from torchx.schedulers.docker.engine.http import keep_alive, plain_request, read_all, reason, status_of

if TYPE_CHECKING:
    from torchx.schedulers.docker.engine.duplex import Duplex

OLDEST = (1, 40)
"""The oldest version of the engine's interface that is spoken here: Docker 19.03."""
NEWEST = (1, 47)
"""The newest that is known here; an engine that is newer speaks it too."""
PATIENCE = 60.0
"""Seconds that an engine may take for an answer, unless it is asked to wait for something."""
FIRST_PATIENCE = 10.0
"""Seconds that an engine may take for its first answer, which costs it nothing."""
LOOKS = 10


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
            status, headers, _ = self._request("GET", "/_ping", None, FIRST_PATIENCE)
            told = headers.get("Api-Version") or ""
            parts = tuple(int(p) for p in told.split(".") if p.isdigit())
            if status >= 500:
                raise no_engine(self.address, f"it answers with status {status}", "see: docker info")
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
            ended = status >= 500 and "no such process" in reason(data)
            gone = status >= 400 and path == "/containers/json" and "no such container" in reason(data)
            if not (ended or gone):
                break
        if status >= 400:
            # Podman calls it a failure of its own when a container goes while it is looked at
            absent = status >= 500 and "no such container" in reason(data)
            raise EngineError(404 if absent else status, reason(data))
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
        patience: float | None = None,
    ) -> tuple[socket.socket, bytes]:
        """Returns a connection on which the answer comes as it is made, and what has come of it already.

        Args:
            path: without the version.
            query: mappings and lists are told as JSON.
            method: GET or POST.
            headers: further ones.
            patience: seconds that may pass without a byte of it; None for ever.

        Raises:
            EngineError: the engine refuses.
            NoEngineError: it does not answer.
        """
        request = plain_request(method, self._url(path, query), headers or {})
        try:
            connection = self._connect(PATIENCE)
            try:
                connection.sendall(request)
                data = b""
                while b"\r\n\r\n" not in data:
                    more = connection.recv(1 << 16)
                    if not more:
                        raise ConnectionResetError("it hung up")
                    data += more
                head, _, rest = data.partition(b"\r\n\r\n")
                status = status_of(head)
                if status >= 400:
                    while more := connection.recv(1 << 16):
                        rest += more
                    raise EngineError(status, reason(rest))
                connection.settimeout(patience)
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise self.unreachable(error) from error
        return connection, rest

    def exchange(self, path: str, body: Any) -> tuple[Duplex, bytes]:
        """Returns a connection on which both sides send, and what has come already.

        Args:
            path: without the version.
            body: what is posted there, as JSON.

        Raises:
            EngineError: the engine refuses.
            NoEngineError: it does not answer.
        """
        from torchx.schedulers.docker.engine.duplex import Duplex  # on demand: for exec alone

        sent = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
        try:
            connection = Duplex(self._plain(PATIENCE), self.address)
            try:
                connection.send(plain_request("POST", self._url(path, None), headers) + sent)
                head, rest = connection.head(PATIENCE)
                status = status_of(head)
                if status >= 400:
                    raise EngineError(status, reason(rest + connection.rest(PATIENCE)))
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise self.unreachable(error) from error
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
                    raise EngineError(response.status, reason(response.read()))
                yield response
        except (OSError, http.client.HTTPException) as error:
            raise self.unreachable(error) from error

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
                return response.status, response.headers, read_all(response, patience)
        except (OSError, http.client.HTTPException) as error:
            raise self.unreachable(error) from error

    def _connect(self, patience: float | None) -> socket.socket:
        plain = self._plain(patience)
        return plain if self.address.certificates is None else encrypted(plain, self.address)

    def _plain(self, patience: float | None) -> socket.socket:
        where = self.address
        if not where.path:
            plain = socket.create_connection((where.host, where.port), min(patience or PATIENCE, 10.0))
            keep_alive(plain)
            plain.settimeout(patience)
            return plain
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(patience)
            connection.connect(where.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def unreachable(self, error: Exception) -> NoEngineError:
        """Returns the error that says why the engine does not answer, and what to do."""
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
        elif (
            type(error).__name__ == "SSLCertVerificationError"
        ):  # its module is not loaded for its name alone
            why = f"its certificate is not trusted: {getattr(error, 'verify_message', error)}"
            context = self.address.origin.startswith("context")
            any_certificate = "SkipTLSVerify in the context" if context else "DOCKER_TLS_VERIFY=0"
            hint = (
                f"put its authority at {self.address.certificates}/ca.pem, "
                f"or accept any certificate: {any_certificate}"
            )
        else:
            why, hint = str(error) or type(error).__name__, START
        return no_engine(self.address, why, hint)
