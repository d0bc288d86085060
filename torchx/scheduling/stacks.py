"""Stacks of the processes of an application, and their groups of equal ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from torchx.json_limits import Object, load_json
from torchx.json_shape import Truth, check_of, read

MAIN, CHILD, LAUNCHER = "main", "child", "launcher"
"""Kinds of processes: a rank, or the program of a replica without ranks; its children; its ancestors."""

_BOOTSTRAP = ("Thread._bootstrap", "Thread._bootstrap_inner", "_bootstrap", "_bootstrap_inner")
_WAITS = ("wait4", "waitid", "rt_sigsuspend", "rt_sigtimedwait")
"""System calls in which a process waits for its children."""

_IMPORT = "<frozen importlib"

_OWN = "torchx-dumps"
"""The name of the thread of ``torchx.distributed.recorder``."""


class Frame(NamedTuple):
    """A frame of a stack.

    Attributes:
        function: name of the function.
        file: path of its file.
        line: the current line; 0 if unknown.
        short: a short form of the path.
    """

    function: str
    file: str
    line: int
    short: str

    @property
    def text(self) -> str:
        """``function file:line``."""
        if self.line:
            where = f"{self.short or self.file}:{self.line}"
        else:
            where = self.short or self.file
        return f"{self.function} {where}".rstrip()


_ROW = check_of(tuple[str, str, int, str])


def _frame(value: Any, name: str) -> Frame:
    return Frame(*_ROW(value, name))


class ThreadStack(NamedTuple):
    """The Python stack of a thread.

    Attributes:
        name: name of the thread.
        frames: its frames, the innermost first.
        wait: the system call in which it waits; empty if it does not wait, or it is unknown.
        active: whether it seemed to run.
        gil: whether it held the global interpreter lock.
    """

    name: str
    frames: tuple[Annotated[Frame, _frame], ...]
    wait: str = ""
    active: Truth = False
    gil: Truth = False

    @property
    def shown(self) -> tuple[Frame, ...]:
        """The frames without those that start a thread, and those of the import system."""
        frames = (frame for frame in self.frames if frame.function not in _BOOTSTRAP)
        return tuple(frame for frame in frames if not frame.file.startswith(_IMPORT))


@dataclass(frozen=True)
class ProcessStack:
    """A process with the stacks of its threads.

    Attributes:
        role: its role.
        replica: the id of its replica.
        attempt: the attempt of the replica.
        rank: the value of ``RANK`` in its environment; None without one.
        kind: ``main``, ``child`` or ``launcher``.
        host: the host that it runs on.
        pid: its pid, as its container sees it.
        parent: that of its parent.
        program: the name of its program, without arguments.
        state: running, sleeping, stopped, traced, or blocked in the kernel.
        wait: the system call in which its first thread waits, or an empty string.
        threads: its Python threads, the main thread first; empty if they are unknown, or it runs no Python.
        note: why they are unknown.
    """

    role: str
    replica: int
    attempt: int | None
    rank: int | None
    kind: str
    host: str
    pid: int
    parent: int
    program: str
    state: str
    wait: str
    threads: tuple[ThreadStack, ...]
    note: str = ""

    @property
    def signature(self) -> tuple[Any, ...]:
        """Equal for processes whose stacks are equal."""
        stacks = sorted((thread.name == "MainThread", thread.shown) for thread in self.threads)
        waits = ""
        if not self.threads:
            waits = self.wait.partition(" of ")[0]
        stopped = ""
        if self.state in ("stopped", "traced"):
            stopped = self.state
        return self.kind, self.program if not self.threads else "", waits, stopped, tuple(stacks)


class Group(NamedTuple):
    """Processes with equal stacks, or with unknown ones.

    Attributes:
        processes: the processes.
        of: the number of all processes of their kind.
    """

    processes: tuple[ProcessStack, ...]
    of: int

    @property
    def unread(self) -> bool:
        """True if the stacks are unknown: only programs, states and system calls are known to be equal."""
        return not self.processes[0].threads


@dataclass(frozen=True)
class AppStacks:
    """The stacks of an application.

    Attributes:
        processes: its processes, by role, replica and rank.
        notes: replicas without stacks, and why.
    """

    processes: tuple[ProcessStack, ...]
    notes: tuple[str, ...] = ()

    def groups(self) -> list[Group]:
        """Returns the groups of equal stacks: those of ranks first, the rarest first."""
        found: dict[tuple[Any, ...], list[ProcessStack]] = {}
        for process in self.processes:
            found.setdefault(process.signature, []).append(process)
        counts = {kind: sum(p.kind == kind for p in self.processes) for kind in (MAIN, CHILD, LAUNCHER)}
        groups = [Group(tuple(members), counts[members[0].kind]) for members in found.values()]
        order = list(counts)
        return sorted(groups, key=lambda g: (order.index(g.processes[0].kind), len(g.processes)))

    def to_json(self) -> Object:
        """Returns plain data for ``json``; each group lists its processes by their position."""
        position = {id(process): n for n, process in enumerate(self.processes)}
        processes = []
        for process in self.processes:
            threads = [_thread_json(thread) for thread in process.threads]
            processes.append({**vars(process), "threads": threads})
        groups = [
            {
                "kind": group.processes[0].kind,
                "count": len(group.processes),
                "of": group.of,
                "unread": group.unread,
                "ranks": [p.rank for p in group.processes if p.rank is not None],
                "processes": [position[id(p)] for p in group.processes],
            }
            for group in self.groups()
        ]
        return {"processes": processes, "groups": groups, "notes": list(self.notes)}


def _thread_json(thread: ThreadStack) -> Object:
    frames = [{"function": f.function, "file": f.file, "line": f.line or None} for f in thread.frames]
    return {
        "name": thread.name,
        "active": thread.active,
        "owns_gil": thread.gil,
        "wait": thread.wait,
        "frames": frames,
    }


def combine(parts: Iterable[AppStacks], roles: Sequence[str]) -> AppStacks:
    """Returns the stacks of several hosts or containers as one, in the order of roles."""
    parts = list(parts)
    place = {name: number for number, name in enumerate(roles)}

    def order(process: ProcessStack) -> tuple[int, int, int, str, int]:
        rank = -1 if process.rank is None else process.rank
        return place.get(process.role, len(place)), process.replica, rank, process.host, process.pid

    processes = sorted((process for part in parts for process in part.processes), key=order)
    return AppStacks(tuple(processes), tuple(dict.fromkeys(note for part in parts for note in part.notes)))


class _Process(NamedTuple):
    """A process in an answer of ``torchx.machine.stack_taker``; its replica with the role, or empty."""

    replica: str
    attempt: str
    pid: int
    parent: int
    rank: int | None
    program: str
    state: str
    wait: str
    threads: list[ThreadStack]
    note: str


class _Answer(NamedTuple):
    """Such an answer."""

    host: str
    processes: list[_Process]


def parse_stacks(text: str, role: str = "", replica: int = 0) -> AppStacks:
    """Reads the answer of ``torchx.machine.stack_taker``.

    Args:
        text: the answer, which may come from a container.
        role, replica: the replica of processes that do not name theirs.

    Raises:
        ValueError: it is not an answer of that program.
    """
    try:
        answer: _Answer = read(_Answer, load_json(text), "answer")
    except TypeError as error:
        raise ValueError(f"not an answer with stacks: {error}") from None
    kinds = _kinds(answer.processes)
    processes = []
    for each in answer.processes:
        name, _, number = each.replica.rpartition("/")
        processes.append(
            ProcessStack(
                name or role,
                int(number) if name and number.isdigit() else replica,
                int(each.attempt) if each.attempt.isdigit() else None,
                each.rank,
                kinds[each.pid],
                answer.host,
                each.pid,
                each.parent,
                each.program,
                each.state,
                each.wait,
                _threads(each.threads),
                each.note,
            )
        )
    return AppStacks(tuple(processes))


def _kinds(entries: Sequence[_Process]) -> dict[int, str]:
    """Returns the kind of each process, by pid."""
    by_pid = {entry.pid: entry for entry in entries}
    parents = {entry.parent for entry in entries}
    with_ranks = {entry.replica for entry in entries if entry.rank is not None}
    started = {entry.replica for entry in entries if entry.attempt}

    def launches(pid: int) -> bool:
        entry = by_pid[pid]
        if entry.replica in with_ranks and entry.rank is None:
            return True
        if entry.replica in started and not entry.attempt:
            return True  # our own program on the nodes of Slurm, which starts the attempts
        is_waiting = not entry.threads and not entry.note and entry.wait in _WAITS
        return is_waiting and pid in parents  # a shell that waits for its program

    launchers = set(filter(launches, by_pid))
    kinds = dict.fromkeys(launchers, LAUNCHER)
    for pid, entry in by_pid.items():
        own = entry.parent in by_pid and by_pid[entry.parent].replica == entry.replica
        kinds.setdefault(pid, CHILD if own and entry.parent not in launchers else MAIN)
    return kinds


def _threads(entries: Iterable[ThreadStack]) -> tuple[ThreadStack, ...]:
    """Returns threads, the main thread first, without those of this project."""
    threads = (thread for thread in entries if thread.name != _OWN)
    return tuple(sorted(threads, key=lambda thread: thread.name != "MainThread"))
