"""The program that takes stacks: how it is called, and its answer."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path

from torchx.errors import StateError
from torchx.machine import aborter as machine_aborter
from torchx.machine import stack_taker
from torchx.scheduling.stacks import AppStacks, parse_stacks

TIMEOUT = 120.0
"""Maximum seconds to take the stacks of one machine."""

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
