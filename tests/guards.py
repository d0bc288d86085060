"""The programs that end others when the command line is killed, in containers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def processes_with(argument: bytes) -> list[int]:
    """Returns the processes of this machine and its containers that have an argument with this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            arguments = path.read_bytes()
            if argument in arguments and b"torchx" not in arguments:
                found.append(int(path.parent.name))
    return found


def guards_of(pid: int) -> list[int]:
    """Returns the guard of a process, which has its mark as an argument, once it waits."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    mark = next((each for each in variables if each.startswith(b"TORCHX_EXEC_ID=")), None)
    if mark is None:
        return []  # it is about to execute another program
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            arguments = path.read_bytes().split(b"\0")
            if arguments[0] == b"sh" and mark in arguments and b"_ID=;" not in arguments[2]:
                found.append(int(path.parent.name))
    return found


def parent_of(pid: int) -> int:
    """Returns the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
