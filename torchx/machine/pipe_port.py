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
    if port.isdigit():
        text = port
    else:
        text = os.environ.get(port, "")
    if not text.isdigit():
        sys.stderr.write("the replica has no port " + port + "\n")
        return 1
    try:
        connection = connect_here(int(text))
    except OSError as error:
        sys.stderr.write("port " + text + ": " + str(error.strerror or error) + "\n")
        return 1
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


def connect_here(port: int) -> socket.socket:
    """Returns a connection to a port of this machine, at the loopback addresses or at that of its name.

    Raises:
        OSError: of the first address: nothing listens there.
    """
    failures = []
    for host in ("127.0.0.1", "::1", socket.gethostname()):
        try:
            connection = socket.create_connection((host, port), 10)
            connection.settimeout(None)
            return connection
        except OSError as error:
            failures.append(error)
    raise failures[0]


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
