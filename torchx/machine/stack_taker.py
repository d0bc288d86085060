"""Takes the stacks of the processes of an application on one machine or in one container, as JSON.

It runs wherever the replicas run, with any Python 3.7 or newer and without torchx installed there: as a
module here, elsewhere as a program that is passed on a command line. Python stacks come from py-spy, which
reads the memory of the processes; where it is missing or not permitted, the kernel's view of each process
(``/proc``) remains. No arguments, environment values or local variables are part of the result.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from typing import Any

CALL_TIMEOUT = 5.0
"""Maximum seconds of one call of py-spy."""
NATIVE_TIMEOUT = 20.0
"""The same with the frames of compiled code, whose symbols are read first."""
TRIES = 3
"""Calls of py-spy that do not pause the process; a busy process may change while it is read."""
AT_A_TIME = 16
"""Concurrent calls of py-spy."""
MOST_PROCESSES = 4096
MOST_FRAMES = 200
"""Frames of a thread that are kept: the innermost ones."""
READ_SIZE = 1 << 20
NAMES = ("TORCHX_JOB_ID", "TORCHX_REPLICA", "TORCHX_ATTEMPT", "RANK", "SLURMD_NODENAME")
"""The variables that are read from the environment of a process."""


def _calls(table: str) -> dict[int, str]:
    """Returns the names of system calls by their numbers, from words such as ``0=read``."""
    rows = (row.split("=") for row in table.split())
    return {int(number): name for number, name in rows}


FILE_CALLS = {
    "x86_64": _calls(
        """
        0=read 1=write 16=ioctl 17=pread64 18=pwrite64 19=readv 20=writev 42=connect 43=accept
        44=sendto 45=recvfrom 46=sendmsg 47=recvmsg 72=fcntl 73=flock 74=fsync 75=fdatasync
        288=accept4 299=recvmmsg
        """
    ),
    "aarch64": _calls(
        """
        25=fcntl 29=ioctl 32=flock 63=read 64=write 65=readv 66=writev 67=pread64 68=pwrite64
        82=fsync 83=fdatasync 202=accept 203=connect 206=sendto 207=recvfrom 211=sendmsg
        212=recvmsg 242=accept4 243=recvmmsg
        """
    ),
}
"""System calls that may block, with a descriptor as the first argument, by machine and number."""
OTHER_CALLS = {
    "x86_64": _calls(
        """
        2=open 7=poll 23=select 34=pause 35=nanosleep 61=wait4 65=semop 71=msgrcv
        128=rt_sigtimedwait 130=rt_sigsuspend 202=futex 230=clock_nanosleep 232=epoll_wait
        247=waitid 257=openat 270=pselect6 271=ppoll 281=epoll_pwait 426=io_uring_enter
        441=epoll_pwait2 449=futex_waitv
        """
    ),
    "aarch64": _calls(
        """
        22=epoll_pwait 56=openat 72=pselect6 73=ppoll 95=waitid 98=futex 101=nanosleep
        115=clock_nanosleep 133=rt_sigsuspend 137=rt_sigtimedwait 188=msgrcv 193=semop 260=wait4
        426=io_uring_enter 441=epoll_pwait2 449=futex_waitv
        """
    ),
}
"""Other system calls that may block."""
STATES = {"R": "running", "S": "sleeping", "D": "blocked in the kernel", "T": "stopped", "t": "traced"}


def take(job: str, replicas: Any = None, ranks: Any = None, native: bool = False) -> dict[str, Any]:
    """Returns the stacks of the processes of an application.

    Args:
        job: the handle of the application, the value of ``TORCHX_JOB_ID`` in its processes; empty in a
            container, for the value of this process.
        replicas: only these replicas (``role/id``) and roles (default: all).
        ranks: only processes with one of these values of ``RANK`` (default: all).
        native: include frames of compiled code; pauses each process while it is read.

    Returns:
        ``host``, ``processes``, and whether py-spy is installed as ``spy``.
    """
    processes = find(job or os.environ.get("TORCHX_JOB_ID", ""))
    if replicas is not None:
        processes = [p for p in processes if {p["replica"], p["replica"].split("/")[0]} & set(replicas)]
    if ranks is not None:
        processes = [p for p in processes if p["rank"] in ranks]
    spy = find_spy()
    work = deque(processes)

    def run() -> None:
        while True:
            try:
                process = work.popleft()
            except IndexError:
                return
            describe(process, spy, native)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(AT_A_TIME, len(processes)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    host = os.environ.get("SLURMD_NODENAME") or platform.node()
    return {"host": host, "spy": bool(spy), "processes": [p for p in processes if p.pop("found", True)]}


def find(job: str) -> list[dict[str, Any]]:
    """Returns the processes of an application: those marked by their environment, and their descendants."""
    node = os.environ.get("SLURMD_NODENAME")
    pids = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
    table = {entry["pid"]: entry for entry in map(look_up, pids) if entry is not None}
    found = []
    for process in table.values():
        env = environment_of(process, table)
        if env.get("TORCHX_JOB_ID") != job:
            continue
        if node and env.get("SLURMD_NODENAME", node) != node:
            continue  # several nodes of a test cluster may share a machine
        rank = env.get("RANK", "")
        process["replica"] = env.get("TORCHX_REPLICA", "")
        process["attempt"] = env.get("TORCHX_ATTEMPT", "")
        process["rank"] = int(rank) if rank.isdigit() and len(rank) < 10 else None
        found.append(process)
    for process in table.values():
        del process["env"]
    return sorted(found, key=lambda p: p["pid"])[:MOST_PROCESSES]


def environment_of(process: dict[str, Any], table: dict[int, dict[str, Any]]) -> dict[str, str]:
    """Returns the variables of a process, or of the nearest process above it if it has cleared its own."""
    own: dict[str, Any] | None = process
    seen: set[int] = set()
    while own is not None and own["pid"] not in seen:
        if own["env"].get("TORCHX_JOB_ID"):
            break
        seen.add(own["pid"])
        own = table.get(own["parent"])
    return own["env"] if own is not None else {}


def look_up(pid: int) -> dict[str, Any] | None:
    """Returns the entry of a process with the variables :data:`NAMES`; None if it has ended."""
    stat = read(f"/proc/{pid}/stat")
    if not stat:
        return None
    name, rest = stat[stat.index(b"(") + 1 : stat.rindex(b")")], stat[stat.rindex(b")") + 2 :].split()
    if rest[0] in b"ZX":
        return None
    env = {}
    for line in read(f"/proc/{pid}/environ").split(b"\0"):
        key, _, value = line.partition(b"=")
        if key.decode("ascii", "replace") in NAMES:
            env[key.decode("ascii")] = value.decode("utf-8", "surrogateescape")
    return {
        "pid": pid,
        "start": int(rest[19]),
        "parent": int(rest[1]),
        "program": name.decode("utf-8", "replace"),
        "state": rest[0].decode("ascii"),
        "env": env,
    }


def read(path: str) -> bytes:
    """Returns a file of /proc; empty if its process has ended, or access is not permitted."""
    try:
        with open(path, "rb") as file:
            return file.read(READ_SIZE)
    except OSError:
        return b""


def describe(process: dict[str, Any], spy: str, native: bool) -> None:
    """Adds the stacks of a process to its entry."""
    pid = process["pid"]
    process["threads"], process["note"] = [], ""
    if is_python(pid):
        if spy:
            process["threads"], process["note"] = python_stacks(process, spy, native)
        else:
            process["note"] = "py-spy is not installed"
            if not may_read(pid):
                process["note"] += ", and is not permitted to read it (ptrace)"
    elif native:
        process["note"] = "not a Python program"
    entry = look_up(pid)
    process["found"] = entry is not None and entry["start"] == process["start"]
    state = (entry or process)["state"]
    process["state"] = STATES.get(state, "sleeping")
    process["tid"] = pid
    for stopped in (process, *process["threads"]):
        tid = stopped.pop("tid")
        stopped["wait"] = ""
        if state not in "Tt" and tid:
            stopped["wait"] = wait_of(pid, tid)


def may_read(pid: int) -> bool:
    """Returns True if this process may read the memory of another one, as py-spy does."""
    try:
        with open(f"/proc/{pid}/mem", "rb"):
            return True
    except OSError:
        return False


def is_python(pid: int) -> bool:
    """Returns True if a process may run Python, so that py-spy is worth a call."""
    try:
        if "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe")).lower():
            return True
    except OSError:
        return False
    return b"libpython" in read(f"/proc/{pid}/maps")


def wait_of(pid: int, tid: int) -> str:
    """Returns the system call in which a thread waits, with the file it uses, or an empty string."""
    call = read(f"/proc/{pid}/task/{tid}/syscall").split()
    machine = platform.machine()
    if len(call) > 1 and call[0].isdigit():
        number = int(call[0])
        name = FILE_CALLS.get(machine, {}).get(number)
        if name:
            try:
                return f"{name} of {os.readlink(f'/proc/{pid}/fd/{int(call[1], 16)}')}"
            except (OSError, ValueError, OverflowError):
                return name
        return OTHER_CALLS.get(machine, {}).get(number, f"system call {number}")
    channel = read(f"/proc/{pid}/task/{tid}/wchan").decode("ascii", "replace")
    if channel in ("", "0"):
        return ""
    return channel


# --- py-spy --------------------------------------------------------------------------------------


def find_spy() -> str:
    """Returns the path of py-spy, or an empty string: from PATH, or from beside this Python."""
    beside = os.path.join(os.path.dirname(sys.executable or ""), "py-spy")
    return shutil.which("py-spy") or (beside if os.access(beside, os.X_OK) else "")


def python_stacks(process: dict[str, Any], spy: str, native: bool) -> tuple[list[Any], str]:
    """Returns the threads of a Python process, and why there are none, or not the requested ones."""
    pid, error = process["pid"], ""
    argv = [spy, "dump", "--json", "--pid", str(pid)]
    stopped = process["state"] in "Tt"
    if native and not stopped:
        threads, error = pausing(process, [*argv, "--native"], NATIVE_TIMEOUT)
        if threads:
            return threads, ""
    for _ in range(TRIES):
        threads, why = call(pid, [*argv, "--nonblocking"], CALL_TIMEOUT)
        if threads:
            return threads, f"no frames of compiled code: {error or 'it is stopped'}" if native else ""
        if "ermission" in why:
            return [], "py-spy is not permitted to read it (ptrace)"
    if not stopped:
        threads, why = pausing(process, argv, CALL_TIMEOUT)
    return threads, "" if threads else f"py-spy: {why or 'no stack'}"


def pausing(process: dict[str, Any], argv: list[str], timeout: float) -> tuple[list[Any], str]:
    """Calls py-spy so that it pauses the process, and makes sure that the process continues."""
    pid = process["pid"]
    result = call(pid, argv, timeout)
    # the kernel detaches a tracer that was killed, but may leave the process stopped
    entry = look_up(pid)
    if entry is not None and entry["start"] == process["start"] and entry["state"] == "T":
        os.kill(pid, signal.SIGCONT)
    return result


def call(pid: int, argv: list[str], timeout: float) -> tuple[list[Any], str]:
    """Calls py-spy and returns the threads of its answer, and a line about its failure."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
    except OSError as error:
        return [], error.strerror or "it cannot be run"
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return [], f"no answer within {timeout:g} s"
    if child.returncode != 0:
        return [], reason_in(err.decode("utf-8", "replace"))
    try:
        entries = json.loads(out.decode("utf-8", "replace"))
        return [thread_of(entry) for entry in entries if entry["pid"] == pid], ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [], "its output cannot be read"


def reason_in(errors: str) -> str:
    """Returns the line of py-spy's errors that names the reason."""
    lines = [line for line in errors.splitlines() if line.strip()]
    permission = [line for line in lines if "ermission" in line]
    return (permission or lines or [""])[0][:200]


def thread_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns a thread of py-spy's answer; the innermost frame comes first."""
    frames = [
        [
            str(frame["name"]),
            str(frame["filename"]),
            int(frame["line"] or 0),
            str(frame["short_filename"] or ""),
        ]
        for frame in entry["frames"][:MOST_FRAMES]
    ]
    return {
        "name": str(entry.get("thread_name") or ""),
        "tid": entry.get("os_thread_id"),
        "active": bool(entry.get("active")),
        "gil": bool(entry.get("owns_gil")),
        "frames": frames,
    }


def main(argv: list[str]) -> None:
    """Prints the stacks.

    Args:
        argv: a JSON object with the arguments of :func:`take`, and the maximum characters of a line, if it is
            limited.
    """
    text = json.dumps(take(**json.loads(argv[0])))
    width = int(argv[1]) if len(argv) > 1 else len(text)
    for begin in range(0, len(text), width):
        sys.stdout.write(text[begin : begin + width] + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
