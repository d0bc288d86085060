"""Connects its standard streams to a port of this machine; runs on nodes too, without torchx."""

import os
import socket
import sys
import threading

AT_A_TIME = 1 << 16


def main(port: str) -> int:
    """Connects, writes one byte, and copies until the port has ended the connection.

    Args:
        port: its number, or the variable with its number.
    """
    text = port if port.isdigit() else os.environ.get(port, "")
    if not text.isdigit():
        sys.stderr.write("the replica has no port " + port + "\n")
        return 1
    connection = None
    for host in ("localhost", socket.gethostname()):
        try:
            connection = socket.create_connection((host, int(text)), 10)
            break
        except OSError as error:
            why = str(error.strerror or error)
    if connection is None:
        sys.stderr.write("port " + text + ": " + why + "\n")
        return 1
    connection.settimeout(None)
    write(b"\0")
    threading.Thread(target=feed, args=(connection,), daemon=True).start()
    try:
        while True:
            data = connection.recv(AT_A_TIME)
            if not data:
                return 0
            write(data)
    except OSError:
        return 0


def feed(connection: socket.socket) -> None:
    """Copies the input to the connection, and ends that direction after it."""
    try:
        while True:
            data = os.read(0, AT_A_TIME)
            if not data:
                break
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def write(data: bytes) -> None:
    """Writes all data."""
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
