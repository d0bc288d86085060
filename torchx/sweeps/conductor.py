"""The process that starts the runs of a sweep, a number of them at a time, and records their ends.

It holds the lock of the sweep, and waits without using the processor. If it is killed, the runs continue, and
the next command that reads the sweep starts another one, which adopts them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchx import schedulers
from torchx.errors import StateError, TorchxError
from torchx.jobs.events import Clock
from torchx.lazy import lazy_imports
from torchx.machine import locks, processes
from torchx.scheduling.base import AnyScheduler, Kills
from torchx.specs.handles import parse_app_handle
from torchx.supervisor.process import report_ready, separate
from torchx.sweeps import after, environment, requests, runs
from torchx.sweeps.paths import SweepPaths, open_wake, run_id
from torchx.sweeps.plan import Plan
from torchx.sweeps.progress import PENDING, Entry, load, record
from torchx.sweeps.scheduler import SweepScheduler

with lazy_imports:
    from torchx.sweeps import submitter

WOKEN = 0
"""In the queue of events: the requests or the plan may have changed."""

LARGEST_STACK = 256 * 1024
"""Bytes of the stack of a thread that waits for a run."""


def main(argv: list[str]) -> None:
    """Starts the runs of a sweep, until all have ended.

    Args:
        argv: the folder of the sweep, the descriptor of its lock, and that to write ``ready`` to.
    """
    paths, held, ready = SweepPaths(Path(argv[0])), int(argv[1]), int(argv[2])
    separate()
    report_ready(ready)
    threading.stack_size(LARGEST_STACK)
    try:
        header = Plan(paths).header
        if header.native:
            submitter.run(paths, held, header.session)
        else:
            Conductor(paths, held).run()
    except FileNotFoundError:
        pass  # the sweep was deleted
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")  # its log
        sys.stderr.flush()
    os._exit(0)  # the threads that wait for runs need not end


def _begin(target: Callable[..., None], *args: Any) -> None:
    """Calls a function in a thread, for whose end this process does not wait."""
    threading.Thread(target=target, args=args, daemon=True).start()


class Conductor:
    """Starts the runs of one sweep.

    Args:
        paths: the files of the sweep.
        held: the descriptor of its lock, which this object closes when all runs have ended.

    Raises:
        FileNotFoundError: the sweep does not exist.
        StateError: its plan is damaged.
    """

    def __init__(self, paths: SweepPaths, held: int) -> None:
        self._paths, self._held = paths, held
        self._plan = Plan(paths)
        self._progress = load(paths, self._plan.extend())
        self._clock = Clock(step=self._progress.clock_step)
        self._events: queue.SimpleQueue[tuple[int, runs.Ended | float | None]] = queue.SimpleQueue()
        self._next = 1  # no run before this one waits
        self._trouble = ""  # why no run can start
        header = self._plan.header
        self._engine: AnyScheduler = schedulers.create_scheduler(header.scheduler, header.session)

    def run(self) -> None:
        """Starts the runs and waits for them, until all have ended."""
        me = processes.look_up(os.getpid())
        self._note(
            "conductor",
            pid=os.getpid(),
            start=me.process.start if me is not None else 0,
            booted=[processes.boot_id(), self._clock.now() - processes.uptime()],
        )
        pipe = open_wake(self._paths)
        _begin(self._listen, pipe)
        self._enter()
        for number in list(self._progress.ids):
            self._adopt(number)
        self._wait_for_others()
        while True:
            self._take_requests()
            self._fill()
            if not self._progress.active and self._finish():
                return
            self._await()

    def _enter(self) -> None:
        try:
            environment.enter(self._paths)
            self._trouble = ""
        except StateError as error:
            self._trouble = error.message

    def _listen(self, pipe: int) -> None:
        while os.read(pipe, 4096):
            self._events.put((WOKEN, None))

    def _note(self, kind: str, **facts: Any) -> None:
        """Appends an entry to the journal, and applies it."""
        record(self._paths, self._progress, {"e": kind, **facts})

    # --- other applications -----------------------------------------------------------------------------

    def _wait_for_others(self) -> None:
        """Waits in threads for the applications that the runs come after."""
        for number, (handle, _) in enumerate(self._plan.header.after):
            if number not in self._progress.met:
                _begin(self._wait_for, number, handle)

    def _wait_for(self, number: int, handle: str) -> None:
        backend, _, app_id = parse_app_handle(handle)
        session = self._plan.header.session
        try:
            sweeps = SweepScheduler(session, lambda name: schedulers.create_scheduler(name, session))
            ended = runs.wait(sweeps.engine_of(backend), app_id)
        except Exception as error:  # whatever it is: without an end, the sweep would wait for ever
            ended = runs.Ended("UNKNOWN", message=runs.message_of(error))
        self._events.put((-1 - number, ended))

    def _has_ended(self, number: int, ended: runs.Ended) -> None:
        """Records the end of an application that the runs come after."""
        handle, condition = self._plan.header.after[number]
        if after.is_met(condition, ended.state):
            self._note("met", i=number)
        else:
            reason = after.unmet(handle, condition, ended.state)
            self._note("cancel", runs=len(self._progress.states), m=reason)

    # --- requests ---------------------------------------------------------------------------------------

    def _take_requests(self) -> None:
        """Acts on the requests that were added."""
        self._progress.grow(self._plan.extend())
        self._next = 1
        for request in requests.read(self._paths, self._progress.handled):
            self._act(request)

    def _act(self, request: requests.Request) -> None:
        kind, position, count = request.kind, request.position, len(self._progress.states)
        if kind in ("cancel", "kill"):
            self._note("cancel", runs=count, upto=position)
            for app_id in self._progress.ids.values():
                _begin(self._end, app_id, kind == "kill")
        elif kind == "again":
            chosen = [number for number in request.runs if self._progress.has_ended(number)]
            self._note("again", runs=chosen, upto=position)
        elif kind == requests.DROP:
            for number in request.runs:
                self._drop(number)
            self._note("seen", upto=position)
        elif kind in (requests.HOLD, requests.RELEASE):
            self._note(kind, upto=position)
        elif kind == "at_once" and request.to is not None:
            self._note("at_once", to=request.to, upto=position)
        else:
            self._note("seen", upto=position)
        if kind in ("again", "look"):
            self._enter()

    def _drop(self, number: int) -> None:
        """Cancels a run that waits, or has begun since the request."""
        if number in self._progress.ids:
            _begin(self._end, self._progress.ids[number], False)
        elif self._progress.states[number - 1 : number] == bytes([PENDING]):
            self._note("end", n=number, s="CANCELLED", t=self._clock.now())

    def _end(self, app_id: str, now: bool) -> None:
        with contextlib.suppress(TorchxError, OSError):  # its end is awaited in any case
            if now and isinstance(self._engine, Kills):
                self._engine.kill(app_id)
            else:
                self._engine.cancel(app_id)

    # --- runs -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Starts runs until enough of them run, or something has happened: it may change the number."""
        if self._progress.held or len(self._progress.met) < len(self._plan.header.after):
            return
        limit = self._progress.limit(self._plan.header.at_once)
        while not limit or len(self._progress.ids) < limit:
            number = self._progress.states.find(PENDING, self._next - 1) + 1
            if not number:
                return
            self._next = number + 1
            if number in self._progress.ids:
                continue
            if self._trouble:
                self._note("end", n=number, s="FAILED", t=self._clock.now(), m=self._trouble)
            else:
                self._start(number)
            if not self._events.empty():
                return

    def _start(self, number: int) -> None:
        attempt = self._progress.tries.get(number, 0) + 1
        app_id = run_id(self._plan.header.sweep, number, attempt)
        # recorded first: a conductor that is killed now has at most this application to search for
        facts: Entry = {"n": number, "id": app_id, "t": self._clock.now(), "waits": 1}
        if attempt > 1:
            facts["try"] = attempt
        self._note("begin", **facts)
        try:
            app = self._plan.app(self._plan.run(number))
            sweep, cfg = self._plan.header.sweep, dict(self._plan.header.cfg)
            started = runs.start(self._engine, app, cfg, app_id, sweep)
        except (TorchxError, OSError) as error:
            self._note("end", n=number, s="FAILED", t=self._clock.now(), m=runs.message_of(error))
            return
        waits = self._engine.waits_in_queue and self._engine.may_wait(started)
        if not waits or started != app_id:
            self._note("begin", n=number, id=started, t=self._clock.now(), waits=int(waits))
        self._watch(number, started)

    def _watch(self, number: int, app_id: str) -> None:
        def wait() -> None:
            try:
                ended = runs.wait(self._engine, app_id, lambda at: self._events.put((number, at)))
            except Exception as error:  # whatever it is: the other runs go on
                ended = runs.Ended("FAILED", message=f"it cannot be waited for: {runs.message_of(error)}")
            self._events.put((number, ended))

        _begin(wait)

    def _adopt(self, number: int) -> None:
        """Continues a run that an earlier conductor began; one that never started is started again."""
        app_id = self._progress.ids[number]
        begun = self._progress.begun.get(number, 0.0)
        with contextlib.suppress(TorchxError, OSError):
            found = runs.find(self._engine, app_id, self._plan.header.name, begun)
            if found != app_id:
                self._note("begin", n=number, id=found, t=begun)
                app_id = found
            described = runs.glance(self._engine, app_id)
            if described is None or not runs.has_started(described):
                self._engine.delete(app_id)
                self._progress.tries[number] = self._progress.tries.get(number, 1)
                self._progress.ids.pop(number)
                if number <= self._progress.cancelled:
                    self._note("end", n=number, s="CANCELLED", t=self._clock.now())
                else:
                    self._start(number)
                return
        if number <= self._progress.cancelled:
            _begin(self._end, app_id, False)
        self._watch(number, app_id)

    def _await(self) -> None:
        """Blocks until something has happened, and records the ends of runs."""
        is_first = True
        while is_first or not self._events.empty():
            number, found = self._events.get()
            is_first = False
            if isinstance(found, float):
                if self._progress.states[number - 1] == PENDING:
                    self._note("begin", n=number, id=self._progress.ids[number], t=found)
            elif found is not None and number < 0:
                self._has_ended(-1 - number, found)
            elif found is not None:
                record(self._paths, self._progress, runs.end_entry(number, found))

    def _finish(self) -> bool:
        """Records the end of the sweep, unless something was added; returns True if it has ended."""
        with locks.exclusive(self._paths.edit):
            self._take_requests()
            if self._progress.active:
                return False
            self._note("done", t=self._clock.now())
            os.close(self._held)  # under the lock: who adds something later starts another conductor
            return True
