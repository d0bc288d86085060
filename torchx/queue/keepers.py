"""The keepers of all users: their names, and the waiting jobs that they report to anyone.

Each state home with waiting jobs has a keeper. It listens on a name in Linux's abstract namespace, so that
the kernel names its user to everyone, and releases the name when it ends. A user can only report own jobs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from torchx import json_shape
from torchx.jobs.paths import Home
from torchx.jobs.ticket import Priority
from torchx.json_limits import compact_json
from torchx.json_shape import HandleText, Truth
from torchx.lazy import lazy_imports
from torchx.machine import files, socket_names
from torchx.queue.order import Waiter, Wanted, check_needs

with lazy_imports:
    import select
    import socket

PREFIX = "torchx-keeper-"
LONGEST_NAME = 256
LONGEST = 1 << 24
"""Maximum bytes of a report."""

ANSWERS_WITHIN = 2.0
"""Maximum seconds to wait for a report; that of a stopped keeper is left out."""

MOST_WAITERS = 10_000
"""Maximum number of jobs in a report; further ones of another user are ignored."""

LIST, SUBSCRIBE, WAKE, OK = b"list\n", b"subscribe\n", b"wake ", b"ok\n"
"""Requests for a report, for one after each change, to check a job of the keeper's user; and its answer."""


def name_of(home: Path) -> str:
    """Returns the name that the keeper of a state home listens on, unless another user holds it."""
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]
    return f"{PREFIX}{os.geteuid()}-{digest}"


def listen(home: Home, lock: int) -> socket.socket:
    """Returns a listening socket for the keeper of a state home, whose name :func:`connect_own` finds.

    Args:
        home: the state home.
        lock: a descriptor of the locked file of :func:`lock_of`.

    Raises:
        OSError: no socket can be created, or its name cannot be recorded.
    """
    name = name_of(home.path)
    listener = socket_names.hold(name)
    other = ""
    if listener is None:  # another user can hold any name that can be guessed
        other = f"{name}-{os.urandom(8).hex()}"
        listener = socket_names.hold(other)
        if listener is None:  # unexpected: it is a random one
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    listener.listen(1024)
    if other or os.fstat(lock).st_size:
        os.ftruncate(lock, 0)
        os.pwrite(lock, other.encode(), 0)
    return listener


def lock_of(home: Home) -> Path:
    """Returns the file that the keeper of a state home locks, with its name if it is not the usual one."""
    return home.queue / ".keeper"


def connect_own(home: Home, timeout: float) -> socket.socket | None:
    """Returns a connection to the keeper of a state home, or None without one.

    Args:
        home: the state home.
        timeout: maximum seconds until it accepts the connection, and until it answers.
    """
    name = name_of(home.path)
    with contextlib.suppress(OSError):
        name = files.read_file(lock_of(home), LONGEST_NAME).decode("utf-8", "replace") or name
    connection = connect(name, min(timeout, ANSWERS_WITHIN))
    if connection is None:
        return None
    if user_of(connection) != os.geteuid():
        connection.close()
        return None
    connection.settimeout(timeout)
    return connection


def names() -> list[str]:
    """Returns the names of all keepers of this network namespace."""
    return sorted({held.name for held in socket_names.table(PREFIX)})


def connect(name: str, timeout: float | None = ANSWERS_WITHIN) -> socket.socket | None:
    """Returns a connection to a keeper, or None without a keeper of that name."""
    return socket_names.connect(name, timeout)


def user_of(connection: socket.socket) -> int:
    """Returns the user of the other side of a connection, from the kernel."""
    return socket_names.peer_of(connection)[1]


def report(waiters: Iterable[Waiter]) -> bytes:
    """Returns a line with jobs, each without its user."""
    waiters = list(waiters)
    sets: dict[frozenset[str], int] = {}
    places = [waiter.place_at for waiter in waiters]
    jobs = [
        [
            waiter.app_id,
            waiter.at,
            waiter.priority,
            waiter.limit,
            waiter.held,
            [[sets.setdefault(wanted.names, len(sets)), wanted.amount] for wanted in waiter.wanted],
        ]
        for waiter in waiters
    ]
    data = {"sets": [sorted(names) for names in sets], "jobs": jobs, "places": places}
    return compact_json(data).encode() + b"\n"


class _Report(NamedTuple):
    """A report, as :func:`report` makes it."""

    sets: list[list[str]]
    jobs: list[tuple[HandleText, float, Priority, float | None, Truth, list[tuple[int, int]]]]
    places: list[float] | None = None


def parse(line: bytes, uid: int) -> list[Waiter]:
    """Returns the jobs of a user's report; none if it is damaged."""
    try:
        found = json_shape.read(_Report, json.loads(line), "report")
        sets = [frozenset(names) for names in found.sets]
        places = found.places
        if places is None:
            places = [0.0] * len(found.jobs)
        pairs = zip(found.jobs[:MOST_WAITERS], places[:MOST_WAITERS], strict=True)
        return [_waiter(job, sets, uid, place) for job, place in pairs]
    except (ValueError, TypeError, IndexError, RecursionError):
        return []


def _waiter(job: tuple[Any, ...], sets: list[frozenset[str]], uid: int, place_at: float) -> Waiter:
    app_id, at, priority, limit, held, wanted = job
    needs = tuple(Wanted(sets[index], count) for index, count in wanted)
    check_needs(needs)
    return Waiter(uid, app_id, at, needs, priority, limit, held, place_at)


def survey() -> list[Waiter]:
    """Returns the waiting jobs of all users; those of a keeper that does not answer are left out."""
    end = time.monotonic() + ANSWERS_WITHIN
    found: list[Waiter] = []
    poll = select.poll()
    silent: dict[int, tuple[socket.socket, bytearray]] = {}
    with contextlib.ExitStack() as opened:
        for name in names():
            connection = connect(name, 0.0)
            if connection is not None:
                opened.enter_context(connection)
                with contextlib.suppress(OSError):
                    connection.sendall(LIST)
                silent[connection.fileno()] = connection, bytearray()
                poll.register(connection, select.POLLIN)
        while silent and (left := end - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left * 1000):
                connection, line = silent[descriptor]
                if not _receive(connection, line):
                    poll.unregister(descriptor)
                    del silent[descriptor]
                    found += parse(bytes(line), user_of(connection))
    return found


def _receive(connection: socket.socket, line: bytearray) -> bool:
    """Adds data that has arrived to a line; returns False at its end."""
    try:
        data = connection.recv(1 << 16)
    except OSError:
        data = b""
    line += data
    return bool(data) and not data.endswith(b"\n") and len(line) < LONGEST
