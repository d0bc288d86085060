"""The keeper, the process that starts the waiting jobs of one state home.

It wakes when a holder of a wanted lease ends, when a job is added or changed, and when the keeper of another
user reports a change. It ends with its last job. A guard replaces it if it is killed.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from torchx.errors import TorchxError
from torchx.jobs import ticket
from torchx.jobs.catalog import end_orphans
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.ticket import Ticket
from torchx.jobs.view import load
from torchx.leases.holders import names_in_use
from torchx.leases.waiting import Watch
from torchx.machine import locks
from torchx.machine.polling import readable
from torchx.queue import ends, keepers, limits, starts
from torchx.queue.decision import decide_now
from torchx.queue.order import Verdict, Waiter
from torchx.supervisor.process import continue_under_guard, print_error, report_ready, separate


class Link:
    """A connection to another process, which sends lines.

    Args:
        connection: the connection.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, keepers.LONGEST // 4)
        self.connection = connection
        self.uid = keepers.user_of(connection)
        self.subscribed = False
        self.waiters: list[Waiter] = []
        self.asked_at = -math.inf  # monotonic time of the last request for a report
        self.is_silent = False  # whether that has no answer yet
        self._data = bytearray()

    def lines(self) -> list[bytes] | None:
        """Returns the complete lines that have arrived; None at the end of the connection."""
        try:
            while data := self.connection.recv(1 << 16):
                self._data += data
                if len(self._data) > keepers.LONGEST:
                    return None
        except BlockingIOError:
            *lines, rest = bytes(self._data).split(b"\n")
            self._data = bytearray(rest)
            return [line + b"\n" for line in lines]
        except OSError:
            pass
        return None

    def send(self, data: bytes) -> bool:
        """Sends data; returns False if the other side does not take all of it."""
        try:
            return self.connection.send(data) == len(data)
        except OSError:
            return False


MOST_WATCHED = 60
"""Maximum number of holders that are watched; a holder drops further connections of one user."""

CHECK_INTERVAL = 0.25
"""Seconds between two checks of the leases if not all holders can be watched."""

CLAIMED_AFTER = 0.05
"""Seconds after which the lock of a waiting job is tried again that another process holds for a moment."""

STUCK_AFTER = 5.0
"""Seconds after which a job that the keeper of another user could start, but does not, is passed."""

PASSED_FOR = 60.0
"""Seconds after which such a job gets its place back."""


class Own(NamedTuple):
    """A waiting job of this keeper.

    Attributes:
        paths: its record.
        ticket: its ticket.
        lock: the descriptor of its lock.
        waiter: the job as all users see it.
    """

    paths: JobPaths
    ticket: Ticket
    lock: int
    waiter: Waiter


