"""Runs the programs about stacks in replicas, through their engine."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from torchx.errors import StateError
from torchx.scheduling.stack_program import aborter, answer, command, program
from torchx.scheduling.stacks import AppStacks, combine
from torchx.scheduling.streams import Streams
from torchx.specs.status import Member

AT_A_TIME = 32
"""Replicas in which the program runs concurrently."""

Run = Callable[[str, int, Sequence[str], Streams], int]
"""Runs a command in a replica, given by role and number, and returns its exit code."""


def take_in_replicas(run: Run, replicas: Iterable[Member], roles: Sequence[str], argument: str) -> AppStacks:
    """Returns the stacks of the processes of replicas; a replica without them has a note.

    Args:
        run: runs a command in a replica.
        replicas: the replicas.
        roles: all roles, in order.
        argument: the argument of the program.
    """

    def take(replica: Member) -> AppStacks:
        try:
            out, err, code = _run(run, *replica, program(), argument)
            return answer(out, err, code, *replica)
        except StateError as error:  # must not hide the others
            return AppStacks((), (f"{replica[0]}/{replica[1]}: {error.message}",))

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        parts = list(pool.map(take, replicas))
    return combine(parts, roles)


def abort_in_replicas(run: Run, replicas: Iterable[Member]) -> None:
    """Aborts the Python processes of replicas that are to be ended, so that they print their stacks."""

    def abort(replica: Member) -> None:
        with suppress(StateError):  # no stacks: it is ended anyway
            _run(run, *replica, aborter(), '{"job": ""}')

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(abort, replicas))


def _run(run: Run, role: str, number: int, source: bytes, argument: str) -> tuple[bytes, bytes, int]:
    out, err = io.BytesIO(), io.BytesIO()
    reader, writer = os.pipe()
    try:
        with open(writer, "wb") as pipe:
            pipe.write(source)  # fits the buffer of a pipe
        code = run(role, number, command(argument, source=source), Streams(out, err, reader))
    finally:
        os.close(reader)
    return out.getvalue(), err.getvalue(), code
