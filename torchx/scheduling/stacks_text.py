"""Stacks as text: one paragraph for each group of equal ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchx.printable import one_line, ranges
from torchx.scheduling.stacks import CHILD, LAUNCHER, AppStacks, Frame, Group, ProcessStack, ThreadStack

MOST_FRAMES = (14, 6)
"""Frames of a longer stack that are shown: the innermost and the outermost ones."""
WIDTH = 110
"""Columns of the text where no terminal limits it."""
_NOUNS = {CHILD: ("child", "children"), LAUNCHER: ("launcher", "launchers")}
_HINTS = {
    "not installed": "for Python stacks: pip install py-spy, also in images and on nodes",
    "not permitted": "for Python stacks, allow ptrace: run as root, sysctl kernel.yama.ptrace_scope=0, or in "
    "containers add the capability SYS_PTRACE",
}


def as_text(stacks: AppStacks, width: int | None = None) -> list[str]:
    """Returns the lines that show stacks.

    Args:
        stacks: the stacks.
        width: maximum columns of a line (default: :data:`WIDTH`).
    """
    lines: list[str] = []
    for group in stacks.groups():
        lines += [*([""] if lines else []), *_group(group, max(width or WIDTH, 40))]
    found = {process.note for process in stacks.processes}
    hints = [hint for key, hint in _HINTS.items() if any(key in note for note in found)]
    for note in (*stacks.notes, *hints):
        lines.append(f"note: {one_line(note)}")
    return lines


def _group(group: Group, width: int) -> list[str]:
    first, *others = group.processes
    count = f"{len(group.processes)} of {group.of}"
    if others and not group.unread:
        count += " identical"
    elif others and first.note:
        count += " unread"
    if not others:
        pids = f"pid {first.pid}"
    else:
        pids = f"pids {first.pid}, ..."
    lines = [f"{title(group.processes)}  ({'' if group.of == 1 else count + ', '}{pids}, {_doing(first)})"]
    if first.note:
        lines.append(f"    {one_line(first.note)}")
    # the others only manage processes
    if first.kind == LAUNCHER:
        found = first.threads[:1]
    else:
        found = first.threads
    alike: dict[object, list[ThreadStack]] = {}
    for thread in found:
        family = thread.name.rstrip("0123456789")  # the threads of a pool are alike
        key = (thread.name == "MainThread", family, thread.shown)
        alike.setdefault(key, []).append(thread)
    for threads in sorted(
        alike.values(), key=lambda threads: (threads[0].name != "MainThread", len(threads))
    ):
        lines += _thread(threads[0], len(threads), len(found) > 1, width)
    return lines


def _doing(process: ProcessStack) -> str:
    """Returns the program and the state of a process."""
    wait = f" in {process.wait}" if process.wait else ""
    return one_line(f"{process.program} {process.state}{wait}")


def _thread(thread: ThreadStack, count: int, named: bool, width: int) -> list[str]:
    facts = ["holds the GIL"] if thread.gil else []
    if named and thread.wait:
        facts.append(f"in {thread.wait}")
    more = f" and {count - 1} more" if count > 1 else ""
    head = ""
    if named:
        head = f"{thread.name or 'thread'}{more}: "
    first, *others = _frames(thread.shown)
    items = [head + first, *(f"<- {frame}" for frame in others)]
    if facts:
        items.append(f" [{', '.join(facts)}]")
    return _wrapped(map(one_line, items), width)


def _wrapped(items: Iterable[str], width: int) -> list[str]:
    """Returns indented lines of whole items."""
    lines = [""]
    for item in items:
        line = f"{lines[-1]} {item}" if lines[-1] else item
        if lines[-1] and len(line) > width - 4:
            lines.append(f"    {item.lstrip()}")
        else:
            lines[-1] = line
    return [f"    {line}" for line in lines]


def _frames(frames: Sequence[Frame]) -> list[str]:
    inner, outer = MOST_FRAMES
    texts = [frame.text for frame in frames]
    if len(texts) > inner + outer + 1:
        left_out = f"... {len(texts) - inner - outer} frames ..."
        texts = [*texts[:inner], left_out, *texts[-outer:]]
    return texts or ["no Python frame"]


def title(processes: Iterable[ProcessStack]) -> str:
    """Returns the names of processes of one kind: their ranks, or their replicas."""
    processes = list(processes)
    noun = _NOUNS.get(processes[0].kind)
    ranks = sorted({p.rank for p in processes if p.rank is not None})
    if ranks:
        names = f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
    else:
        roles: dict[str, set[int]] = {}
        for process in processes:
            roles.setdefault(process.role, set()).add(process.replica)
        names = " ".join(one_line(f"{role}/{ranges(ids)}") for role, ids in roles.items())
    if noun:
        return f"{noun[len(processes) > 1]} of {names}"
    return names
