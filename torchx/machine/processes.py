"""Processes of this machine, identified by pid and start time.

Pids are reused. So a process is identified by its pid and its start time, and it is signalled only through a
descriptor that was opened before its start time was checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torchx.lazy import lazy_imports
from torchx.machine.polling import readable

with lazy_imports:
    import ctypes
    import subprocess

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""From Linux's prctl(2)."""

PIDFD_SEND_SIGNAL, PIDFD_OPEN = 424, 434
"""System calls, the same on every architecture; a Python built for an old Linux lacks their functions."""

SMALLEST_STEP = 2.0
"""Minimum seconds of a change of the system clock; smaller ones are corrections that it gets all the time."""


def start_error(error: Exception) -> str:
    """Returns the reason for which no process could be started: the system's error, and the limit behind it.

    >>> start_error(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
    'Resource temporarily unavailable: too many processes (ulimit -u)'
    """
    limit = {errno.EAGAIN: ": too many processes (ulimit -u)", errno.EMFILE: " (ulimit -n)"}
    return f"{getattr(error, 'strerror', None) or error}{limit.get(getattr(error, 'errno', 0), '')}"


class Process(NamedTuple):
    """A process, identified until the next boot.

    Attributes:
        pid: its pid.
        start: its start time in clock ticks since boot (proc(5), field 22 of stat).
    """

    pid: int
    start: int


class Entry(NamedTuple):
    """One line of the process table.

    Attributes:
        process: the process.
        parent: pid of its parent.
        group: its process group.
        session: its session.
        zombie: whether it has ended.
        ticks: CPU time of it and of the children that it has reaped, in clock ticks.
        pages: its resident memory in pages.
    """

    process: Process
    parent: int
    group: int
    session: int
    zombie: bool
    ticks: int
    pages: int


def missing() -> str | None:
    """Returns the requirement of supervisors that this system does not meet, or None."""
    if not sys.platform.startswith("linux"):
        return f"Linux; this is {sys.platform}"
    try:
        os.close(open_descriptor(os.getpid()))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return "Linux 5.3 or newer, with the system call pidfd_open"
    return None


def open_descriptor(pid: int) -> int:
    """Returns a descriptor for the process that currently has this pid (pidfd_open(2)).

    Raises:
        OSError: no process has this pid, or the system call is not supported.
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
    """Makes a Linux system call.

    Raises:
        OSError: it failed, or this system is not Linux.
    """
    if not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, *args))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def boot_id() -> str:
    """Returns the id of the current boot of the machine, or an empty string."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def uptime() -> float:
    """Returns the seconds since the boot of the machine; changes of the system clock do not affect them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age(process: Process) -> float:
    """Returns the seconds since the start of a process."""
    return uptime() - process.start / os.sysconf("SC_CLK_TCK")


def clock_step(boot: str, booted_at: float | None) -> float:
    """Returns the seconds by which the system clock was set forward since another clock began; 0 if unknown.

    Args:
        boot: the boot id of the machine at that time.
        booted_at: when the machine was booted, by that clock; None if unknown.
    """
    if booted_at is None or boot != boot_id():
        return 0.0
    step = time.time() - uptime() - booted_at
    if abs(step) < SMALLEST_STEP:
        return 0.0
    return step


def look_up(pid: int) -> Entry | None:
    """Returns the current process table entry of a pid, or None."""
    text = read_proc(f"/proc/{pid}/stat")
    if not text:
        return None
    # the program's name is in parentheses and may contain anything, even parentheses and spaces
    fields = text[text.rindex(b")") + 2 :].split()
    return Entry(
        Process(pid, int(fields[19])),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        # a main thread can end before the others; the process is alive while those run
        fields[0] in (b"Z", b"X") and int(fields[17]) <= 1,
        int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14]),
        int(fields[21]),
    )


def read_proc(path: str) -> bytes:
    """Returns a small file of /proc; empty if its process has ended or belongs to another user."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # half the time of `open`
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def table(*, zombies: bool = False) -> Iterator[Entry]:
    """Yields the processes of this machine; yields none without /proc.

    Args:
        zombies: include those that have ended, but are not reaped yet.
    """
    try:
        with os.scandir("/proc") as folder:
            pids = [int(entry.name) for entry in folder if entry.name.isdigit()]
    except FileNotFoundError:
        return
    for pid in pids:
        entry = look_up(pid)
        if entry is not None and (zombies or not entry.zombie):
            yield entry


