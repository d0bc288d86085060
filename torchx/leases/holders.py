"""Leases: names that one holder has at a time, on this machine, whatever its user.

A lease is a listening socket in Linux's abstract namespace. To bind it is to take the lease: the kernel
allows that once in a network namespace, for all users. The kernel also names the holder to any process that
connects: its user and pid at the time of its last ``listen``. A connection ends when the holder does, so that
a waiting process wakes at that moment. No file, no service, and nothing to clean up.

Any user can hold any name: leases keep users from colliding, not from obstructing each other on purpose. The
holder of a name is always known.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from torchx import json_shape
from torchx.lazy import lazy_imports
from torchx.machine import processes, socket_names

with lazy_imports:
    import select
    import socket

PREFIX = "torchx-lease-"
"""The beginning of the names of leases."""

BACKLOG = 4096
"""Connections that the kernel keeps for a holder that does not accept them; its own limit applies too."""

ANSWERED_WITHIN = 1.0
"""Maximum seconds to wait for the answers of holders; user and pid are known without an answer."""

LONGEST_ANSWER = 4096
"""Maximum bytes that are read from a holder."""

ATTEMPTS = 20
"""Attempts to take leases that other processes take at the same time."""

LAST_TIME = 1e11
"""The latest end that a holder can report, seconds since the epoch."""

_APP_ID = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,255}"


class Holder(NamedTuple):
    """The process that holds a lease.

    Attributes:
        uid: its user, from the kernel; None if it accepts no connection.
        pid: its pid, from the kernel; None if it is unknown, or in another pid namespace.
        since: its start, seconds since the epoch; None if unknown.
        app: the id of the application, as the holder reports it; empty if it does not.
        ends: the latest time of its end, as the holder reports it, seconds since the epoch; None if unknown.
    """

    uid: int | None
    pid: int | None = None
    since: float | None = None
    app: str = ""
    ends: float | None = None


class Leases:
    """Leases that this process holds until :meth:`close`, its end, or that of a process that inherits them.

    Args:
        sockets: the socket of each lease, by name.
    """

    def __init__(self, sockets: Mapping[str, socket.socket]) -> None:
        self._sockets = dict(sockets)

    @property
    def names(self) -> list[str]:
        """The names of the leases."""
        return list(self._sockets)

    @property
    def sockets(self) -> list[socket.socket]:
        """The listening sockets; connections to them may be accepted."""
        return list(self._sockets.values())

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that hold the leases; a process that inherits them holds the leases too."""
        return [held.fileno() for held in self._sockets.values()]

    def listen(self) -> None:
        """Makes this process the one that the kernel names as the holder."""
        for held in self._sockets.values():
            held.listen(BACKLOG)

    def add(self, other: Leases) -> None:
        """Moves the leases of another object to this one."""
        self._sockets |= other._sockets
        other._sockets = {}

    def close(self) -> None:
        """Releases the leases, unless another process holds them too."""
        while self._sockets:
            self._sockets.popitem()[1].close()

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def take(names: Iterable[str]) -> Leases | None:
    """Takes leases: all of them, or none.

    They are taken in a fixed order, so that of several callers one succeeds.

    Args:
        names: the names of the leases.

    Returns:
        The leases; None if a process has one of them.

    Raises:
        OSError: no socket can be created, or a name has more than 90 bytes.
    """
    return _take([([name], 1) for name in sorted(set(names))])


def take_some(wanted: Sequence[tuple[Sequence[str], int]]) -> Leases | None:
    """Takes a number of leases of each group of names: all of them, or none.

    Args:
        wanted: the names of each group, the preferred ones first, and the number of leases to take. Groups
            have no name in common, and all callers list the groups in the same order.

    Returns:
        The leases; None if too few are free.

    Raises:
        OSError: no socket can be created, or a name has more than 90 bytes.
    """
    for attempt in range(ATTEMPTS):
        used = names_in_use()
        if any(sum(name not in used for name in names) < count for names, count in wanted):
            return None
        leases = _take(wanted)
        if leases is not None:
            return leases
        # another process takes some at the same time, and may give up too
        time.sleep(os.urandom(1)[0] * 1e-5 * (attempt + 1))
    return None


