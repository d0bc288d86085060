"""Leases between real processes of several users: one holder at a time, known, and replaced when it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import wait_until

from torchx.leases import holders
from torchx.leases.holders import PREFIX, names_in_use, take, take_some
from torchx.leases.reception import CONNECTIONS_PER_USER, Reception
from torchx.leases.waiting import Watch
from torchx.machine.processes import look_up

ROOT = str(Path(holders.__file__).parents[2])
OTHER = 65534

HOLD = """
import os, select, socket, struct, sys, time  # now: another user may not read these files
sys.path.append({root!r})
from torchx.leases.holders import inherited, take
from torchx.leases.reception import Reception
uid, guards, listens, app, *names = sys.argv[1:]
if int(uid) != os.geteuid():
    os.setresuid(int(uid), int(uid), int(uid))
taken = take(names)
if int(guards) and os.fork():  # its guard, as that of a supervisor, started before it listens again
    print(os.getpid(), flush=True)
    time.sleep(600)
leases = inherited()
assert sorted(leases.names) == sorted(names), leases.names
reception = Reception(leases, app) if int(listens) else None
print(os.getpid(), flush=True)
while True:
    reception.serve(block=True) if reception else time.sleep(600)
"""


def holder_of(name: str) -> holders.Holder | None:
    """Returns the holder of a lease, or None if it is free."""
    return holders.holders([name]).get(name)


@pytest.fixture
def names() -> list[str]:
    """Names that no other test has."""
    run = uuid.uuid4().hex[:16]
    return [f"test-{run}-{n}" for n in range(4)]


@pytest.fixture
def hold() -> Iterator[Callable[..., list[int]]]:
    """Starts a process that holds leases; returns its pid, and that of its guard."""
    started: list[subprocess.Popen[str]] = []

    def start(
        *names: str, uid: int = 0, guard: bool = False, listens: bool = True, app: str = ""
    ) -> list[int]:
        uid = uid or os.geteuid()
        options = [str(uid), str(int(guard)), str(int(listens)), app]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", HOLD.format(root=ROOT), *options, *names],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            pids = [int(process.stdout.readline()) for _ in range(1 + guard)]
        started.append(process)
        return sorted(pids, key=lambda pid: pid == process.pid)

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_lease_has_one_holder_at_a_time(names: list[str], hold: Callable[..., list[int]]) -> None:
    (pid,) = hold(names[1], app="train-x7")
    assert take(names[:3]) is None
    assert names_in_use() & set(names) == {names[1]}, "a failed attempt leaves no lease"
    holder = holder_of(names[1])
    assert holder is not None
    assert (holder.uid, holder.pid, holder.app) == (os.geteuid(), pid, "train-x7")
    entry = look_up(pid)
    assert entry is not None
    assert holder.since is not None
    assert 0 <= time.time() - holder.since < 3600
    assert holder_of(names[0]) is None
    with Watch([names[1]]) as watch:
        os.kill(pid, signal.SIGKILL)
        assert wait_until(watch.ended, "the holder has ended") == {names[1]}
    with wait_until(lambda: take(names[:3]), "the leases are free") as leases:
        assert sorted(leases.names) == names[:3]


def test_a_number_of_leases(names: list[str], hold: Callable[..., list[int]]) -> None:
    hold(names[0])
    assert take_some([(names, 4)]) is None
    assert take_some([(names[:2], 1), (names[2:], 3)]) is None
    with wait_until(lambda: take_some([(names[:2], 1), (names[2:], 1)]), "leases of both groups") as leases:
        assert leases.names == [names[1], names[2]]
        assert take_some([(names, 2)]) is None
    with wait_until(lambda: take_some([(names, 3)]), "the other leases") as leases:
        assert leases.names == names[1:]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_between_users(names: list[str], hold: Callable[..., list[int]]) -> None:
    """A lease excludes all users; the kernel names its user, whatever the program reports."""
    (pid,) = hold(names[0], uid=OTHER, app="train-x7\u001b[31m")
    assert take(names) is None
    holder = holder_of(names[0])
    assert holder is not None
    assert (holder.uid, holder.pid, holder.app) == (OTHER, pid, ""), "an invalid name is not shown"
    # a program that holds the name in its own way
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(f"\0{PREFIX}{names[1]}")
        assert holder_of(names[1]) == holders.Holder(None)
        assert take(names[1:2]) is None
        with Watch([names[1]]) as watch:
            assert not watch.ended()
            foreign.close()
            assert watch.ended() == {names[1]}


@pytest.mark.parametrize("first", ["supervisor", "guard"])
def test_lease_ends_with_last_of_supervisor_and_guard(
    names: list[str], hold: Callable[..., list[int]], first: str
) -> None:
    supervisor, guard = hold(names[0], guard=True)
    holder = holder_of(names[0])
    assert holder is not None
    assert holder.pid == supervisor, "the process that listened last"
    one, other = (supervisor, guard) if first == "supervisor" else (guard, supervisor)
    os.kill(one, signal.SIGKILL)
    wait_until(lambda: (entry := look_up(one)) is None or entry.zombie, "one has ended")
    assert take(names[:1]) is None
    with Watch(names[:1]) as watch:
        assert not watch.ended()
        os.kill(other, signal.SIGKILL)
        while not watch.ended():
            watch.wait()
    with wait_until(lambda: take(names[:1]), "the lease is free"):
        pass


def test_connections_do_not_accumulate(names: list[str]) -> None:
    leases = take(names[:1])
    assert leases is not None
    with leases:
        reception = Reception(leases, "train-x7")
        thread = threading.Thread(
            target=lambda: [reception.serve(block=True) for _ in range(10**6)], daemon=True
        )
        thread.start()
        for _ in range(CONNECTIONS_PER_USER):
            holder = holder_of(names[0])
            assert holder is not None
            assert holder.app == "train-x7"
        wait_until(lambda: not reception._connections, "the connections are closed")
        kept = [holders.connect(names[0]) for _ in range(CONNECTIONS_PER_USER + 8)]
        wait_until(lambda: len(reception._connections) == CONNECTIONS_PER_USER, "the oldest are closed")
        for connection in kept:
            assert connection is not None
            connection.close()
        wait_until(lambda: not reception._connections, "the connections are closed")


def test_a_holder_that_floods_its_connection_is_checked_instead(names: list[str]) -> None:
    leases = take(names[:1])
    assert leases is not None
    with leases, Watch(names[:1]) as watch:
        connection, _ = leases.sockets[0].accept()
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                connection.send(b"[" * 4096)
        for _ in range(3):
            assert not watch.ended()
        assert watch.needs_checks
        connection.close()
        assert not watch.ended()
        leases.close()
        assert watch.ended() == set(names[:1])


@pytest.mark.parametrize("flag", ["-n", "-Urn"])
def test_a_network_namespace_has_its_own(names: list[str], flag: str) -> None:
    """As docs/queue.md says: containers with a network of their own do not see the leases of the machine."""
    program = (
        f"import sys; sys.path.append({ROOT!r})\n"
        "from torchx.leases.holders import take\n"
        "print(take(sys.argv[1:]) is None)"
    )
    probe = subprocess.run(["unshare", flag, "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("this user cannot create a network namespace")
    leases = take(names[:1])
    assert leases is not None
    with leases:
        command = [sys.executable, "-I", "-S", "-c", program, names[0]]
        assert subprocess.check_output(command, text=True) == "True\n"
        assert subprocess.check_output(["unshare", flag, *command], text=True) == "False\n"
