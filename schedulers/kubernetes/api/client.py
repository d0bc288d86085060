"""Client for the API of a cluster: takes paths, returns plain data, limits the time of each call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.api.config import load
from torchx.schedulers.kubernetes.api.connection import BROKEN_OFF, ended_at, why, within
from torchx.schedulers.kubernetes.api.connection import hang_up as hang_up
from torchx.schedulers.kubernetes.api.connection import lines_of as lines_of
from torchx.schedulers.kubernetes.api.errors import ClusterError, response_error
from torchx.schedulers.kubernetes.api.objects import Object as Object
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.shared.clock import EngineClock
from torchx.scheduling.pace import Answers
from torchx.version import __version__

with lazy_imports:
    import urllib3


CONNECT = 5.0
"""Seconds to wait for a connection."""
ANSWER = 30.0
"""Seconds to wait for a complete response."""
BEGIN = 60.0
"""Seconds to wait for the start of a stream: with a lost node the cluster responds after about 45 s."""
HANDSHAKE = 15.0
"""Seconds to wait for a WebSocket after the connection: newer clusters reach the node of the pod first."""
SILENCE = 300.0
"""Seconds without data after which a stream is considered dead (default)."""
LARGEST = 256 * 1024 * 1024
"""Maximum size of a response in bytes."""
PAGE = 500
"""Objects per page of a list."""
KNOWN_FOR = 1.0
"""Seconds for which authentication headers are not queried again, as each log is a request of its own."""
PAUSE = 0.2
"""Seconds before the first retry of a call; doubled each time."""


MERGE = "application/merge-patch+json"


Read = Callable[[Any], Object | None]
"""Validates an object; returns None for one without a name."""


class _Request(NamedTuple):
    method: str
    path: str
    query: Data | None = None
    body: Object | None = None
    content_type: str = ""


class Listing(NamedTuple):
    """The objects of a list.

    Attributes:
        objects: the objects.
        version: the version of the list, to start a watch from.
    """

    objects: list[Object]
    version: str


class Cluster:
    """A cluster. Nothing is sent before the first call.

    Args:
        context: the context of the kubeconfig; default: the current one.
        kubeconfig: path of the kubeconfig; default: KUBECONFIG, or ``~/.kube/config``.
        connect: seconds to wait for a connection.

    Attributes:
        namespace: the namespace of the configuration.
        host: the address of the API.
        origin: the source of the configuration, as a phrase.

    Raises:
        StateError: no cluster is configured, or the package ``kubernetes`` is missing.
        UsageError: the context does not exist.
    """

    def __init__(
        self, context: str | None = None, kubeconfig: str | None = None, *, connect: float = CONNECT
    ) -> None:
        self._configuration, self.namespace, self.origin = load(context, kubeconfig)
        # the package makes the connections, with their certificates and proxies
        from kubernetes.client.rest import RESTClientObject

        self.host: str = self._configuration.host.rstrip("/")
        self._pool = RESTClientObject(self._configuration).pool_manager
        self._lock = Lock()
        self._known: dict[str, str] = {}
        self._known_until = 0.0
        self._connect = connect
        self.clock = EngineClock()
        self._answers: dict[str, Answers[Listing]] = {}

    @property
    def is_relayed(self) -> bool:
        """True if a proxy reads the requests: they name the cluster."""
        return self._pool.proxy is not None and self.host.startswith("http:")

    def answers(
        self, path: str, query: Callable[[Collection[str]], Mapping[str, Listing]]
    ) -> Answers[Listing]:
        """Returns the answers about a list that the parts of this process share.

        Args:
            path: the path of the list.
            query: reads it; that of the first call is used.
        """
        with self._lock:
            return self._answers.setdefault(path, Answers(query, complete=True))

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()

    def get(self, path: str, query: Data | None = None) -> Object:
        """Returns an object or one page of a list."""
        return self.call("GET", path, query)

    def find(self, path: str) -> Object | None:
        """Returns an object, or None if it does not exist."""
        try:
            return self.get(path)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: Object, query: Data | None = None) -> Object:
        """Creates an object in a collection."""
        return self.call("POST", path, query, body)

    def patch(self, path: str, body: Object) -> Object:
        """Merges a patch into an object."""
        return self.call("PATCH", path, None, body, content_type=MERGE)

    def patch_unchanged(self, path: str, known: Object, body: Object) -> bool:
        """Merges a patch into an object; returns False if it has changed since it was read.

        Args:
            path: path of the object.
            known: the object as it was read.
            body: the patch.
        """
        version = {"resourceVersion": known["metadata"].get("resourceVersion")}
        try:
            self.patch(path, {**body, "metadata": {**(body.get("metadata") or {}), **version}})
        except ClusterError as error:
            if error.status != 409:
                raise
            return False
        return True

    def delete(self, path: str, query: Data | None = None) -> None:
        """Deletes an object, or the selected objects of a collection, if they exist.

        Dependent objects are deleted afterwards, unless the query sets another propagation policy.
        """
        try:
            self.call("DELETE", path, {"propagationPolicy": "Background", **(query or {})})
        except ClusterError as error:
            if error.status != 404:
                raise

    def items(self, path: str, query: Data | None = None, *, read: Read | None = None) -> list[Object]:
        """Returns all objects of a list, page by page.

        Args:
            path: path of the list.
            query: query parameters.
            read: validates each object; it may omit fields (default: all fields).
        """
        return self.list_with_version(path, query, read=read).objects

    def list_with_version(self, path: str, query: Data | None = None, *, read: Read | None = None) -> Listing:
        """Returns all objects of a list, and its version."""
        read = read or shaped
        params = {**(query or {}), "limit": PAGE}
        objects: list[Object] = []
        while True:
            try:
                page = self.get(path, params)
            except ClusterError as error:
                if error.status != 410 or "continue" not in params:
                    raise
                # the version of the list has expired, which can happen again: read it as one page
                objects, params = [], dict(query or {})
                continue
            items, metadata = page.get("items") or [], page.get("metadata") or {}
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise self._not_a_cluster(f"a list of {path} without items")
            objects += [each for item in items if (each := read(item)) is not None]
            if not metadata.get("continue"):
                return Listing(objects, str(metadata.get("resourceVersion", "")))
            params["continue"] = metadata["continue"]

    def call(
        self,
        method: str,
        path: str,
        query: Data | None = None,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        timeout: float = ANSWER,
    ) -> Object:
        """Sends a request and returns the response.

        Retries read-only requests, and those that the cluster rejects with status 429.

        Raises:
            ClusterError: the request was rejected or timed out.
        """
        request = _Request(method, path, query, body, content_type)
        end, pause = time.monotonic() + timeout, PAUSE
        while True:
            left = max(end - time.monotonic(), 0.1)
            try:
                return self._once(request, left)
            except ClusterError as error:
                wait = max(error.retry_after or 0.0, pause)
                again = error.passes and (method == "GET" or error.status == 429)
                if not again or error.hopeless or time.monotonic() + wait >= end:
                    raise
            time.sleep(wait)
            pause *= 2

    def _once(self, request: _Request, timeout: float) -> Object:
        end = time.monotonic() + timeout
        response = self._send(request, timeout)
        data = bytearray()
        try:
            with ended_at(response, end):
                for chunk in response.stream(1 << 18):
                    data += chunk
                    if len(data) > LARGEST:
                        raise self._not_a_cluster(f"more than {LARGEST >> 20} MiB to one request")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            response.close()
            raise self.no_answer(error) from None
        except ClusterError:
            response.close()
            raise
        response.release_conn()
        if data:
            return self._parsed(bytes(data))
        return {}

    def stream(self, path: str, query: Data | None = None, *, silence: float = SILENCE) -> Any:
        """Opens a stream, such as a watch or a log that is followed.

        Args:
            path: path of the resource.
            query: query parameters.
            silence: seconds without data after which a read fails.

        Returns:
            The response; close it with :func:`hang_up`.

        Raises:
            ClusterError: the request was rejected or timed out.
        """
        response = self._send(_Request("GET", path, query), BEGIN)
        sock = getattr(response.connection, "sock", None)
        if sock is not None:
            sock.settimeout(silence)
        return response

    def _send(self, request: _Request, timeout: float) -> Any:
        url = f"{self.host}{request.path}" + (f"?{urlencode(request.query)}" if request.query else "")
        headers = {
            "Accept": "application/json, */*",
            "User-Agent": f"torchx/{__version__}",
            **self.auth_headers(),
        }
        data = None
        if request.body is not None:
            headers["Content-Type"] = request.content_type
            data = json.dumps(request.body).encode()
        limit = urllib3.Timeout(connect=min(self._connect, timeout), read=timeout)
        try:
            response = self._pool.request(
                request.method,
                url,
                body=data,
                headers=headers,
                timeout=limit,
                retries=False,
                preload_content=False,
            )
            self.clock.read(response.headers.get("Date", ""))
            if response.status < 400:
                return response
            try:
                answer = response.read(1 << 20)
            finally:
                response.close()
        except urllib3.exceptions.HTTPError as error:
            raise self.no_answer(error) from None
        raise response_error(request.method, request.path, response.status, answer, response.headers)

    def websocket(self, path: str, query: Sequence[tuple[str, str]]) -> Any:
        """Opens a bidirectional connection with the certificates and proxies of the configuration.

        Servers before 1.36 accept it before they reach the node, so it does not prove a live node; newer ones
        do not answer before.

        Raises:
            ClusterError: the request was rejected or timed out.
        """
        from kubernetes.stream.ws_client import create_websocket
        from websocket import WebSocketBadStatusException, WebSocketException

        url = f"{self.host.replace('http', 'ws', 1)}{path}?{urlencode(query)}"
        # only the first protocol can signal the end of the input
        headers = {**self.auth_headers(), "sec-websocket-protocol": "v5.channel.k8s.io,v4.channel.k8s.io"}
        try:
            return within(
                self._connect + HANDSHAKE, lambda: create_websocket(self._configuration, url, headers)
            )
        except WebSocketBadStatusException as error:
            body = b""
            if isinstance(error.resp_body, bytes):
                body = error.resp_body
            raise response_error("POST", path, error.status_code, body, {}) from None
        except (WebSocketException, OSError) as error:
            failure = self.no_answer(error)
            failure.of_node = isinstance(error, TimeoutError)
            raise failure from None

    def auth_headers(self) -> dict[str, str]:
        """Returns the authentication headers; the package renews an expired token."""
        with self._lock:
            if time.monotonic() < self._known_until:
                return self._known
            try:
                settings = self._configuration.auth_settings()
            except Exception as error:
                # a credential plugin can fail in any way
                detail = " ".join(str(error).split())
                raise ClusterError(
                    f"no credentials for the cluster at {self.host}: {detail}", status=401
                ) from None
            self._known = {
                s["key"]: str(s["value"]).strip()
                for s in settings.values()
                if s.get("in") == "header" and s.get("value")
            }
            self._known_until = time.monotonic() + KNOWN_FOR
            return self._known

    def no_answer(self, error: Exception) -> ClusterError:
        """Returns the exception for a request without a response."""
        failure = ClusterError(
            f"no cluster answers at {self.host} ({why(error)})",
            hint=f"this is {self.origin}; another: -cfg context=NAME; without a cluster: -s local_cwd",
        )
        # a kept-alive connection may have expired: retry
        failure.hopeless = why(error) != BROKEN_OFF
        return failure

    def _parsed(self, data: bytes) -> Object:
        try:
            parsed = json.loads(data)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise self._not_a_cluster(repr(data[:60].decode("utf-8", "replace")))
        return parsed

    def _not_a_cluster(self, answer: str) -> ClusterError:
        error = ClusterError(f"{self.host} is not a Kubernetes cluster: it returned {answer}")
        error.hopeless = True
        return error


def path_of(api_version: str, resource: str, namespace: str = "", name: str = "") -> str:
    """Returns the path of an object or a collection.

    >>> path_of("batch/v1", "jobs", "research", "train")
    '/apis/batch/v1/namespaces/research/jobs/train'
    >>> path_of("v1", "pods", "research")
    '/api/v1/namespaces/research/pods'
    """
    if "/" in api_version:
        root = f"/apis/{api_version}"
    else:
        root = f"/api/{api_version}"
    place = ""
    if namespace:
        place = f"/namespaces/{quote(namespace, safe='')}"
    return f"{root}{place}/{resource}" + (f"/{quote(name, safe='')}" if name else "")
