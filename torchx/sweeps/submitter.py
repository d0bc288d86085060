"""The process that submits runs that were added to a sweep later, in the recorded environment, and ends."""

from __future__ import annotations

import os
import time

from torchx import schedulers
from torchx.errors import StateError
from torchx.machine import locks
from torchx.machine.outage import Outage
from torchx.machine.polling import readable
from torchx.scheduling.pace import pause_after, sharing
from torchx.scheduling.protocols import UnavailableError
from torchx.sweeps import environment, requests
from torchx.sweeps.native import NativeRuns
from torchx.sweeps.paths import SweepPaths, open_wake
from torchx.sweeps.scheduler import SweepScheduler

GIVE_UP_AFTER = 24 * 3600.0
"""Seconds without an answer of the engine; a later command starts this process again."""


def run(paths: SweepPaths, held: int, session: str) -> None:
    """Acts on the requests of commands, and submits the runs that wait.

    Args:
        paths: the files of the sweep.
        held: the descriptor of its lock, which is closed at the end.
        session: the session part of its handle.

    Raises:
        TorchxError: the engine has not answered for a long time, or rejects a query.
    """
    engine_of = SweepScheduler(session, lambda name: schedulers.create_scheduler(name, session)).engine_of
    trouble = ""
    try:
        environment.enter(paths)
    except StateError as error:
        trouble = error.message
    pipe, outage = open_wake(paths), Outage(GIVE_UP_AFTER)
    begun = woken = time.monotonic()
    while True:
        complete = False
        try:
            with sharing(woken), locks.exclusive(paths.observing):
                native = NativeRuns(paths, engine_of)
                native.recover()
                native.act()
                complete = native.submit(trouble=trouble)
                if not complete:
                    native.observe()
                progress = native.progress
            outage.over()
        except UnavailableError:
            if outage.is_too_long():
                raise
        if not complete:
            if readable([pipe], pause_after(time.monotonic() - begun)):
                os.read(pipe, 4096)
                woken = time.monotonic()
            continue
        with locks.exclusive(paths.edit):
            if not requests.has_unread(paths, progress):
                os.close(held)  # under the lock: a later command starts another process
                return
