"""The JSON output of `torchx stacks`, as types."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from torchx_cli.schemas.keys import RoleName

Kind = Literal["main", "child", "launcher"]


class StackFrame(TypedDict):
    """A frame of a stack."""

    function: Annotated[str, "the name of the function"]
    file: Annotated[str, "the path of its file"]
    line: Annotated[int | None, "the current line"]


class StackOfThread(TypedDict):
    """The Python stack of a thread."""

    name: Annotated[str, "the name of the thread"]
    active: Annotated[bool, "whether it seemed to run"]
    owns_gil: Annotated[bool, "whether it held the global interpreter lock"]
    wait: Annotated[str, "the system call in which it waits; empty if it does not wait, or it is unknown"]
    frames: Annotated[list[StackFrame], "its frames, the innermost first"]


class StackOfProcess(TypedDict):
    """A process with the stacks of its threads."""

    role: RoleName
    replica: Annotated[int, "the number of its replica within the role, from 0"]
    attempt: Annotated[int | None, "the number of the attempt, from 1"]
    rank: Annotated[int | None, "the value of RANK in its environment"]
    kind: Annotated[
        Kind, "main: a rank or the program of a replica; child: a process of it; launcher: above it"
    ]
    host: Annotated[str, "the host on which it runs"]
    pid: Annotated[int, "its process id, as its container sees it"]
    parent: Annotated[int, "that of its parent"]
    program: Annotated[str, "the name of the program"]
    state: Annotated[str, "running, sleeping, stopped, traced, or blocked in the kernel"]
    wait: Annotated[str, "the system call in which its first thread waits, or an empty string"]
    threads: Annotated[list[StackOfThread], "the Python threads; empty for another program, or if unknown"]
    note: Annotated[str, "why there are no Python stacks, or an empty string"]


class StackGroup(TypedDict):
    """Processes with equal stacks, or with unknown ones."""

    kind: Annotated[Kind, "the kind of its processes"]
    count: Annotated[int, "the number of its processes"]
    of: Annotated[int, "the number of all processes of this kind"]
    unread: Annotated[bool, "whether the stacks are unknown, so that only states and system calls are equal"]
    ranks: Annotated[list[int], "the ranks of its processes"]
    processes: Annotated[list[int], "its processes, as positions in `processes`, from 0"]


class Stacks(TypedDict):
    """The stacks of an application."""

    handle: Annotated[str, "the handle: SCHEDULER://SESSION/APP_ID"]
    processes: Annotated[list[StackOfProcess], "its processes, by role, replica and rank"]
    groups: Annotated[list[StackGroup], "the groups of equal stacks, the rarest first"]
    notes: Annotated[list[str], "replicas that could not be read, and why"]
