"""Ports of pods of the fake cluster: the server's side of the websocket."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from fakecluster.exec import frames, sender, serve, shake_hands
from fakecluster.store import Object, Refused


def connect(handler: BaseHTTPRequestHandler, pod: Object, kind: str) -> None:
    """Serves a request for a program in a pod, or for one of its ports; it takes both rights (facts 1.36)."""
    cluster = handler.server.cluster  # type: ignore[attr-defined]
    name = pod["metadata"]["name"]
    reasons = {
        "get": f'User "jane" cannot get resource "pods{kind}" in API group "" in the namespace "default"',
        "create": "",
    }
    for verb, reason in reasons.items():
        if (verb, f"pods{kind}") in cluster.denied:
            raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: {reason}', name=name, kind="pods")
    if kind == "/exec":
        serve(handler, pod)
    else:
        forward(handler)


def forward(handler: BaseHTTPRequestHandler) -> None:
    """Connects to a port of this machine, where pods are processes, and copies until one side has ended."""
    port = int(parse_qs(urlsplit(handler.path).query)["ports"][0])
    shake_hands(handler)
    send = sender(handler)
    for channel in (0, 1):
        send(channel, port.to_bytes(2, "little"))
    try:
        target = socket.create_connection(("127.0.0.1", port), 10)
    except OSError as error:
        send(1, f"an error occurred forwarding {port} -> {port}: {error.strerror}".encode())
        return

    def download() -> None:
        with suppress(OSError):
            while data := target.recv(30_000):
                send(0, data)
        with suppress(OSError):
            handler.connection.shutdown(socket.SHUT_RDWR)

    with target:
        target.settimeout(None)
        threading.Thread(target=download, daemon=True).start()
        with suppress(OSError):
            for data in frames(handler):
                if data[:1] == b"\0":
                    target.sendall(data[1:])
