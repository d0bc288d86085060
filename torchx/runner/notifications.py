"""Notifications about applications: their files, and the process that waits for an end on other engines."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from torchx.errors import StateError, TorchxError, UsageError
from torchx.jobs.paths import Home, state_home, user_home
from torchx.lazy import lazy_imports
from torchx.machine import locks
from torchx.notifications.store import EARLY, END, PLANNED, Delivery, Store, due_kind
from torchx.specs.handles import parse_app_handle
from torchx.specs.notify import Notify
from torchx.specs.status import AppState, is_terminal
from torchx.supervisor import process

with lazy_imports:
    from torchx.notifications import launch

if TYPE_CHECKING:
    from torchx.runner.host import Host

MODULE = "torchx.runner.watcher"


def check(plan: Notify, scheduler: str, *, stalls: bool = False) -> None:
    """Checks that notifications can be sent about applications of a scheduler that does not send them.

    Args:
        plan: the notifications.
        scheduler: the scheduler.
        stalls: whether stalls of the application are detected.

    Raises:
        UsageError: they cannot: only stalls or stragglers are requested, and none are detected.
    """
    if set(plan.on) <= set(EARLY) and not stalls:
        hint = "--stall or --straggler, or --notify-on end or failure"
        raise UsageError(f"{scheduler} records no stalls to notify of", hint=hint)


def request(runner: Host, handle: str, plan: Notify | None, *, stalls: bool = False) -> None:
    """Starts a process that waits for the end of an application and sends the notifications.

    Args:
        runner: used to find the files.
        handle: the application.
        plan: the notifications; None if the process only carries out the retries of the application.
        stalls: whether stalls of the application are detected.

    Raises:
        StateError: it cannot be started.
    """
    state_home()
    targets, on = ((), ()) if plan is None else (plan.targets, plan.on)
    plan = Notify.recorded(targets, [kind for kind in on if kind not in EARLY or stalls])
    store = Store(runner._notifications_folder(handle))
    try:
        store.create(plan, handle)
    except OSError as error:
        raise StateError(f"{error.filename or store.folder}: {error.strerror}") from error
    _start_watcher(store)


def left(runner: Host, handle: str, state: AppState) -> list[Delivery]:
    """Returns the state of each notification; without those that the end of the application has excluded.

    Args:
        runner: used to find the files.
        handle: the application.
        state: its state.
    """
    deliveries = Store(runner._notifications_folder(handle)).deliveries()
    if not is_terminal(state):
        return deliveries
    due = due_kind({each.kind for each in deliveries}, END, state.name)
    return [each for each in deliveries if each.state != PLANNED or each.kind == due]


def resume(runner: Host, handle: str, state: AppState) -> None:
    """Starts the process of :func:`request` again if it was killed, or the machine was restarted.

    Args:
        runner: used to find the files.
        handle: the application.
        state: its state.

    Raises:
        StateError: it cannot be started.
    """
    store = Store(runner._notifications_folder(handle))
    planned = store.plan()
    retries = planned is not None and not planned[0].targets and not is_terminal(state)
    final = all(each.is_final for each in left(runner, handle, state) if each.kind not in EARLY)
    if store.is_sending(END) or (final and not retries):
        return
    if not runner._sends_notifications(handle):
        _start_watcher(store)
    elif is_terminal(state):
        launch.start(Home(user_home()).job(parse_app_handle(handle).app_id), reap=True)


def _start_watcher(store: Store) -> None:
    held = locks.acquire(store.lock(END))
    if held is None:
        return
    try:
        process.start(MODULE, [str(store.folder), str(held)], store.log, [held], isolated=False)
    finally:
        os.close(held)


def forget(runner: Host, handle: str) -> None:
    """Removes the files about an application that was removed; its sender then ends."""
    with suppress(TorchxError):
        if not runner._sends_notifications(handle):
            shutil.rmtree(runner._notifications_folder(handle), ignore_errors=True)
