"""The end of jobs that never started: cancelled while they waited, or impossible to start."""

from __future__ import annotations

import contextlib

from torchx.end_causes import EndCause
from torchx.jobs import ended, ticket
from torchx.jobs.events import Clock, EventLog
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.view import load
from torchx.lazy import lazy_imports

with lazy_imports:
    from torchx.notifications import launch as notifications


def finish(home: Home, paths: JobPaths, state: str, msg: str) -> None:
    """Records the end of a waiting job, whose lock the caller holds.

    Args:
        home: the state home.
        paths: the job.
        state: CANCELLED or FAILED.
        msg: the reason.

    Raises:
        OSError: its record was removed, or cannot be written.
        StateError: its record is damaged.
    """
    view = load(paths)
    if not view.has_ended:
        with contextlib.closing(EventLog(paths.events, Clock(view.seen_at), paths.reserve)) as log:
            if state == "CANCELLED":
                log.add("cancel")
            log.add("end", state=state, msg=msg, cause=EndCause.NOT_STARTED)
        ended.finish(load(paths), paths)
        notifications.start(paths)
    ticket.clear(home, paths)
