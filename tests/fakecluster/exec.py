"""Programs that are run in pods of the fake cluster: the server's side of the websocket."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import IO, Any
from urllib.parse import parse_qs, urlsplit

from fakecluster.store import Object

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def serve(handler: BaseHTTPRequestHandler, pod: Object) -> None:
    """Runs the requested program, and sends its output until it has ended."""
    query = parse_qs(urlsplit(handler.path).query)
    shake_hands(handler)
    cluster = handler.server.cluster  # type: ignore[attr-defined]
    await_node(cluster)  # the server has taken the connection, and the kubelet behind it hangs
    send = sender(handler)
    try:
        if query["command"][0] in cluster.absent_programs:
            raise FileNotFoundError(errno.ENOENT, "executable file not found in $PATH")
        process = subprocess.Popen(
            query["command"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(cluster, pod),
        )
    except OSError as error:
        result = f'exec: "{query["command"][0]}": {error.strerror}'
        send(3, json.dumps({"status": "Failure", "reason": "InternalError", "message": result}).encode())
        return
    with process:
        assert process.stdin and process.stdout and process.stderr
        threads = [
            threading.Thread(
                target=_pump, args=(send, 1, process.stdout, cluster.longest_piece), daemon=True
            ),
            threading.Thread(
                target=_pump, args=(send, 2, process.stderr, cluster.longest_piece), daemon=True
            ),
            threading.Thread(target=_feed, args=(handler, process.stdin, "stdin" in query), daemon=True),
        ]
        for thread in threads:
            thread.start()
        for thread in threads[:2]:
            thread.join()
        code = process.wait()
        code = 128 - code if code < 0 else code
    status: Object = {"status": "Success"}
    if code:
        causes = [{"reason": "ExitCode", "message": str(code)}]
        status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    send(3, json.dumps(status).encode())
    threads[2].join(5)


def await_node(cluster: Any) -> None:
    """Blocks while the node hangs."""
    while cluster.hung and not cluster.stopping.wait(0.05):
        pass


def shake_hands(handler: BaseHTTPRequestHandler) -> None:
    """Accepts a websocket; from 1.36 on, once the node has answered (facts 1.36)."""
    cluster = handler.server.cluster  # type: ignore[attr-defined]
    if cluster.reaches_node_first:
        await_node(cluster)
    offered = handler.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
    chosen = "v5.channel.k8s.io" if "v5.channel.k8s.io" in offered else "v4.channel.k8s.io"
    key = handler.headers["Sec-WebSocket-Key"].encode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header(
        "Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + _MAGIC).digest()).decode()
    )
    handler.send_header("Sec-WebSocket-Protocol", chosen)
    handler.end_headers()
    handler.close_connection = True


def sender(handler: BaseHTTPRequestHandler) -> Callable[[int, bytes], None]:
    """Returns a function that sends a message on a channel."""
    lock = threading.Lock()

    def send(channel: int, data: bytes) -> None:
        payload = bytes([channel]) + data
        head = bytes([0x82]) + (
            bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2, "big")
        )
        with lock:
            handler.wfile.write(head + payload)

    return send


def frames(handler: BaseHTTPRequestHandler) -> Iterator[bytes]:
    """Yields the messages of the client until it hangs up."""
    while head := handler.rfile.read(2):
        size = head[1] & 0x7F
        if size >= 126:
            size = int.from_bytes(handler.rfile.read(2 if size == 126 else 8), "big")
        mask, data = handler.rfile.read(4), handler.rfile.read(size)
        if head[0] & 0x0F == 8:
            return
        yield bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


def _environment(cluster: object, pod: Object) -> dict[bytes, bytes]:
    """Returns the environment of the container."""
    node = cluster.node  # type: ignore[attr-defined]
    main = None if node is None else node.processes.get(pod["metadata"]["uid"])
    found = {b"PATH": b"/usr/bin:/bin"}
    if main is not None:
        with suppress(OSError), open(f"/proc/{main.pid}/environ", "rb") as file:
            found.update(each.split(b"=", 1) for each in file.read().split(b"\0") if b"=" in each)  # type: ignore[misc]
    return {**found, b"POD": pod["metadata"]["name"].encode()}


def _pump(send: object, channel: int, source: IO[bytes], longest: int) -> None:
    while data := source.read1(longest):  # type: ignore[attr-defined]
        send(channel, data)  # type: ignore[operator]


def _feed(handler: BaseHTTPRequestHandler, target: IO[bytes], wanted: bool) -> None:
    """Takes the client's frames until it hangs up."""
    if not wanted:
        target.close()
    try:
        for data in frames(handler):
            if data[:1] == b"\0" and not target.closed:
                target.write(data[1:])
                target.flush()
            elif data[:2] == b"\xff\0":
                target.close()
    except (OSError, ValueError):
        return
    finally:  # as containerd: the input ends with the connection, and the program goes on
        with suppress(OSError):
            target.close()
