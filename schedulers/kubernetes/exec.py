"""Runs a program in the container of a running pod, with input and output over a websocket."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Sequence
from typing import Any

from torchx.errors import StateError
from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import short
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.exec_monitor import ConnectionMonitor, require_node
from torchx.schedulers.kubernetes.lookup import require
from torchx.schedulers.kubernetes.manifests.names import CONTAINER
from torchx.schedulers.kubernetes.objects import Facts
from torchx.schedulers.kubernetes.state.attempts import container_of, live, waits_for
from torchx.schedulers.kubernetes.state.replicas import members_of, replica_of, run_of
from torchx.schedulers.shared.exec import POLL_INTERVAL, Caller, not_running
from torchx.scheduling.checks import require_replicas
from torchx.scheduling.streams import Streams

STDIN, STDOUT, STDERR, ERROR, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""Channels: the first byte of each message."""
BINARY = 2
CLOSING = 8
NEWEST = "v5.channel.k8s.io"
"""The first protocol that can signal the end of the input."""


def execute(
    clusters: Clusters, app_id: str, role: str, replica: int, command: Sequence[str], streams: Streams
) -> int:
    """Runs a program in the container of a replica and returns its exit code.

    Raises:
        StateError: the replica is not running, or the program does not exist.
    """
    facts = require(clusters, app_id)
    pod = pod_of(facts, role, replica)
    return execute_in(clusters.of(app_id), facts.namespace, pod, command, streams)


def pod_of(facts: Facts, role: str, replica: int) -> Object:
    """Returns the pod of a running replica.

    Raises:
        StateError: the replica does not exist or is not running.
    """
    members = members_of(facts, facts.record)
    replicas: dict[str, list[int]] = {}
    for member in members:
        replicas.setdefault(member.role, []).append(member.replica)
    require_replicas(facts.app_id, replicas, role, [replica])
    place = next(m.role_index for m in members if m.role == role), replica
    mine = sorted((pod for pod in facts.pods if replica_of(pod) == place), key=run_of)
    if not mine or not live(mine[-1]):
        raise not_running(facts.app_id, role, replica)
    if "running" not in (container_of(mine[-1]).get("state") or {}):
        raise StateError(
            f"{role}/{replica} of {facts.app_id} is not running yet: {waits_for(mine[-1])}",
            code="not_running",
            facts={"replica": f"{role}/{replica}"},
        )
    return mine[-1]


def execute_in(
    cluster: Cluster, namespace: str, pod: Object, command: Sequence[str], streams: Streams
) -> int:
    """Runs a program in a pod and returns its exit code.

    Raises:
        ClusterError: the cluster rejects the request or does not respond.
        StateError: the program does not exist, the node does not respond, or the connection was lost.
    """
    require_node(cluster, pod)
    name = str(pod["metadata"]["name"])
    params = [("command", argument) for argument in command] + [("container", CONTAINER), ("stdout", "true")]
    if streams.stdin is not None:
        params.append(("stdin", "true"))
    params.append(("tty", "true") if streams.terminal else ("stderr", "true"))
    connection = cluster.websocket(path_of("v1", "pods", namespace, name) + "/exec", params)
    over, caller = threading.Event(), Caller(streams)
    feeder = threading.Thread(target=_feed, args=(connection, caller, over), name="exec stdin", daemon=True)
    feeder.start()
    try:
        return _receive(connection, caller, command[0], ConnectionMonitor(cluster, namespace, name))
    finally:
        over.set()
        feeder.join(timeout=2)
        connection.shutdown()


def _receive(connection: Any, caller: Caller, program: str, monitor: ConnectionMonitor) -> int:
    from websocket import WebSocketException

    while True:
        monitor.until_readable(connection)
        try:
            kind, frame = connection.recv_data_frame(True)
        except (WebSocketException, OSError) as error:
            raise ClusterError(f"the connection to `{program}` was lost: {error}") from None
        data = frame.data
        if kind == CLOSING or not data:
            if kind == CLOSING:
                raise StateError(f"the connection to `{program}` was closed before the program ended")
            continue
        channel, data = data[0], data[1:]
        if channel in (STDOUT, STDERR):
            caller.show(data, error=channel == STDERR)
        elif channel == ERROR:
            return _code(data, program)


def _code(data: bytes, program: str) -> int:
    """Returns the exit code from the final status message."""
    try:
        status = json.loads(data)
        if status.get("status") == "Success":
            return 0
        for cause in (status.get("details") or {}).get("causes") or []:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        message = " ".join(str(status["message"]).split())
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise StateError(f"the result of `{program}` is unknown: {short(data)}") from None
    raise StateError(f"`{program}` could not be run: {message}")


def _feed(connection: Any, caller: Caller, over: threading.Event) -> None:
    """Sends the input, and the size of the terminal after each change."""
    from websocket import WebSocketException

    try:
        while not over.is_set():
            size = caller.new_size()
            if size is not None:
                message = json.dumps({"Height": size[0], "Width": size[1]}).encode()
                connection.send(bytes([SIZE]) + message, BINARY)
            if caller.source is None:
                over.wait(POLL_INTERVAL)
                continue
            ready, _, _ = select.select([caller.source], [], [], POLL_INTERVAL)
            if not ready:
                continue
            data = caller.read()
            if data:
                connection.send(bytes([STDIN]) + data, BINARY)
                continue
            spoken = {key.lower(): value for key, value in (connection.getheaders() or {}).items()}
            if spoken.get("sec-websocket-protocol") == NEWEST:
                connection.send(bytes([CLOSE, STDIN]), BINARY)
    except (WebSocketException, OSError):
        return  # the program has ended: the receiver reads its result
