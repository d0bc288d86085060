"""The keepers of all users: their names, and the waiting jobs that they report to anyone.

Each state home with waiting jobs has a keeper. It listens on a name in Linux's abstract namespace, so that
the kernel names its user to everyone, and releases the name when it ends. A user can only report own jobs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchx.jobs import shape
from torchx.jobs.ticket import MOST_PRIORITY
from torchx.lazy import lazy_imports
from torchx.machine import socket_names
from torchx.waiting.order import Waiter, Wanted

with lazy_imports:
    import select
    import socket

PREFIX = "torchx-keeper-"
LONGEST = 1 << 24
"""Maximum bytes of a report."""

ANSWERS_WITHIN = 2.0
"""Maximum seconds to wait for a report; that of a stopped keeper is left out."""

MOST_WAITERS = 10_000
"""Maximum number of jobs in a report; further ones of another user are ignored."""

LIST, SUBSCRIBE, WAKE, OK = b"list\n", b"subscribe\n", b"wake ", b"ok\n"
"""Requests for a report, for one after each change, to check a job of the keeper's user; and its answer."""


def name_of(home: Path) -> str:
    """Returns the name that the keeper of a state home listens on."""
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]
    return f"{PREFIX}{os.geteuid()}-{digest}"


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
    sets: dict[frozenset[str], int] = {}
    jobs = [
        [
            waiter.app_id, waiter.at, waiter.priority, waiter.limit, waiter.held,
            [[sets.setdefault(wanted.names, len(sets)), wanted.amount] for wanted in waiter.wanted],
        ]
        for waiter in waiters
    ]  # fmt: skip
    data = {"sets": [sorted(names) for names in sets], "jobs": jobs}
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def parse(line: bytes, uid: int) -> list[Waiter]:
    """Returns the jobs of a user's report; none if it is damaged."""
    try:
        data = shape.mapping(json.loads(line), "report")
        sets = [frozenset(shape.text(name, "name") for name in names) for names in data["sets"]]
        return [_waiter(job, sets, uid) for job in data["jobs"][:MOST_WAITERS]]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return []


def _waiter(job: Any, sets: list[frozenset[str]], uid: int) -> Waiter:
    app_id, at, priority, limit, held, wanted = shape.sequence(job, "job")
    if type(priority) is not int or abs(priority) > MOST_PRIORITY:
        raise ValueError("priority")
    return Waiter(
        uid,
        shape.handle_text(app_id, "app_id"),
        shape.timestamp(at, "at"),
        tuple(Wanted(sets[int(index)], shape.integer(count, "count")) for index, count in wanted),
        priority,
        None if limit is None else shape.number(limit, "limit", shape.LATEST),
        bool(held),
    )


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
