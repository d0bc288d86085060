"""A server for the tests of ports: it answers after the end of the client's data."""

from __future__ import annotations

import socket
import threading

SERVER = """
import os, socket, threading
server = socket.create_server((HOST, int(os.environ["TORCHX_PORT_HTTP"])))
print("up", flush=True)
def serve(client):
    received = b""
    while data := client.recv(65536):
        received += data
        if received.endswith(b"now"):
            break
    client.sendall(b"%d " % len(received) + os.environ["TORCHX_REPLICA"].encode() + b" " + received[::-1])
    client.shutdown(socket.SHUT_WR)
    while client.recv(65536):
        pass
    client.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


def program(host: str = "127.0.0.1") -> str:
    """Returns the source of the server, for ``python -c`` as an argument of a role."""
    return SERVER.replace("HOST", repr(host)).replace("$", "$$")


def exchange(client: socket.socket, data: bytes, *, end: bool = True) -> bytes:
    """Sends data, ends that direction, and returns the whole answer."""
    client.settimeout(60)
    sender = threading.Thread(target=_send, args=(client, data, end))
    sender.start()
    answer = b""
    while piece := client.recv(65536):
        answer += piece
    sender.join(60)
    return answer


def _send(client: socket.socket, data: bytes, end: bool) -> None:
    client.sendall(data)
    if end:
        client.shutdown(socket.SHUT_WR)


def expected(replica: str, data: bytes) -> bytes:
    """Returns the answer of the server."""
    return b"%d " % len(data) + replica.encode() + b" " + data[::-1]