def _take(wanted: Sequence[tuple[Sequence[str], int]]) -> Leases | None:
    taken: dict[str, socket.socket] = {}
    leases = Leases({})
    try:
        for names, count in wanted:
            taken = {}
            for name in names:
                if len(taken) == count:
                    break
                held = socket_names.hold(PREFIX + name)
                if held is not None:
                    taken[name] = held
                    leases.add(Leases({name: held}))
                    held.listen(BACKLOG)
            if len(taken) < count:
                leases.close()
                return None
    except BaseException:
        leases.close()
        raise
    return leases


def inherited() -> Leases:
    """Returns the leases whose descriptors this process has inherited from the process that took them.

    To be called once, before a lease is taken here: several objects would close the same descriptors.
    """
    sockets = {}
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - names
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):  # noqa: PTH115 - a text
                continue
            held = socket.socket(fileno=number)
            name = held.getsockname()
            if (
                isinstance(name, bytes)
                and name.startswith(b"\0" + PREFIX.encode())
                and held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            ):
                sockets[name[1 + len(PREFIX) :].decode()] = held
            else:
                held.detach()
    return Leases(sockets)


def names_in_use() -> set[str]:
    """Returns the names of all leases that processes of this network namespace hold, whatever their user."""
    return {held.name.removeprefix(PREFIX) for held in socket_names.table(PREFIX)}


def holders(names: Iterable[str]) -> dict[str, Holder]:
    """Returns the holders of leases, without those that are free.

    Args:
        names: the names of the leases.
    """
    used = names_in_use()
    found: dict[str, Holder] = {}
    with contextlib.ExitStack() as opened:
        silent: dict[int, tuple[str, socket.socket]] = {}
        poll = select.poll()
        for name in dict.fromkeys(names):
            if name not in used:
                continue
            found[name] = Holder(None)
            connection = connect(name)
            if connection is not None:
                opened.enter_context(connection)
                found[name] = _credentials(connection)
                silent[connection.fileno()] = name, connection
                poll.register(connection, select.POLLIN)
        end = time.monotonic() + ANSWERED_WITHIN
        while silent and (left := end - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left * 1000):
                poll.unregister(descriptor)
                name, connection = silent.pop(descriptor)
                app, ends = _answer(connection)
                found[name] = found[name]._replace(app=app, ends=ends)
    return found


def connect(name: str) -> socket.socket | None:
    """Returns a connection to the holder of a lease; None if it is free, or its holder accepts none."""
    return socket_names.connect(PREFIX + name)


def _credentials(connection: socket.socket) -> Holder:
    pid, uid = socket_names.peer_of(connection)
    return Holder(uid, pid or None, _started(pid) if pid else None)


def _started(pid: int) -> float | None:
    """Returns the time at which a process was started, seconds since the epoch."""
    entry = processes.look_up(pid)
    if entry is None:
        return None
    return time.time() - processes.age(entry.process)


def _answer(connection: socket.socket) -> tuple[str, float | None]:
    """Returns the application of a holder and the time of its end, as far as it reports them."""
    try:
        answer = json.loads(connection.recv(LONGEST_ANSWER))
    except (OSError, ValueError, RecursionError):
        return "", None
    app = json_shape.typed_at(answer, str, "app")
    if not re.fullmatch(_APP_ID, app):
        app = ""
    return app, _end(*(json_shape.typed_at(answer, float, name) for name in ("ends", "ends_at")))


def _end(ends: float, ends_at: float) -> float | None:
    """Returns an end by the system clock of now.

    Args:
        ends: seconds since the epoch, by the clock at the start of the holder.
        ends_at: seconds since the boot of the machine; older versions do not report them.
    """
    if 0 < ends_at < LAST_TIME:
        return time.time() + ends_at - processes.uptime()
    if 0 < ends < LAST_TIME:
        return float(ends)
    return None
