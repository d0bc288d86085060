"""Runs a program in the container of a running pod, and connects to its ports, over websockets."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from torchx.errors import StateError
from torchx.machine.port_names import resolve_port, variable_of
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
    while True:
        monitor.until_readable(connection)
        try:
            kind, frame = connection.recv_data_frame(True)
        except websocket_failures() as error:
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
    except websocket_failures():
        return  # the program has ended: the receiver reads its result


# --- ports -----------------------------------------------------------------------------------------

DATA, FORWARD_ERROR = 0, 1
"""Channels: the first byte of each message."""
FORWARD_AT_A_TIME = 1 << 15
IDLE_AFTER_END = 60.0
"""Seconds without data after which a connection is closed whose client has ended its direction."""


def port_connector(
    clusters: Clusters, app_id: str, role: str, replica: int, port: str
) -> Callable[[], socket.socket]:
    """Returns a function that connects to a port of a replica.

    Raises:
        StateError: the replica is not running, or has no such port.
    """

    def pod() -> tuple[str, str, int]:
        facts = require(clusters, app_id)
        found = pod_of(facts, role, replica)
        roles = (facts.record.get("app") or {}).get("roles") or []
        ports = next((one.get("port_map") or {} for one in roles if one.get("name") == role), {})
        env = {variable_of(name): str(number) for name, number in ports.items()}
        number = resolve_port(port, env, f"{role}/{replica}")
        return facts.namespace, str(found["metadata"]["name"]), number

    def connected() -> socket.socket:
        namespace, name, number = pod()
        path = path_of("v1", "pods", namespace, name) + "/portforward"
        connection = clusters.of(app_id).websocket(path, [("ports", str(number))])
        ours, theirs = socket.socketpair()
        forward = _Forward(connection, theirs)
        try:
            forward.begin(f"port {number} of {role}/{replica}")
        except BaseException:
            ours.close()
            forward.close()
            raise
        return ours

    pod()
    return connected


class _Forward:
    """Copies between a websocket and a socket, in two threads.

    The protocol cannot end one direction alone: after the end of the client's data, the connection remains
    until the server ends it or sends nothing more.

    Args:
        connection: the websocket.
        end: the socket; closed at the end.
    """

    def __init__(self, connection: Any, end: socket.socket) -> None:
        self._connection, self._end = connection, end
        self._last = 0.0  # time of the last data after the end of the client's; 0 before

    def begin(self, port: str) -> None:
        """Waits for the answer of the cluster, and starts.

        Raises:
            ClusterError: the cluster rejects the port or does not answer.
        """
        seen: set[int] = set()
        while len(seen) < 2:  # each channel begins with the number of the port
            channel, data = self._receive()
            if channel < 0 or (channel == FORWARD_ERROR and channel in seen):
                reason = data.decode("utf-8", "replace").strip()[:500]
                raise ClusterError(f"{port} cannot be reached: {reason}")
            seen.add(channel)
        for work in (self._download, self._upload):
            threading.Thread(target=work, name="port forward", daemon=True).start()

    def _receive(self) -> tuple[int, bytes]:
        """Returns a channel and its data; the channel is -1 at the end."""
        try:
            while True:
                kind, frame = self._connection.recv_data_frame(True)
                if kind == CLOSING:
                    return -1, b"the connection was closed"
                if frame.data:
                    return frame.data[0], frame.data[1:]
        except websocket_failures() as error:
            return -1, str(error).encode()

    def _download(self) -> None:
        """Copies from the cluster until the connection ends or fails."""
        with suppress(OSError):
            while True:
                channel, data = self._receive()
                if channel != DATA:
                    break
                if self._last:
                    self._last = time.monotonic()
                self._end.sendall(data)
        self.close()

    def _upload(self) -> None:
        """Copies to the cluster."""
        with suppress(*websocket_failures()):
            while data := self._end.recv(FORWARD_AT_A_TIME):
                self._connection.send(bytes([DATA]) + data, BINARY)
            self._last = time.monotonic()
            while (left := self._last + IDLE_AFTER_END - time.monotonic()) > 0:
                time.sleep(min(left, 1.0))
                if self._end.fileno() < 0:
                    return
        self.close()

    def close(self) -> None:
        """Ends both."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()
        self._connection.shutdown()


def websocket_failures() -> tuple[type[Exception], ...]:
    """Returns the errors of a broken websocket."""
    from websocket import WebSocketException

    return WebSocketException, OSError
