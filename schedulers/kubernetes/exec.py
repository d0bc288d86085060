"""Runs a program in the container of a running pod, and connects to its ports, over websockets.

Clusters before 1.36 accept a connection to a pod before they reach its node, so a hanging node looks like a
program without output. A live node responds to a second program, `true`, even if the image lacks it. Newer
clusters do not answer at all; if they answer other requests, the node hangs.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from torchx.errors import StateError
from torchx.machine import polling
from torchx.machine.port_names import resolve_port, variable_of
from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.forwarding import BINARY, CLOSING, Forward, websocket_failures
from torchx.schedulers.kubernetes.api.objects import conditions_of, short, time_of, value_at
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.names import CONTAINER
from torchx.schedulers.kubernetes.objects import require
from torchx.schedulers.kubernetes.state.attempts import container_of, live, waits_for
from torchx.schedulers.kubernetes.state.replicas import by_replica, members_of
from torchx.schedulers.kubernetes.state.taken import age, node_of
from torchx.schedulers.shared.exec import POLL_INTERVAL, Caller, not_running
from torchx.schedulers.shared.exec_guard import Guard, new_mark
from torchx.scheduling.checks import require_replicas
from torchx.scheduling.streams import Streams

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


STDIN, STDOUT, STDERR, ERROR, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""Channels: the first byte of each message."""
ENV = "env"
"""The program that marks another one: an exec request has no environment."""
_FROM_ENV, _NO_ENV = b"env: ", b'exec: \\"env\\"'
_LONGEST_LINE = 1 << 13
"""Maximum bytes of a message of ``env``, which contains the path of the program."""
LAST_PATIENCE = 2.0
"""Seconds for a program to end after its input."""
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


class _Input:
    """The input of a program in a pod that writes nothing.

    Args:
        cluster: the cluster.
        path: the path of the pod.
        command: the program and its arguments.

    Raises:
        ClusterError: the cluster rejects the request or does not respond.
    """

    def __init__(self, cluster: Cluster, path: str, command: Sequence[str]) -> None:
        params = [("command", argument) for argument in command] + [
            ("container", CONTAINER),
            ("stdin", "true"),
        ]
        self._connection = cluster.websocket(f"{path}/exec", params)

    def finish(self, data: bytes) -> None:
        """Sends data, and returns when the program has ended or after a short time."""
        with suppress(*websocket_failures()):
            self._connection.send(bytes([STDIN]) + data, BINARY)
            readable(self._connection, LAST_PATIENCE)

    def close(self) -> None:
        """Ends the connection, and with it the input."""
        self._connection.shutdown()


def pod_of(facts: Facts, role: str, replica: int) -> Object:
    """Returns the pod of a running replica.

    Raises:
        StateError: the replica does not exist or is not running.
    """
    members = members_of(facts)
    replicas: dict[str, list[int]] = {}
    for member in members:
        replicas.setdefault(member.role, []).append(member.replica)
    require_replicas(facts.app_id, replicas, role, [replica])
    place = next(m.role_index for m in members if m.role == role), replica
    mine = by_replica(facts.pods).get(place)
    if not mine or not live(mine[-1]):
        raise not_running(facts.app_id, role, replica)
    if "running" not in (container_of(mine[-1]).get("state") or {}):
        raise StateError(
            f"{role}/{replica} of {facts.app_id} is not running yet: {waits_for(mine[-1]).text}",
            code="not_running",
            facts={"replica": f"{role}/{replica}"},
        )
    return mine[-1]


def execute_in(
    cluster: Cluster, namespace: str, pod: Object, command: Sequence[str], streams: Streams
) -> int:
    """Runs a program in a pod and returns its exit code.

    The program ends with this process, however that ends, if the image has env, a shell, grep and tr.

    Raises:
        ClusterError: the cluster rejects the request or does not respond.
        StateError: the program does not exist, the node does not respond, or the connection was lost.
    """
    require_node(cluster, pod)
    name = str(pod["metadata"]["name"])
    path = path_of("v1", "pods", namespace, name)
    caller, mark = Caller(streams), new_mark()

    def run(argv: Sequence[str], *, marked: bool) -> int:
        params = [("command", argument) for argument in argv] + [("container", CONTAINER), ("stdout", "true")]
        if streams.stdin is not None:
            params.append(("stdin", "true"))
        params.append(("tty", "true") if streams.terminal else ("stderr", "true"))
        connection = connect(cluster, namespace, name, "exec", params)
        over = threading.Event()
        feeder = threading.Thread(
            target=_feed, args=(connection, caller, over), name="exec stdin", daemon=True
        )
        feeder.start()
        monitor = ConnectionMonitor(cluster, namespace, name)
        try:
            return _receive(connection, caller, command[0], monitor, marked=marked)
        finally:
            over.set()
            feeder.join(timeout=2)
            connection.shutdown()

    try:
        with Guard(mark, lambda guard: _Input(cluster, path, guard)):
            return run([ENV, mark, *command], marked=True)
    except _NoEnvError:
        return run(command, marked=False)


