"""A cluster over HTTP: paths of its API in, plain data out, each call with a time limit."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any
from urllib.parse import quote, urlencode

from torchx.schedulers.kubernetes.api.config import load
from torchx.schedulers.kubernetes.api.connection import BROKEN_OFF, ended_at, why, within
from torchx.schedulers.kubernetes.api.connection import hang_up as hang_up
from torchx.schedulers.kubernetes.api.connection import lines_of as lines_of
from torchx.schedulers.kubernetes.api.errors import ClusterError, refused
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.version import __version__

Object = dict[str, Any]
"""An object of the API as plain data."""

CONNECT = 5.0
"""Seconds within which a cluster has to take a connection."""
ANSWER = 30.0
"""Seconds within which it has to answer, to the last byte."""
BEGIN = 60.0
"""Seconds within which a stream has to begin: with a lost node the cluster answers after some 45 s."""
SILENCE = 300.0
"""Seconds without a byte after which a stream is taken for dead, unless a caller says otherwise."""
LARGEST = 256 * 1024 * 1024
"""Bytes of an answer, at most."""
PAGE = 500
"""Objects that are asked for at once; a cluster hands out long lists in such pages."""
PAUSE = 0.2
"""Seconds before a call that may be asked again is asked again; doubled each time."""

MERGE = "application/merge-patch+json"


class Cluster:
    """One cluster; nothing is sent before the first call.

    Args:
        context: the context of the kubeconfig; the current one unless told.
        kubeconfig: path of the kubeconfig; that of KUBECONFIG or the usual one unless told.
        connect: seconds within which the cluster has to take a connection.

    Attributes:
        namespace: the namespace that the configuration chooses.
        host: the address of the API.
        origin: what says so, in words.

    Raises:
        StateError: nothing says where a cluster is, or the package that speaks to one is missing.
        UsageError: there is no such context.
    """

    def __init__(
        self, context: str | None = None, kubeconfig: str | None = None, *, connect: float = CONNECT
    ) -> None:
        self._configuration, self.namespace, self.origin = load(context, kubeconfig)
        # the package makes the connections: certificates, proxies and what else it knows to set up
        from kubernetes.client.rest import RESTClientObject

        self.host: str = self._configuration.host.rstrip("/")
        self._pool = RESTClientObject(self._configuration).pool_manager
        self._lock = Lock()
        self._connect = connect

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Object:
        """Returns an object, or one page of a list."""
        return self.call("GET", path, query)

    def find(self, path: str) -> Object | None:
        """Returns an object, None when it does not exist."""
        try:
            return self.get(path)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: Object, query: Mapping[str, Any] | None = None) -> Object:
        """Creates an object in a collection."""
        return self.call("POST", path, query, body)

    def patch(self, path: str, body: Object) -> Object:
        """Merges something into an object."""
        return self.call("PATCH", path, None, body, content_type=MERGE)

    def delete(self, path: str, query: Mapping[str, Any] | None = None) -> None:
        """Deletes an object or those of a collection that are chosen; nothing happens when there is none.

        What belongs to it goes after it, unless the query says otherwise: without that, it would stay.
        """
        try:
            self.call("DELETE", path, {"propagationPolicy": "Background", **(query or {})})
        except ClusterError as error:
            if error.status != 404:
                raise

    def items(self, path: str, query: Mapping[str, Any] | None = None) -> list[Object]:
        """Returns all objects of a list, page by page."""
        return self.listed(path, query)[0]

    def listed(self, path: str, query: Mapping[str, Any] | None = None) -> tuple[list[Object], str]:
        """Returns all objects of a list, and the version of the list, from which it can be watched."""
        asked = {**(query or {}), "limit": PAGE}
        found: list[Object] = []
        while True:
            try:
                page = self.get(path, asked)
            except ClusterError as error:
                if error.status != 410 or "continue" not in asked:
                    raise
                # the list took so long that its version is gone: once more, from its start
                found, asked = [], {key: value for key, value in asked.items() if key != "continue"}
                continue
            items, metadata = page.get("items") or [], page.get("metadata") or {}
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise self._not_a_cluster(f"a list of {path} without items")
            found += [each for item in items if (each := shaped(item)) is not None]
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion", ""))
            asked["continue"] = metadata["continue"]

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        timeout: float = ANSWER,
    ) -> Object:
        """Asks the cluster for something and returns the answer.

        What changes nothing, and what the cluster itself wants to be asked again, is asked again.

        Raises:
            ClusterError: it was refused, or no answer came in time.
        """
        end, pause = time.monotonic() + timeout, PAUSE
        while True:
            left = max(end - time.monotonic(), 0.1)
            try:
                return self._once(method, path, query, body, content_type, left)
            except ClusterError as error:
                wait = max(error.retry_after or 0.0, pause)
                again = error.passes and (method == "GET" or error.status == 429)
                if not again or error.hopeless or time.monotonic() + wait >= end:
                    raise
            time.sleep(wait)
            pause *= 2

    def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Object | None,
        content_type: str,
        timeout: float,
    ) -> Object:
        import urllib3

        end = time.monotonic() + timeout
        response = self._send(method, path, query, body, content_type, timeout)
        data = bytearray()
        try:
            with ended_at(response, end):
                for chunk in response.stream(1 << 18):
                    data += chunk
                    if len(data) > LARGEST:
                        raise self._not_a_cluster(f"more than {LARGEST >> 20} MiB to one request")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            response.close()
            raise self._no_answer(error) from None
        except ClusterError:
            response.close()
            raise
        response.release_conn()
        return self._parsed(bytes(data)) if data else {}

    def stream(self, path: str, query: Mapping[str, Any] | None = None, *, silence: float = SILENCE) -> Any:
        """Opens a stream, such as a watch or a log that is followed.

        Args:
            path: of what.
            query: what is asked for.
            silence: seconds without a byte after which a read fails.

        Returns:
            The response, to be read and closed by :func:`hang_up`.

        Raises:
            ClusterError: it was refused, or no answer came in time.
        """
        response = self._send("GET", path, query, None, "", BEGIN)
        found = getattr(response.connection, "sock", None)
        if found is not None:
            found.settimeout(silence)
        return response

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Object | None,
        content_type: str,
        timeout: float,
    ) -> Any:
        import urllib3

        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json, */*", "User-Agent": f"torchx/{__version__}", **self._auth()}
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body).encode()
        limit = urllib3.Timeout(connect=min(self._connect, timeout), read=timeout)
        try:
            response = self._pool.request(
                method, url, body=data, headers=headers, timeout=limit, retries=False, preload_content=False
            )
            if response.status < 400:
                return response
            try:
                answer = response.read(1 << 20)
            finally:
                response.close()
        except urllib3.exceptions.HTTPError as error:
            raise self._no_answer(error) from None
        raise refused(method, path, response.status, answer, response.headers)

    def websocket(self, path: str, query: Sequence[tuple[str, str]]) -> Any:
        """Opens a connection that goes both ways, as the package makes it: with its certificates and proxies.

        That it opens says nothing of the node behind it: the server takes it before it reaches the node.

        Raises:
            ClusterError: it was refused, or no answer came.
        """
        from kubernetes.stream.ws_client import create_websocket
        from websocket import WebSocketBadStatusException, WebSocketException

        url = f"{self.host.replace('http', 'ws', 1)}{path}?{urlencode(query)}"
        # the first of them is the one in which the end of what is handed on can be told
        headers = {**self._auth(), "sec-websocket-protocol": "v5.channel.k8s.io,v4.channel.k8s.io"}
        try:
            return within(self._connect + BEGIN, lambda: create_websocket(self._configuration, url, headers))
        except WebSocketBadStatusException as error:
            body = error.resp_body if isinstance(error.resp_body, bytes) else b""
            raise refused("POST", path, error.status_code, body, {}) from None
        except (WebSocketException, OSError) as error:
            raise self._no_answer(error) from None

    def _auth(self) -> dict[str, str]:
        """Returns the headers that tell who asks; a token that has run out is renewed by the package."""
        with self._lock:
            try:
                settings = self._configuration.auth_settings()
            except Exception as error:
                # a program that gives out tokens can fail in any way
                told = " ".join(str(error).split())
                raise ClusterError(
                    f"no credentials for the cluster at {self.host}: {told}", status=401
                ) from None
        return {
            s["key"]: str(s["value"]).strip()
            for s in settings.values()
            if s.get("in") == "header" and s.get("value")
        }

    def _no_answer(self, error: Exception) -> ClusterError:
        found = ClusterError(
            f"no cluster answers at {self.host} ({why(error)})",
            hint=f"this is {self.origin}; another: -cfg context=NAME; without a cluster: -s local_cwd",
        )
        # a connection that breaks off may be one that was kept for too long: that is tried again
        found.hopeless = why(error) != BROKEN_OFF
        return found

    def _parsed(self, data: bytes) -> Object:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._not_a_cluster(repr(data[:60].decode("utf-8", "replace")))
        return found

    def _not_a_cluster(self, answer: str) -> ClusterError:
        error = ClusterError(f"what answers at {self.host} is no Kubernetes cluster: it says {answer}")
        error.hopeless = True
        return error


def path_of(api_version: str, resource: str, namespace: str = "", name: str = "") -> str:
    """Returns the path of an object, or of a collection.

    >>> path_of("batch/v1", "jobs", "research", "train")
    '/apis/batch/v1/namespaces/research/jobs/train'
    >>> path_of("v1", "pods", "research")
    '/api/v1/namespaces/research/pods'
    """
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{place}/{resource}" + (f"/{quote(name, safe='')}" if name else "")
