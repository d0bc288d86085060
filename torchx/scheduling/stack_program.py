"""The programs about stacks: how they are called, here and in replicas, and their answers."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from torchx.errors import StateError
from torchx.machine import aborter as machine_aborter
from torchx.machine import stack_taker
from torchx.scheduling.stacks import AppStacks, combine, parse_stacks
from torchx.scheduling.streams import Streams
from torchx.specs.status import Member

TIMEOUT = 120.0
"""Maximum seconds to take the stacks of one machine."""

AT_A_TIME = 32
"""Replicas in which the program runs concurrently."""

Run = Callable[[str, int, Sequence[str], Streams], int]
"""Runs a command in a replica, given by role and number, and returns its exit code."""

_SHELL = (
    'for p in "$0" python3 python; do command -v "$p" > /dev/null 2>&1 && exec "$p" -I "$@"; done; exit 127'
)
_TAKER = b"from torchx.machine.stack_taker import find, is_python, look_up, read\n"
_READ = "import sys; exec(sys.stdin.buffer.read({size}).decode())"


@cache
def program() -> bytes:
    """Returns the source of the program."""
    return Path(stack_taker.__file__).read_bytes()


def arguments(job: str, replicas: Collection[str] | None, ranks: Collection[int] | None, native: bool) -> str:
    """Returns the argument of the program.

    Args:
        job: the handle of the application; empty in a container.
        replicas: only these replicas (``role/id``) and roles; None for all.
        ranks: only the processes of these ranks; None for all.
        native: include frames of compiled code.
    """
    request = {"job": job, "native": native}
    wanted = {"replicas": replicas, "ranks": ranks}
    return json.dumps({**request, **{name: sorted(v) for name, v in wanted.items() if v is not None}})


@cache
def aborter() -> bytes:
    """Returns the source of the program that aborts Python processes."""
    taker, end, _ = program().partition(b"\nif __name__ ==")
    _, begin, rest = Path(machine_aborter.__file__).read_bytes().partition(_TAKER)
    if not (end and begin):
        raise RuntimeError("the programs about stacks are not as expected")
    imports = b"import resource\nimport time\n"
    return taker + b"\n" + imports + rest + b"\nmain(sys.argv[1:])\n"


def command(argument: str, python: str = "python3", source: bytes | None = None) -> list[str]:
    """Returns the command that reads the program from its input and runs it, where a shell and Python exist.

    Args:
        argument: the argument of the program.
        python: the interpreter, if it exists there.
        source: the program (default: the one that takes stacks).
    """
    size = len(program() if source is None else source)
    return ["sh", "-c", _SHELL, python, "-c", _READ.format(size=size), argument]


def answer(stdout: bytes, stderr: bytes, code: int, role: str = "", replica: int = 0) -> AppStacks:
    """Reads the output of the program.

    Args:
        stdout, stderr, code: its output, its error output and its exit code.
        role, replica: the replica of processes that do not name theirs.

    Raises:
        StateError: it failed.
    """
    if code == 127:
        raise StateError(
            "no Python to take the stacks with",
            hint="with python3 in the image, it shows the state and the system call of each process",
        )
    try:
        return parse_stacks(stdout.decode("utf-8", "replace"), role, replica)
    except ValueError as error:
        lines = stderr.decode("utf-8", "replace").strip().splitlines()
        if lines:
            reason = lines[-1]
        else:
            reason = f"exit {code}, {error}"
        raise StateError(f"the stacks cannot be taken: {reason}") from None


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
