"""Processes of this machine: started in one place, and never taken for one another.

A pid alone names nothing for long: it is used again. A process is known here by its pid and the moment it
started, and is only signalled through a descriptor that was opened before that moment was checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
"""From Linux's prctl(2)."""

PIDFD_SEND_SIGNAL, PIDFD_OPEN = 424, 434
"""System calls, the same on every architecture; a Python built for an old Linux lacks their functions."""

_LONGEST = 1_000_000.0
"""Seconds; poll(2) counts milliseconds in 31 bits."""


class Process(NamedTuple):
    """A process as long as this machine runs.

    Attributes:
        pid: its number.
        start: when it started, in clock ticks since the machine did (proc(5), field 22 of stat).
    """

    pid: int
    start: int


class Entry(NamedTuple):
    """One line of the process table: the process, its parent, its process group and its session."""

    process: Process
    parent: int
    group: int
    session: int
    zombie: bool


def missing() -> str | None:
    """Returns the requirement of a supervisor that this system does not meet, None if it meets all."""
    if not sys.platform.startswith("linux"):
        return f"Linux; this is {sys.platform}"
    try:
        os.close(open_descriptor(os.getpid()))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return "Linux 5.3 or newer, with the system call pidfd_open"
    return None


def open_descriptor(pid: int) -> int:
    """Returns a descriptor for the process that has this pid now (pidfd_open(2)).

    Raises:
        OSError: there is none, or this system has no such descriptors.
    """
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    return _system_call(PIDFD_OPEN, pid, 0)


def _send_signal(descriptor: int, signum: int) -> None:
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(descriptor, signum)
    else:
        _system_call(PIDFD_SEND_SIGNAL, descriptor, signum, None, 0)


def _system_call(number: int, *args: int | None) -> int:
    """Makes a system call of Linux.

    Raises:
        OSError: it failed, or this is another system.
    """
    if not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    import ctypes  # only a Python without the functions of these calls needs it

    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, *args))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def boot_id() -> str:
    """Returns a word that differs from one start of the machine to the next; empty if there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def look_up(pid: int) -> Entry | None:
    """Returns what the process table says of a pid now, None when nothing has that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # the program's name stands in brackets and may hold anything, brackets and spaces too
    fields = text[text.rindex(b")") + 2 :].split()
    return Entry(
        Process(pid, int(fields[19])),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        # a main thread can end before the others: as long as those run, this is no leftover
        fields[0] in (b"Z", b"X") and int(fields[17]) <= 1,
    )


def table() -> Iterator[Entry]:
    """Yields the processes of this machine that are more than a leftover entry; none without /proc."""
    try:
        with os.scandir("/proc") as folder:
            pids = [int(entry.name) for entry in folder if entry.name.isdigit()]
    except FileNotFoundError:
        return
    for pid in pids:
        entry = look_up(pid)
        if entry is not None and not entry.zombie:
            yield entry


def is_alive(process: Process) -> bool:
    """Tells whether exactly this process still runs."""
    entry = look_up(process.pid)
    return entry is not None and entry.process == process and not entry.zombie


def send(process: Process, signum: int) -> bool:
    """Sends a signal to exactly this process.

    Returns:
        False when it has ended, or belongs to someone else; whoever has its number now gets nothing.
    """
    try:
        descriptor = open_descriptor(process.pid)
    except OSError:
        return False
    try:
        # the descriptor stands for one process for good, so what is checked now stays true
        if not is_alive(process):
            return False
        _send_signal(descriptor, signum)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_end(process: Process, timeout: float) -> bool:
    """Blocks until exactly this process has ended; the kernel wakes the caller at that moment.

    Args:
        process: the process.
        timeout: seconds to wait at most.

    Returns:
        False when it still runs: the time was up, or this machine cannot wake anybody.
    """
    import select  # on demand: most only look

    try:
        descriptor = open_descriptor(process.pid)
    except OSError:
        return not is_alive(process)
    try:
        if not is_alive(process):
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(min(max(timeout, 0.0), _LONGEST) * 1000))
    finally:
        os.close(descriptor)


def family(roots: Sequence[int]) -> set[Process]:
    """Returns all that the processes with these pids have started and what shares their sessions.

    The roots themselves are left out. A process that made itself a daemon is found as long as its
    parent lives, or when its foster parent, the subreaper, is among the roots.
    """
    children: dict[int, list[Entry]] = {}
    found: dict[int, Process] = {}
    wanted = set(roots)
    for entry in table():
        children.setdefault(entry.parent, []).append(entry)
        if entry.session in wanted:
            found[entry.process.pid] = entry.process
    todo = [*roots, *found]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child.process.pid not in found:
                found[child.process.pid] = child.process
                todo.append(child.process.pid)
    return {process for pid, process in found.items() if pid not in wanted}


def left_behind(leaders: Collection[int]) -> dict[int, set[Process]]:
    """Returns what still runs in the sessions of pids that have just ended, by pid.

    They must just have ended: once a session is gone, its number may be someone else's.
    """
    sessions: dict[int, set[Process]] = {leader: set() for leader in leaders}
    for entry in table() if sessions else ():
        if entry.session in sessions:
            sessions[entry.session].add(entry.process)
    # while a session has members, no new process gets its leader's pid: one that runs again is a stranger
    return {pid: found for pid, found in sessions.items() if found and all(p.pid != pid for p in found)}


def keep_descriptors_to_itself() -> None:
    """Makes no descriptor of this process but the standard three go on to its children.

    A lock is held as long as any process has its descriptor: one that was inherited must not be handed on.
    """
    # each of these has them on Linux, and the latter on other systems too; names may be gone at the next step
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"  # noqa: PTH112
    for name in os.listdir(folder):  # noqa: PTH208
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the one that the listing itself used
                os.set_inheritable(int(name), False)


def become_subreaper() -> bool:
    """Makes this process the foster parent of all that its descendants leave behind (prctl(2)).

    Returns:
        False where the system has no such thing.
    """
    import ctypes  # only a supervisor needs it

    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def spawn(
    args: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    pass_fds: Sequence[int] = (),
    umask: int = -1,
) -> Process:
    """Starts a program in a session of its own; every child process of this project starts here.

    Args:
        args: the program and its arguments; no shell reads them.
        env: its whole environment; this process's own when None.
        cwd: its working directory; this process's own when None.
        stdout: descriptor for its output; nowhere when None.
        stderr: descriptor for its errors; nowhere when None.
        pass_fds: further descriptors that it inherits under the same numbers.
        umask: its umask; this process's own when -1.

    Raises:
        OSError: the program could not be started, with the reason.
    """
    import subprocess  # on demand: most commands start nothing

    child = subprocess.Popen(
        list(args),
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if stdout is None else stdout,
        stderr=subprocess.DEVNULL if stderr is None else stderr,
        start_new_session=True,
        umask=umask,
        # all our descriptors close themselves on exec; asking for it once more would cost a walk over
        # all of them for each child, which makes the start of a thousand replicas quadratic
        close_fds=bool(pass_fds),
        pass_fds=tuple(pass_fds),
    )
    # the caller reaps it by pid; without this the object would warn and try to reap it as well
    child.returncode = 0
    entry = look_up(child.pid)
    return Process(child.pid, entry.process.start if entry else 0)
