"""Names of sockets without a file: a process holds a name, and the kernel releases it when the process ends.

A name in Linux's abstract namespace belongs to the socket that is bound to it, for all users of a network
namespace. It is released when the last process that has the socket ends, however it ends.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from torchx.lazy import lazy_imports

with lazy_imports:
    import socket
    import struct

STREAM, DATAGRAM = 1, 2
"""Types of sockets, as in the module ``socket``, which need not be loaded for them."""

_LISTENING = 0x10000
"""In the flags of /proc/net/unix: the socket accepts connections."""

_UNCONNECTED = "01"
"""In the state of /proc/net/unix; a connection shows the name of its listener, but does not hold it."""


class Held(NamedTuple):
    """A name that a socket holds.

    Attributes:
        name: the name.
        inode: the inode of the socket, as in the links of ``/proc/<pid>/fd``.
    """

    name: str
    inode: str


def hold(name: str, kind: int = STREAM) -> socket.socket | None:
    """Returns a socket that holds a name, or None if another socket of its type does.

    Args:
        name: the name, at most 107 bytes.
        kind: the type of the socket; sockets of different types may hold the same name.

    Raises:
        OSError: no socket can be created, e.g. because too many files are open, or the name is too long.
    """
    lock = socket.socket(socket.AF_UNIX, kind)
    try:
        lock.bind(f"\0{name}")
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return lock


def connect(name: str, timeout: float | None = 0.0) -> socket.socket | None:
    """Returns a connection to the stream socket that listens on a name, or None if none accepts it.

    Args:
        name: the name.
        timeout: that of the connection, seconds; 0 for one that never blocks, None for no limit.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        connection.connect(f"\0{name}")
    except OSError:
        connection.close()
        return None
    return connection


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Returns the pid and the user of the other side of a connection, from the kernel.

    The pid is 0 for a process of another pid namespace.
    """
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    pid, uid, _ = struct.unpack("iII", data)
    return pid, uid


def table(prefix: str, kind: int = STREAM) -> Iterator[Held]:
    """Yields the names in use that begin with a prefix, of one type; yields none without /proc.

    Any user can hold any name, so a name may have any characters.

    Args:
        prefix: the beginning of the names.
        kind: the type of the sockets.
    """
    with suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            begin = line.find(f" @{prefix}")
            fields = line[: max(begin, 0)].split()
            if len(fields) != 7:
                continue
            _, _, _, flags, number, state, inode = fields
            with suppress(ValueError):
                if int(number, 16) == kind and (int(flags, 16) & _LISTENING or state == _UNCONNECTED):
                    yield Held(line[begin + 2 :].rstrip("\n"), inode)
