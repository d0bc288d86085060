"""Leases of free ports for jobs on this machine, so that no two jobs get the same port.

A port that is only checked to be free can be taken before the job listens on it. A lease is held by a socket
in Linux's abstract namespace, named after the port: it has the same scope as the port (one network namespace,
all its users), and the kernel releases it when its holder ends, however it ends.

Any user can take any of these names, so between users leases are advisory: if no port has a free name, ports
whose names another user holds are leased too, as long as no program listens on them. Between processes of one
user a lease is always respected.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress

from torchx.errors import StateError
from torchx.machine import socket_names

POOL = range(20000, 32768)
"""Ports without well-known services, below the ephemeral range of Linux."""

_NAME = "torchx-port-"

PREFIX = "TORCHX_PORT_"
"""The variable for a port called ``c10d`` is ``TORCHX_PORT_C10D``."""


class PortLeases:
    """Leases of one free port for each name, until :meth:`close` or the end of the process.

    The ports differ from each other and from those of all other leases on this machine. Nothing listens on
    them at the time of the lease; a program that does not use leases may still take one later.

    Args:
        names: the names of the ports, as in ``Role.port_map``.
        pool: the ports to choose from.

    Raises:
        StateError: all ports are in use.
    """

    def __init__(self, names: Iterable[str], pool: range = POOL) -> None:
        self._locks: list[socket.socket] = []
        self.ports: dict[str, int] = {}
        untried = _from_a_random_one_on(pool)
        contested: Iterator[int] | None = None
        try:
            for name in dict.fromkeys(names):
                port = next(filter(self._take, untried), None)
                if port is None:
                    if contested is None:
                        contested = iter(_held_by_others(pool))
                    port = next(filter(self._take_contested, contested), None)
                if port is None:
                    raise StateError(f"no port from {pool[0]} to {pool[-1]} is free on this machine")
                self.ports[name] = port
        except BaseException:
            self.close()
            raise

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that pass the ports to replicas.

        >>> with PortLeases(["c10d", "web-ui"]) as leases:
        ...     sorted(leases.env)
        ['TORCHX_PORT_C10D', 'TORCHX_PORT_WEB_UI']
        """
        return {port_variable(name): str(port) for name, port in self.ports.items()}

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that hold the leases; a process that inherits them holds the leases too."""
        return [lock.fileno() for lock in self._locks]

    def close(self) -> None:
        """Releases the ports, unless another process holds them too."""
        while self._locks:
            self._locks.pop().close()

    def __enter__(self) -> PortLeases:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _take(self, port: int) -> bool:
        return self._lease(port, f"{_NAME}{port}")

    def _take_contested(self, port: int) -> bool:
        """Leases a port whose name another user holds, under an unpredictable name."""
        return self._lease(port, f"{_NAME}{port}.{os.urandom(8).hex()}")

    def _lease(self, port: int, name: str) -> bool:
        lock = socket_names.hold(name, socket_names.DATAGRAM)
        if lock is None:
            return False
        others = [inode for other, inode in _names().get(port, ()) if other != name]
        if not _is_free(port) or (others and not _own_sockets().isdisjoint(others)):
            lock.close()  # in use, or leased by another process of this user under another name
            return False
        self._locks.append(lock)
        return True


def port_variable(name: str) -> str:
    """Returns the environment variable for the port of a name.

    >>> port_variable("c10d")
    'TORCHX_PORT_C10D'
    """
    return PREFIX + re.sub(r"\W", "_", name).upper()


def _from_a_random_one_on(pool: range) -> Iterator[int]:
    """Yields every port of the pool once, from a random one on, so that concurrent callers rarely collide."""
    start = int.from_bytes(os.urandom(4), "big")
    return (pool[(start + n) % len(pool)] for n in range(len(pool)))


def _names() -> dict[int, list[tuple[str, str]]]:
    """Returns the names of all leases by port, with the inodes of their sockets."""
    leases: dict[int, list[tuple[str, str]]] = {}
    for name, inode in socket_names.table(_NAME, socket_names.DATAGRAM):
        port = name[len(_NAME) :].partition(".")[0]
        if port.isdecimal() and len(port) <= 5:
            leases.setdefault(int(port), []).append((name, inode))
    return leases


def _own_sockets() -> set[str]:
    """Returns the inodes of the sockets that processes of this user have open."""
    links: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - names
        with suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():  # noqa: PTH116 - many
                continue
            for descriptor in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names
                with suppress(OSError):
                    links.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))  # noqa: PTH115 - many
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def _held_by_others(pool: range) -> list[int]:
    """Returns the ports of a pool whose names are held only by other users."""
    names = _names()
    if not any(port in pool for port in names):
        return []
    own = _own_sockets()
    free = [port for port, held in names.items() if not any(inode in own for _, inode in held)]
    untried = _from_a_random_one_on(pool)
    wanted = set(free)
    return [port for port in untried if port in wanted]


def _is_free(port: int) -> bool:
    """Returns True if nothing listens on the port, on any address of this machine."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - not served
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            # as servers do: ignore connections in TIME_WAIT
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
    return True
