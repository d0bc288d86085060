"""Distinguishes a silent program from a lost node during ``torchx exec``.

Clusters before 1.36 accept a connection to a pod before they reach its node, so a hanging node looks like a
program without output. A live node responds to a second program, `true`, even if the image lacks it. Newer
clusters do not answer at all; if they answer other requests, the node hangs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from torchx.errors import StateError
from torchx.machine import polling
from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import conditions_of, short, time_of
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.kubernetes.names import CONTAINER
from torchx.schedulers.kubernetes.state.attempts import container_of
from torchx.schedulers.kubernetes.state.taken import age, node_of

FIRST = 5.0
"""Seconds without a first byte after which the node is probed."""
LATER = 30.0
"""Seconds of later silence after which the pod is checked."""
PROBE = 10.0
"""Seconds to wait for the response to a probe."""


class ConnectionMonitor:
    """Monitors a connection to a pod.

    Args:
        cluster: the cluster.
        namespace: the namespace of the pod.
        pod: the name of the pod.
    """

    def __init__(self, cluster: Cluster, namespace: str, pod: str) -> None:
        self._cluster, self._namespace, self._pod = cluster, namespace, pod
        self._proven = False

    def until_readable(self, connection: Any) -> None:
        """Blocks until a connection is readable; probes the node meanwhile.

        Raises:
            StateError: the pod was deleted, or its node does not respond.
            ClusterError: the cluster does not respond.
        """
        while not readable(connection, LATER if self._proven else FIRST):
            if not self._proven or doubtful(self._find()):
                self._probe()
        self._proven = True

    def _find(self) -> Object:
        pod = self._cluster.find(path_of("v1", "pods", self._namespace, self._pod))
        if pod is None:
            raise StateError(
                f"the pod {self._pod} no longer exists: it was deleted, or evicted from its node"
            )
        return pod

    def _probe(self) -> None:
        params = [("command", "true"), ("container", CONTAINER), ("stdout", "true"), ("stderr", "true")]
        path = path_of("v1", "pods", self._namespace, self._pod) + "/exec"
        begin = time.monotonic()
        try:
            connection = self._cluster.websocket(path, params)
        except ClusterError as error:
            if error.status in (0, 500, 502, 503, 504):
                raise self.lost(time.monotonic() - begin + FIRST) from None
            if error.status == 404:
                self._find()
            raise
        try:
            if not readable(connection, PROBE):
                raise self.lost(time.monotonic() - begin + FIRST)
        finally:
            connection.shutdown()
        self._proven = True

    def lost(self, seconds: float) -> StateError:
        """Returns the error for a node that has not answered for some seconds.

        Raises:
            StateError: the pod was deleted.
            ClusterError: the cluster does not respond.
        """
        pod = self._find()
        node = node_of(pod) or "of its pod"
        trouble = node_trouble(self._cluster, node)
        more = trouble or f"no response to commands for {seconds:.0f} s"
        return StateError(
            f"the node {node} does not answer: {more}",
            hint=f"kubectl get node {node}; replicas on other nodes: torchx status",
        )


def connect(cluster: Cluster, namespace: str, pod: str, part: str, query: Sequence[tuple[str, str]]) -> Any:
    """Opens a connection to a pod.

    Args:
        cluster: the cluster.
        namespace: the namespace of the pod.
        pod: the name of the pod.
        part: the part of the API: exec or portforward.
        query: query parameters.

    Raises:
        StateError: the pod was deleted, or its node does not respond.
        ClusterError: the cluster rejects the request or does not respond.
    """
    begin = time.monotonic()
    try:
        return cluster.websocket(path_of("v1", "pods", namespace, pod) + f"/{part}", query)
    except ClusterError as error:
        if not error.of_node:
            raise
    raise ConnectionMonitor(cluster, namespace, pod).lost(time.monotonic() - begin)


def require_node(cluster: Cluster, pod: Object) -> None:
    """Checks that the node of a pod is ready.

    Raises:
        StateError: it is not.
    """
    if doubtful(pod):
        node = node_of(pod)
        trouble = node_trouble(cluster, node)
        if trouble:
            raise StateError(
                f"the node {node} does not answer: {trouble}",
                hint=f"wait until it is Ready again: kubectl get node {node}",
            )


def doubtful(pod: Object) -> bool:
    """Returns True if a pod's node may be lost: its container is reported ready, the pod is not."""
    container = container_of(pod)
    ready = conditions_of(pod).get("Ready")
    unready = ready is not None and ready.get("status") != "True"
    return unready and bool(container.get("ready")) and "running" in (container.get("state") or {})


def node_trouble(cluster: Cluster, node: str) -> str:
    """Returns why a node is not ready; empty if it is ready or cannot be read."""
    try:
        found = cluster.find(path_of("v1", "nodes", "", node)) or {}
    except ClusterError:
        return ""
    shaped(found)  # removes fields of a wrong type
    ready = conditions_of(found).get("Ready")
    if ready is None or ready.get("status") == "True":
        return ""
    lasts = age(time_of(ready.get("lastTransitionTime")), cluster.clock.now())
    return f"it is not ready{lasts} ({short(ready.get('message')).rstrip('.')})"


def readable(connection: Any, seconds: float) -> bool:
    """Returns True as soon as a connection is readable, False after a timeout."""
    sock = connection.sock
    if sock is None or (hasattr(sock, "pending") and sock.pending()):
        return True
    return bool(polling.readable([sock], seconds))