class Keeper:
    """The waiting jobs of a state home.

    Args:
        home: the state home.
        listener: the listening socket.
    """

    def __init__(self, home: Home, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._home, self._listener = home, listener
        self._name = listener.getsockname()[1:].decode()
        self._own: dict[str, Own] = {}
        self._unclaimed: set[str] = set()  # waiting jobs whose lock another process holds
        self._clients: dict[int, Link] = {}
        self._peers: dict[str, Link] = {}
        self._blocked: dict[str, float] = {}  # GPUs that other programs use, and when to check again
        self._in_use: set[str] = set()  # the leases that were held at the last decision
        self._overdue: dict[tuple[int, str], float] = {}
        self._reported = b""

    def run(self) -> None:
        """Runs until no job waits any more."""
        for name in ticket.marked(self._home):
            self._look_at(name)
        self._meet()
        while True:
            if self._serve():
                continue
            for name in list(self._unclaimed):
                self._look_at(name)
            verdicts = self._start()
            if not (self._own or self._unclaimed):
                return
            self._publish()
            self._wait(verdicts)

    # --- own jobs --------------------------------------------------------------------------------

    def _look_at(self, name: str) -> None:
        """Adds, updates or ends a job."""
        self._unclaimed.discard(name)
        paths = JobPaths(self._home.jobs / name)
        lock = None
        if name in self._own:
            lock = self._own[name].lock
        try:
            if lock is None:
                lock = self._claim(paths)
            if lock is None:
                return
            if paths.cancel.exists():
                ends.finish(self._home, paths, "CANCELLED", "")
                self._drop(name, lock)
                return
            mine = Ticket.load(paths)
            self._own[name] = Own(paths, mine, lock, starts.waiter_of(mine, os.geteuid()))
        except (OSError, TorchxError, ValueError) as error:
            self._forget(paths, error)
            self._drop(name, lock)

    def _claim(self, paths: JobPaths) -> int | None:
        """Takes the lock of a waiting job; returns None if it does not wait here any more."""
        if not Ticket.load(paths).is_of_this_boot:
            return None
        lock = locks.acquire(paths.lock)
        try:
            view = load(paths)
        except BaseException:
            if lock is not None:
                os.close(lock)
            raise
        if view.supervisor is None and not view.has_ended:
            if lock is None:  # a query that checks the lock, or a supervisor that is just starting
                self._unclaimed.add(paths.folder.name)
            return lock
        if lock is not None:
            os.close(lock)
        ticket.clear(self._home, paths)
        return None

    def _forget(self, paths: JobPaths, error: Exception) -> None:
        """Removes the marker of a job that was removed; reports the error of another one."""
        if paths.ticket.exists():
            print_error(f"{paths.folder.name}: {error}")
            return
        with contextlib.suppress(OSError):
            (self._home.queue / paths.folder.name).unlink(missing_ok=True)

    def _drop(self, name: str, lock: int | None) -> None:
        self._own.pop(name, None)
        if lock is not None:
            os.close(lock)

    def _start(self) -> list[Verdict]:
        """Starts all jobs that can start; returns the decisions about the others."""
        while True:
            verdicts = self._decide()
            due = [verdict for verdict in verdicts if verdict.starts and self._is_mine(verdict)]
            if not due:
                return verdicts
            try:
                for name in end_orphans(self._home):  # after the decision: they held no lease then
                    print_error(f"{name}: its supervisor was killed; its remaining processes were ended")
            except (OSError, TorchxError) as error:  # its jobs go on
                print_error(f"jobs without a supervisor cannot be ended: {error}")
            for verdict in due:
                self._start_one(verdict)

    def _is_mine(self, verdict: Verdict) -> bool:
        waiter = verdict.waiter
        return waiter.uid == os.geteuid() and ticket.folder_of(waiter.app_id) in self._own

    def _decide(self) -> list[Verdict]:
        now = time.monotonic()
        self._overdue = {key: at for key, at in self._overdue.items() if now - at < PASSED_FOR}
        passed = {key for key, at in self._overdue.items() if now - at > STUCK_AFTER}
        answering = self._answering(now)
        waiters = [own.waiter for own in self._own.values()]
        for peer in answering:
            waiters += [waiter for waiter in peer.waiters if _key(waiter) not in passed]
        self._blocked = {name: until for name, until in self._blocked.items() if until > now}
        self._in_use = names_in_use()  # before the decision: one that is released meanwhile is noticed later
        verdicts = decide_now(waiters, self._blocked)
        stalled = {_key(v.waiter) for v in verdicts if v.starts and not self._is_mine(v)}
        self._overdue = {key: self._overdue.get(key, now) for key in stalled | passed}
        self._ask(answering, stalled, now)
        return verdicts

    def _answering(self, now: float) -> list[Link]:
        peers = self._peers.values()
        return [peer for peer in peers if not peer.is_silent or now - peer.asked_at <= STUCK_AFTER]

    def _ask(self, peers: Iterable[Link], stalled: set[tuple[int, str]], now: float) -> None:
        """Requests the jobs of keepers that have not started the ones whose turn it is."""
        for peer in peers:
            is_due = now - peer.asked_at > STUCK_AFTER  # a reply leads to the next decision
            if is_due and not stalled.isdisjoint(map(_key, peer.waiters)):
                # a keeper that is stopped must not block the others; a reply gives its jobs their places back
                peer.asked_at, peer.is_silent = now, True
                peer.send(keepers.LIST)

    def _start_one(self, verdict: Verdict) -> None:
        name = ticket.folder_of(verdict.waiter.app_id)
        own = self._own[name]
        if own.paths.cancel.exists():
            self._look_at(name)
            return
        try:
            busy = starts.start(own.paths, own.ticket, verdict.names, own.lock)
        except Exception as error:  # whatever its files contain: the other jobs go on
            try:
                ends.finish(self._home, own.paths, "FAILED", f"it could not be started: {error}")
            except (OSError, TorchxError) as failed:
                self._forget(own.paths, failed)
            self._drop(name, own.lock)
            return
        if busy is None:  # another process was faster
            time.sleep(0.005)
        elif busy:
            self._blocked.update(dict.fromkeys(busy, time.monotonic() + starts.LOOK_AGAIN_AFTER))
        else:
            ticket.clear(self._home, own.paths)
            self._drop(name, own.lock)

    # --- other processes -------------------------------------------------------------------------

    def _meet(self) -> None:
        """Connects to the keepers of other state homes."""
        for name in keepers.names():
            if name == self._name or name in self._peers:
                continue
            connection = keepers.connect(name, 0.0)  # a stopped keeper must not delay this one
            if connection is not None:
                link = Link(connection)
                if link.send(keepers.SUBSCRIBE):
                    self._peers[name] = link
                else:
                    connection.close()

    def _serve(self) -> bool:
        """Handles all that has arrived; returns True if there was something."""
        served = self._accept()
        for name, peer in list(self._peers.items()):
            lines = peer.lines()
            if lines is None:
                self._peers.pop(name).connection.close()
            elif lines:
                peer.waiters, peer.is_silent = keepers.parse(lines[-1], peer.uid), False
            served = served or lines is None or bool(lines)
        for number, client in list(self._clients.items()):
            lines = client.lines()
            if lines is None or not all(self._answer(client, line) for line in lines):
                self._clients.pop(number).connection.close()
            served = served or bool(lines)
        return served

    def _accept(self) -> bool:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return False
        except OSError:  # too many open files
            for client in self._clients.values():
                client.connection.close()
            self._clients = {}
            return False
        self._clients[connection.fileno()] = Link(connection)
        return True

    def _answer(self, client: Link, line: bytes) -> bool:
        """Answers a request; returns False to end the connection."""
        if line in (keepers.LIST, keepers.SUBSCRIBE):
            if line == keepers.SUBSCRIBE:
                client.subscribed = True
                self._meet()
            return client.send(self._report())
        if line.startswith(keepers.WAKE) and client.uid == os.geteuid():
            self._look_at(line.removeprefix(keepers.WAKE).decode("ascii", "replace").strip().replace("/", ""))
            return client.send(keepers.OK)
        return False

    def _report(self) -> bytes:
        return keepers.report(own.waiter for own in self._own.values())

    def _publish(self) -> None:
        """Reports the jobs to the other keepers, if they have changed."""
        report = self._report()
        if report == self._reported:
            return
        self._reported = report
        for number, client in list(self._clients.items()):
            if client.subscribed and not client.send(report):
                self._clients.pop(number).connection.close()

    def _wait(self, verdicts: Collection[Verdict]) -> None:
        """Blocks until there is a reason to decide again."""
        wanted = {name for own in self._own.values() for want in own.waiter.wanted for name in want.names}
        held = sorted(wanted & self._in_use)
        pauses = [until - time.monotonic() for until in self._blocked.values()]
        if any(verdict.starts for verdict in verdicts):
            pauses.append(STUCK_AFTER)
        if self._unclaimed:
            pauses.append(CLAIMED_AFTER)
        with Watch(held[:MOST_WATCHED]) as watch:
            if watch.needs_checks or len(held) > MOST_WATCHED:
                pauses.append(CHECK_INTERVAL)
            pauses = [pause for pause in pauses if pause > 0] or pauses
            if wanted & names_in_use() != set(held):
                return  # one has ended since the decision
            self._block(watch, max(0.01, min(pauses, default=math.inf)))

    def _block(self, watch: Watch, pause: float) -> None:
        """Blocks until a holder ends or another process sends something, a number of seconds at most."""
        links = [link.connection for link in (*self._peers.values(), *self._clients.values())]
        end = time.monotonic() + pause
        while True:
            ready = readable([watch, self._listener, *links], end - time.monotonic())
            # holders answer connections, which is not a reason to decide again
            if ready != [watch.fileno()] or watch.ended():
                return


def _key(waiter: Waiter) -> tuple[int, str]:
    return waiter.uid, waiter.app_id


def main(argv: list[str]) -> None:
    """Runs the keeper, unless the state home has one.

    Args:
        argv: the state home, and the descriptor to write ``ready`` to.
    """
    home, ready = Home(Path(argv[0])), int(argv[1])
    separate()
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    lock = locks.acquire(keepers.lock_of(home))
    if lock is None:
        report_ready(ready)
        return
    listener = keepers.listen(home, lock)
    report_ready(ready)
    continue_under_guard()
    limits.raise_limit()
    Keeper(home, listener).run()
