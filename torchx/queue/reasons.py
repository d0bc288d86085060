"""Why a job waits, for its status."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping

from torchx.errors import StateError
from torchx.jobs.paths import JobPaths
from torchx.jobs.ticket import Ticket
from torchx.jobs.view import JobView
from torchx.queue import keepers
from torchx.queue.decision import decide_now
from torchx.queue.order import Verdict

UNKNOWN = "waiting in the queue"
"""The reason if the keeper does not report one, for instance as it just starts the job."""

IN_USE = "waiting in the queue: another program may use its GPUs; to see it: torchx queue"
"""The reason if a job is not started although no lease keeps it from its GPUs."""

STARTED_WITHIN = 5.0
"""Seconds after which a job that could start would be running."""

FRESH_FOR = 0.5
"""Seconds for which the decisions are used again: a listing may show a thousand waiting jobs."""

_known: tuple[float, dict[tuple[int, str], Verdict]] | None = None


def verdicts() -> dict[tuple[int, str], Verdict]:
    """Returns the decisions about the waiting jobs of all users, in their order, by user and application."""
    global _known  # a cache of this process
    now = time.monotonic()
    if _known is None or now - _known[0] > FRESH_FOR:
        decided = decide_now(keepers.survey())
        _known = now, {(verdict.waiter.uid, verdict.waiter.app_id): verdict for verdict in decided}
    return _known[1]


def of_runs(numbers: Mapping[str, int], sweep: str) -> str:
    """Returns the reason why runs of a sweep wait, as the end of a sentence; empty if no keeper reports one.

    Args:
        numbers: the numbers of the runs, by the ids of their applications.
        sweep: the sweep.
    """
    found = [
        verdict for (uid, app_id), verdict in verdicts().items() if uid == os.geteuid() and app_id in numbers
    ]
    for verdict in found:
        if not verdict.waiter.held:
            return f"; run {numbers[verdict.waiter.app_id]}: {verdict.reason or UNKNOWN}"
    if found:
        return held(sweep)
    return ""


def held(sweep: str) -> str:
    """Returns the reason why runs of a held sweep wait, as the end of a sentence."""
    return f"; held in the queue; to release them: torchx queue release {shlex.quote(sweep)}"


def reason(view: JobView, paths: JobPaths) -> str:
    """Returns the reason why a job has not started, empty if it does not wait.

    Args:
        view: its state.
        paths: its record.
    """
    if view.supervisor is not None or view.has_ended:
        return ""
    try:
        ticket = Ticket.load(paths)
    except OSError:
        return ""  # it is just starting
    except StateError as error:
        return error.message
    name = shlex.quote(ticket.app_id)
    if not ticket.is_of_this_boot:
        return f"the machine was restarted while it waited; to let it wait again: torchx queue release {name}"
    if ticket.held:
        return f"held in the queue; to release it: torchx queue release {name}"
    verdict = verdicts().get((os.geteuid(), ticket.app_id))
    if verdict is None or verdict.waiter.held:  # a decision of before its release
        return UNKNOWN
    if verdict.starts and ticket.gpus and time.time() - ticket.at > STARTED_WITHIN:
        return IN_USE
    return verdict.reason or UNKNOWN