class _NoEnvError(StateError):
    """The image has no program that sets an environment variable."""


def _receive(
    connection: Any, caller: Caller, program: str, monitor: ConnectionMonitor, *, marked: bool
) -> int:
    """Shows the output of a program until its end, and returns its exit code.

    Args:
        connection: the connection to the program.
        caller: receives the output.
        program: its name, for messages.
        monitor: monitors the connection.
        marked: whether it is started by ``env``, whose message becomes an error.
    """
    output = _Output(caller, may_be_env=marked)
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
        if channel in (STDOUT, STDERR) and data:
            caller.kept = None
            output.show(data, channel)
        elif channel == ERROR:
            if marked and caller.kept is not None and _NO_ENV in data:
                raise _NoEnvError("no env")
            code = _code(data, program)
            if output.held and code in (126, 127):
                reason = output.held.decode("utf-8", "replace").strip().rpartition(": ")[2]
                raise StateError(f"`{program}` could not be run: {reason}")
            output.release()
            return code


class _Output:
    """The output of a program; holds the first line if it may be a message of ``env``, until another follows.

    Args:
        caller: receives the output.
        may_be_env: whether ``env`` starts the program.

    Attributes:
        held: the line, or its beginning: ``env`` writes it in pieces.
    """

    def __init__(self, caller: Caller, *, may_be_env: bool) -> None:
        self._caller, self._open, self._channel = caller, may_be_env, STDERR
        self.held = b""

    def show(self, data: bytes, channel: int) -> None:
        """Shows output, unless it is held."""
        text = self.held + data
        line = (
            b"\n" not in text[:-1]
            and len(text) <= _LONGEST_LINE
            and _FROM_ENV.startswith(text[: len(_FROM_ENV)])
        )
        self._open = self._open and line and (not self.held or channel == self._channel)
        if self._open:
            self.held, self._channel = text, channel
            return
        self.release()
        self._caller.show(data, error=channel == STDERR)

    def release(self) -> None:
        """Shows the line that is held."""
        if self.held:
            self._caller.show(self.held, error=self._channel == STDERR)
        self._open, self.held = False, b""


def _code(data: bytes, program: str) -> int:
    """Returns the exit code from the final status message."""
    try:
        status = json.loads(data)
        if status.get("status") == "Success":
            return 0
        for cause in value_at(status, "details", "causes") or []:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        message = " ".join(str(status["message"]).split())
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise StateError(f"the result of `{program}` is unknown: {short(data)}") from None
    raise StateError(f"`{program}` could not be run: {message}")


def _feed(connection: Any, caller: Caller, over: threading.Event) -> None:
    """Sends the input, and the size of the terminal after each change."""
    try:
        if caller.kept:  # read for a program that was not started
            connection.send(bytes([STDIN]) + caller.kept, BINARY)
        if caller.has_ended:
            _send_end(connection)
        while not over.is_set():
            size = caller.new_size()
            if size is not None:
                message = json.dumps({"Height": size[0], "Width": size[1]}).encode()
                connection.send(bytes([SIZE]) + message, BINARY)
            if caller.source is None:
                over.wait(POLL_INTERVAL)
                continue
            if not polling.readable([caller.source], POLL_INTERVAL):
                continue
            data = caller.read()
            if data:
                connection.send(bytes([STDIN]) + data, BINARY)
                continue
            _send_end(connection)
    except websocket_failures():
        return  # the program has ended: the receiver reads its result


def _send_end(connection: Any) -> None:
    """Ends the input of a program, if the cluster's protocol can."""
    spoken = {key.lower(): value for key, value in (connection.getheaders() or {}).items()}
    if spoken.get("sec-websocket-protocol") == NEWEST:
        connection.send(bytes([CLOSE, STDIN]), BINARY)


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
        ports = next((one.get("port_map") or {} for one in facts.roles if one.get("name") == role), {})
        env = {variable_of(name): str(number) for name, number in ports.items()}
        number = resolve_port(port, env, f"{role}/{replica}")
        return facts.namespace, str(found["metadata"]["name"]), number

    def connected() -> socket.socket:
        namespace, name, number = pod()
        connection = connect(clusters.of(app_id), namespace, name, "portforward", [("ports", str(number))])
        ours, theirs = socket.socketpair()
        forward = Forward(connection, theirs)
        try:
            forward.begin(f"port {number} of {role}/{replica}")
        except BaseException:
            ours.close()
            forward.close()
            raise
        return ours

    pod()
    return connected
