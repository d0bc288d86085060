"""The process that waits for the end of an application and sends its notifications.

It runs on the machine of the submission, for engines that start no process of ours at the end. While it waits
it reconciles the application, which starts the retries that an engine does not start itself.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from torchx import masking
from torchx.errors import StateError, TorchxError
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.machine.outage import Outage
from torchx.notifications.store import EARLY, END, Store
from torchx.runner.changes import reports_of
from torchx.scheduling.responses import DescribeAppResponse, epoch_seconds
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import code_of, is_terminal
from torchx.supervisor.process import report_ready, restart_later, separate

with lazy_imports:  # the submitting command waits only for the others
    from torchx.notifications import payload, sender
    from torchx.runner import api

NEARBY, REMOTE = 2.0, 30.0
"""Seconds between two checks for stalls: of an engine of this machine, and over a network."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two queries of an engine that does not answer; the pause grows."""


def main(argv: list[str]) -> None:
    """Waits for the end of an application and sends its notifications.

    Args:
        argv: the folder of the notifications, the descriptor of the lock that this process holds, and that to
            write ``ready`` to.
    """
    separate()
    os.umask(0o077)
    report_ready(int(argv[2]))
    held, restarted = int(argv[1]), os.open(os.devnull, os.O_WRONLY)
    again = [argv[0], str(held), str(restarted)]
    restart = partial(restart_later, "torchx.runner.watcher", again, [held, restarted], isolated=False)
    _ = payload.make, sender.Sender, api.get_runner  # now: torchx may be upgraded while the application runs
    store = Store(Path(argv[0]))
    planned = store.plan()
    if planned is None:
        return
    watch(store, planned[1], restart)
    if not planned[0].targets:  # nothing is left to show
        shutil.rmtree(store.folder, ignore_errors=True)


def watch(store: Store, handle: str, restart: Callable[[float], NoReturn] | None = None) -> None:
    """Waits for the end of an application and sends its notifications.

    Args:
        store: the files of the notifications.
        handle: the application.
        restart: see :class:`torchx.notifications.sender.Sender`.
    """
    _notify_of_stalls(store, handle)
    try:
        ended = _wait(store, handle)
    except (TorchxError, OSError) as error:
        store.give_up(f"the engine did not answer: {error}")
        return
    if ended is None:
        store.give_up("the application is no longer known to its scheduler")
    else:
        sender.Sender(store, END, payload_of(handle, ended), restart).run()


def _notify_of_stalls(store: Store, handle: str) -> None:
    """Starts a thread that notifies of the first stall and the first straggler, if that is planned."""
    planned = store.plan()
    kinds = {kind for kind in EARLY if planned is not None and kind in planned[0].on}
    if kinds:
        threading.Thread(target=_watch_stalls, args=(store, handle, kinds), daemon=True).start()


def _watch_stalls(store: Store, handle: str, kinds: set[str]) -> None:
    with api.get_runner(parse_app_handle(handle).session_name) as runner:
        if runner.scheduler_of(handle).on_this_machine:
            interval = NEARBY
        else:
            interval = REMOTE
        while kinds and store.folder.exists():
            with suppress(TorchxError, OSError):
                described = runner.description(handle, brief=True)
                if described is None or is_terminal(described.state):
                    return
                messages = {each.kind: each.message for each in reports_of(described)}
                for kind in [kind for kind in kinds if EARLY[kind] in messages]:
                    kinds.remove(kind)
                    payload = payload_of(handle, described, messages[EARLY[kind]])
                    sender.Sender(store, kind, payload).run()
            time.sleep(interval)


def _wait(store: Store, handle: str) -> DescribeAppResponse | None:
    """Returns the description of an ended application; bridges outages of its engine.

    Raises:
        TorchxError: the engine has not answered for a long time, or no longer exists.
    """
    outage, pause = Outage(sender.GIVE_UP_AFTER), FIRST_PAUSE
    with api.get_runner(parse_app_handle(handle).session_name) as runner:
        while True:
            began = time.monotonic()
            try:
                runner.status(handle)
                outage.over()
                status = runner.wait(handle)
                if status is None:
                    return None
                return runner.description(handle)
            except (StateError, OSError):
                if outage.is_too_long() or not store.folder.exists():
                    raise
            if time.monotonic() - began > LONGEST_PAUSE:  # it has waited before the outage
                pause = FIRST_PAUSE
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def payload_of(handle: str, ended: DescribeAppResponse, message: str = "") -> Object:
    """Returns the content of a notification about an application of any engine.

    Args:
        handle: the application.
        ended: its description.
        message: the reason (default: that of its state, or of its first failure).
    """
    masking.add_values(masking.secrets_in_roles(ended.roles))
    return payload.make(
        name=ended.name or ended.app_id,
        handle=handle,
        state=ended.state.name,
        message=message or str(ended.msg),
        exit_code=code_of(ended.state, ended.cause, ended.first_failure),
        failure=ended.first_failure,
        times=(
            epoch_seconds(ended.submitted_at),
            epoch_seconds(ended.started_at),
            epoch_seconds(ended.ended_at),
        ),
    )
