"""Sweeps whose runs the engine starts: submitted as one object, without a process of ours.

The engine has the states of the runs. A command that reads such a sweep records them in the journal, so that
all readers are the same as for other sweeps. The lock ``observing`` belongs to the writer of the journal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from torchx.machine import locks
from torchx.scheduling.base import EngineOf, ManyRuns, SubmitsMany
from torchx.scheduling.pace import deadline, pause_after, sharing
from torchx.scheduling.protocols import UnavailableError
from torchx.specs.app import AppDef
from torchx.sweeps import launch, view
from torchx.sweeps.native_runs import NativeRuns, has_unread_requests, others_of
from torchx.sweeps.paths import SweepPaths
from torchx.sweeps.plan import Header
from torchx.sweeps.progress import Progress

PATIENCE = 30.0
"""Maximum seconds to wait for the process that acts on the requests of commands."""


def suits(header: Header, apps: Mapping[int, AppDef], engine_of: EngineOf) -> bool:
    """Returns True if the engine can start all runs of a new sweep, which are alike.

    Args:
        header: the header of its plan.
        apps: the application of each run.
        engine_of: returns the scheduler of a name.
    """
    engine = engine_of(header.scheduler)
    if not isinstance(engine, SubmitsMany):
        return False
    others = others_of(header, ())
    many = ManyRuns(header.sweep, apps, header.cfg, header.at_once, others or ())
    return others is not None and not engine.rejects_many(many)


def _has_work(paths: SweepPaths, progress: Progress) -> bool:
    """Returns True if a process has to submit runs, or to act on requests."""
    return bool(
        progress.sending or has_unread_requests(paths, progress) or (progress.unsent and not progress.ids)
    )


def begin(paths: SweepPaths, engine_of: EngineOf) -> None:
    """Submits the runs of a new sweep, in the environment of this process.

    Raises:
        UnavailableError: the engine does not answer; the next command that reads the sweep repeats it.
        TorchxError: the engine rejects the runs; none of them was submitted.
        OSError: the journal cannot be written.
    """
    with locks.exclusive(paths.observing):
        NativeRuns(paths, engine_of).submit(first=True)


def reconcile(paths: SweepPaths, engine_of: EngineOf) -> None:
    """Records the states of the runs of a sweep; starts a process that submits those that are left.

    Raises:
        UnavailableError: the engine does not answer.
        StateError: the files of the sweep are damaged.
    """
    found = view.find(paths)
    if found is None or not found.header.native or found.has_ended:
        return
    if found.progress.unsent or _has_work(paths, found.progress):
        launch.start(paths, found.header.scheduler)
        end = time.monotonic() + PATIENCE
        while locks.is_held(paths.lock) and time.monotonic() < end:
            found = view.find(paths)
            if found is None or not _has_work(paths, found.progress):
                break
            time.sleep(0.02)
    try:
        with locks.exclusive(paths.observing):
            NativeRuns(paths, engine_of).observe()
    except FileNotFoundError:
        pass  # deleted meanwhile


def wait(paths: SweepPaths, engine_of: EngineOf, timeout: float | None) -> bool:
    """Blocks until all runs of a sweep have ended, bridging outages; returns False on timeout."""
    begun, end = time.monotonic(), deadline(timeout)
    while True:
        with contextlib.suppress(UnavailableError), sharing(begun):
            reconcile(paths, engine_of)
        found = view.find(paths)
        if found is None or found.has_ended:
            return True
        now = time.monotonic()
        left = min(pause_after(now - begun), end - now)
        if left <= 0:
            return False
        time.sleep(left)