def is_alive(process: Process) -> bool:
    """Returns True if exactly this process is running."""
    entry = look_up(process.pid)
    return entry is not None and entry.process == process and not entry.zombie


def send(process: Process, signum: int) -> bool:
    """Sends a signal to exactly this process.

    Returns:
        False if it has ended or belongs to another user; a new process with the same pid is not signalled.
    """
    try:
        descriptor = open_descriptor(process.pid)
    except OSError:
        return False
    try:
        # the descriptor refers to one process permanently, so this check stays valid
        if not is_alive(process):
            return False
        _send_signal(descriptor, signum)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_end(process: Process, timeout: float) -> bool:
    """Blocks until exactly this process has ended; the kernel wakes the caller immediately.

    Args:
        process: the process.
        timeout: maximum seconds to wait.

    Returns:
        False if it is still running: it timed out, or this system does not support waiting.
    """
    try:
        descriptor = open_descriptor(process.pid)
    except OSError:
        return not is_alive(process)
    try:
        if not is_alive(process):
            return True
        return bool(readable([descriptor], timeout))
    finally:
        os.close(descriptor)


def family(roots: Sequence[int]) -> set[Process]:
    """Returns the descendants of the processes with these pids, and the members of their sessions.

    The roots themselves are excluded. A daemon is found while its parent is alive, or if the subreaper that
    adopted it is among the roots.
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
    """Returns the remaining processes in the sessions of leaders that have just ended, by pid of the leader.

    They must have ended just before: the number of an empty session may be reused.
    """
    sessions: dict[int, set[Process]] = {leader: set() for leader in leaders}
    for entry in table() if sessions else ():
        if entry.session in sessions:
            sessions[entry.session].add(entry.process)
    # while a session has members, its leader's pid is not reused: if the pid runs, it is another session
    return {
        pid: members for pid, members in sessions.items() if members and all(p.pid != pid for p in members)
    }


def disable_descriptor_inheritance() -> None:
    """Makes all descriptors of this process except the standard three non-inheritable.

    A lock is held while any process has its descriptor, so children must not inherit one.
    """
    # Linux has both folders, other systems the latter; a listed descriptor may be closed in the meantime
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"  # noqa: PTH112
    for name in os.listdir(folder):  # noqa: PTH208
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.set_inheritable(int(name), False)


def become_subreaper() -> bool:
    """Makes this process adopt orphans among its descendants (prctl(2)).

    Returns:
        False if the system does not support it.
    """
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def ending_with_parent(number: int = signal.SIGTERM) -> Callable[[], None]:
    """Returns a function for a new child: the kernel signals it when the thread that started it ends.

    Args:
        number: the signal.
    """
    parent, prctl = os.getpid(), getattr(ctypes.CDLL(None), "prctl", None)  # here: a child must not import

    def prepare() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), number)

    return prepare


def spawn(
    args: Sequence[str],
    *,
    program: str | None = None,
    env: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
    cwd: str | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    pass_fds: Sequence[int] = (),
    umask: int = -1,
) -> Process:
    """Starts a program in its own session; all child processes of local jobs are started here.

    Args:
        args: the program and its arguments; no shell is used.
        program: the file of the program (default: looked up on the PATH of `env`).
        env: its whole environment (default: that of this process).
        cwd: its working directory (default: that of this process).
        stdout: descriptor for its standard output (default: discarded).
        stderr: descriptor for its standard error (default: discarded).
        pass_fds: further descriptors that it inherits under the same numbers.
        umask: its umask; -1 for that of this process.

    Raises:
        OSError: the program cannot be started.
    """
    child = subprocess.Popen(
        list(args),
        executable=program,
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if stdout is None else stdout,
        stderr=subprocess.DEVNULL if stderr is None else stderr,
        start_new_session=True,
        umask=umask,
        # all our descriptors are close-on-exec; closing them again would walk over all of them for each
        # child, which makes the start of a thousand replicas quadratic
        close_fds=bool(pass_fds),
        pass_fds=tuple(pass_fds),
    )
    # the caller reaps it by pid; without this, the Popen object would warn and try to reap it too
    child.returncode = 0
    entry = look_up(child.pid)
    return Process(child.pid, entry.process.start if entry else 0)
