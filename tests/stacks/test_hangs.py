"""Real hangs of real processes: the stacks of a job name the process that hangs, and where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from local import scheduler, submit
from support import wait_until

from torchx.scheduling.stacks import MAIN, AppStacks, ProcessStack
from torchx.specs.app import Role

HANGS = """
import atexit, ctypes, os, signal, sys, threading, time

def blocked_read(path):
    os.mkfifo(path)
    other = os.open(path, os.O_RDWR)
    os.read(other, 1)

def gil_held(path):
    ctypes.PyDLL(None).sleep(600)

def dead_loop(path):
    while True:
        pass

def full_pipe(path):
    reader, writer = os.pipe()
    while True:
        os.write(writer, bytes(65536))

def lock_cycle(path):
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
    def one():
        with first:
            both.wait()
            second.acquire()
    def other():
        with second:
            both.wait()
            first.acquire()
    threading.Thread(target=other, name="other").start()
    one()

def stuck_at_exit(path):
    atexit.register(never_done)

def never_done():
    threading.Event().wait()

def stopped(path):
    os.kill(os.getpid(), signal.SIGSTOP)

def child_hangs(path):
    if os.fork() == 0:
        time.sleep(600)
    os.wait()

def wait_for_peers(path):
    threading.Event().wait()

globals()[sys.argv[1]](sys.argv[2])
"""

EXPECTED = {
    "blocked_read": ["blocked_read", "read of"],
    "gil_held": ["gil_held", "clock_nanosleep"],
    "dead_loop": ["dead_loop"],
    "full_pipe": ["full_pipe", "write of pipe:"],
    "lock_cycle": ["lock_cycle", "one", "other", "futex"],
    "stuck_at_exit": ["never_done"],
    "stopped": ["stopped"],
    "child_hangs": ["child_hangs", "wait4"],
}
"""What the stacks of each hang contain: functions, system calls and states."""


def words(process: ProcessStack) -> set[str]:
    """The functions, the system calls with their files, and the state of a process."""
    functions = {frame.function.rpartition(".")[2] for thread in process.threads for frame in thread.frames}
    return {process.state, process.wait, *functions, *(thread.wait for thread in process.threads)}


def has(process: ProcessStack, expected: list[str]) -> bool:
    found = words(process)
    return all(any(word.startswith(each) for word in found) for each in expected)


def taken(app_id: str) -> AppStacks:
    return scheduler().stacks(app_id, None, None, native=False)


@pytest.fixture
def hangs(tmp_path: Path) -> str:
    file = tmp_path / "hangs.py"
    file.write_text(HANGS)
    return str(file)


def hanging(file: str, kind: str, replicas: int = 1) -> Role:
    return Role(
        kind,
        image="",
        entrypoint=sys.executable,
        args=[file, kind, f"{file}.{kind}"],
        num_replicas=replicas,
        env={"RANK": "${replica_id}"} if replicas > 1 else {},
    )


def test_each_hang_is_found_with_its_place(hangs: str) -> None:
    roles = [hanging(hangs, kind) for kind in EXPECTED]
    program = Role("no_python", image="", entrypoint="sleep", args=["600"])
    app_id = submit(*roles, hanging(hangs, "wait_for_peers", 3), program)
    try:

        def by_role() -> dict[str, ProcessStack]:
            return {p.role: p for p in taken(app_id).processes if p.kind == MAIN}

        def settled() -> bool:
            found = by_role()
            return all(kind in found and has(found[kind], words) for kind, words in EXPECTED.items())

        wait_until(settled, "each hang is found")
        last = taken(app_id)
        peers = next(group for group in last.groups() if len(group.processes) > 1)
        assert [p.rank for p in peers.processes] == [0, 1, 2], (
            "equal stacks are one group, rare ones come first"
        )
        assert (
            last.groups().index(peers) == len([g for g in last.groups() if g.processes[0].kind == MAIN]) - 1
        )
        sleeper = next(p for p in last.processes if p.role == "no_python")
        assert (sleeper.program, sleeper.wait, sleeper.threads, sleeper.note) == (
            "sleep",
            "clock_nanosleep",
            (),
            "",
        )
        child = next(p for p in last.processes if p.role == "child_hangs" and p.kind != MAIN)
        assert has(child, ["child_hangs", "clock_nanosleep"])
        assert by_role()["stopped"].state == "stopped", "it was not resumed"
        native = scheduler().stacks(app_id, ["gil_held"], None, native=True)
        assert {"gil_held", "clock_nanosleep"} <= {f.function for f in native.processes[0].threads[0].frames}
    finally:
        scheduler().kill(app_id)
