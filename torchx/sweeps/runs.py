"""The runs of a sweep as applications of their scheduler: started with a recorded id, adopted, waited for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from torchx import settings
from torchx.errors import StateError, TorchxError
from torchx.jobs import hidden
from torchx.json_limits import Object
from torchx.machine.outage import Outage
from torchx.masking import mask_text
from torchx.schedulers.ids import assigned
from torchx.scheduling.base import (
    AnyScheduler,
    DescribeAppResponse,
    Glances,
    Measures,
    Selects,
    Waits,
)
from torchx.scheduling.notes import as_note
from torchx.scheduling.pace import NEARBY, pause_after, sharing
from torchx.scheduling.query import AppQuery
from torchx.scheduling.responses import epoch_seconds
from torchx.specs.app import AppDef
from torchx.specs.run_options import OptionValues
from torchx.specs.status import AppState, code_of, is_terminal
from torchx.sweeps.paths import BACKEND

if TYPE_CHECKING:
    from torchx.scheduling.measurement import AppUsage

SKEW = timedelta(minutes=5)
"""Maximum difference between the clocks of this machine and of an engine."""

LONGEST_PAUSE = 60.0
"""Maximum seconds between two queries of an engine that does not answer."""

DAMAGED, DAMAGED_FOR = "damaged_record", 60.0
"""The code of the error about an unreadable record, and the seconds after which it counts as damaged."""

LONGEST_MESSAGE = 500
"""Maximum characters of the message of a run."""


Usage = tuple[int | None, float | None, float | None]
UNMEASURED: Usage = (None, None, None)


class Ended(NamedTuple):
    """The end of a run.

    Attributes:
        state: the name of its final state.
        code: its exit code: that of the replica that failed first, 128 + N for signal N; None if unknown.
        started: the start of its first replica, seconds since the epoch; None if it never started.
        ended: its end.
        message: the reason for the state.
        usage: the largest memory of a replica in bytes, and its mean CPU cores and GPU utilisation (0 to 1);
            None for unknown values.
    """

    state: str
    code: int | None = None
    started: float | None = None
    ended: float | None = None
    message: str = ""
    usage: Usage = UNMEASURED


def start(engine: AnyScheduler, app: AppDef, cfg: OptionValues, app_id: str, sweep: str) -> str:
    """Submits a run of a sweep under an id, and returns the id on its engine, which may differ.

    Raises:
        TorchxError: the engine does not accept it.
    """
    app.metadata = {**app.metadata, settings.RUN: app_id}
    with assigned(app_id):
        info = engine.submit_dryrun(app, cfg)
    started = engine.schedule(info)
    with as_note(info.notes, "its secrets are not masked in quoted output"):
        hidden.share((BACKEND, sweep), engine.backend, started)
    return started


def glance(engine: AnyScheduler, app_id: str) -> DescribeAppResponse | None:
    """Returns the status of a run, brought to its due state; None if the engine does not know it.

    Raises:
        TorchxError: the engine does not answer.
    """
    if isinstance(engine, Glances):
        query = engine.glance
    else:
        query = engine.describe
    described = query(app_id)
    if described is not None and described.needs_reconcile:
        engine.reconcile(app_id)
        described = query(app_id)
    return described


def find(engine: AnyScheduler, app_id: str, name: str, since: float) -> str:
    """Returns the id of a run on its engine, after the process that submitted it was killed.

    Args:
        engine: the scheduler of the run.
        app_id: the id of the run.
        name: the name of its application.
        since: the time of its submission, seconds since the epoch.

    Raises:
        TorchxError: the engine does not answer.
    """
    if engine.exists(app_id) or engine.cheap_to_list:  # which assigns no other id
        return app_id
    query = AppQuery(called=name, since=datetime.fromtimestamp(since).astimezone() - SKEW)
    listed = engine.select(query) if isinstance(engine, Selects) else engine.list()
    for app in listed:
        if app.is_own and app.matches(query):
            described = engine.describe(app.app_id)
            if described is not None and described.metadata.get(settings.RUN) == app_id:
                return app.app_id
    return app_id


def has_started(described: DescribeAppResponse) -> bool:
    """Returns True if a replica of a run was started, or it has not ended."""
    if not is_terminal(described.state):
        return True
    return described.started_at is not None or any(replica.attempts for replica in described.replicas)


def wait(engine: AnyScheduler, app_id: str, started: Callable[[float], None] = lambda at: None) -> Ended:
    """Blocks until a run has ended; bridges outages of its engine.

    Args:
        engine: the scheduler of the run.
        app_id: its application.
        started: called with the time of its start, soon if it waits in the queue of this machine.
    """
    hidden.register(engine.backend, app_id)
    pause, begun = 0.1, time.monotonic()
    damage, is_over = Outage(DAMAGED_FOR), False
    while True:
        try:
            with contextlib.nullcontext() if is_over else sharing():
                described = glance(engine, app_id)
            if described is None:
                return Ended("FAILED", message="its scheduler no longer knows it")
            at = epoch_seconds(described.started_at)
            if at is not None:
                started(at)
            if is_terminal(described.state):
                return ended(described)._replace(usage=measured(engine, app_id))
            if described.state is not AppState.UNKNOWN:
                damage.over()
            elif is_over and damage.is_too_long():
                return Ended("FAILED", message=str(described.msg))
            elif is_over:
                time.sleep(pause_after(time.monotonic() - begun, first=0.1))
            if isinstance(engine, Waits):
                is_over = _is_over(engine, app_id, has_started=at is not None)
            else:
                engine.reconcile(app_id)
                time.sleep(pause_after(time.monotonic() - begun, first=0.1))
            pause = 0.1
        except (StateError, OSError) as error:
            if isinstance(error, StateError) and error.code == DAMAGED and damage.is_too_long():
                return Ended("FAILED", message=message_of(error))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _is_over(engine: AnyScheduler, app_id: str, *, has_started: bool) -> bool:
    """Blocks until a run has ended, or has left the queue of this machine; returns True if it has ended."""
    assert isinstance(engine, Waits)
    if has_started or not engine.waits_in_queue:
        return engine.wait(app_id)
    is_over = engine.wait(app_id, NEARBY)
    while not is_over and engine.may_wait(app_id):
        is_over = engine.wait(app_id, NEARBY)
    return is_over


def measured(engine: AnyScheduler, app_id: str) -> Usage:
    """Returns the measurements of a run: memory, CPU and GPU, as in :class:`Ended`."""
    if isinstance(engine, Measures):
        with contextlib.suppress(TorchxError, OSError):
            usage = engine.usage(app_id)
            if usage is not None:
                return usage_of(usage)
    return UNMEASURED


def usage_of(usage: AppUsage) -> Usage:
    """Returns the measurements of a run from those of its application."""
    total = usage.total
    if total is None:
        return UNMEASURED
    return (total.memory, total.cpu, total.gpu)


def end_entry(number: int, end: Ended) -> Object:
    """Returns the entry of the journal for the end of a run."""
    facts: Object = {"c": end.code, "b": end.started, "m": end.message}
    if end.usage != UNMEASURED:
        facts["u"] = list(end.usage)
    known = {key: value for key, value in facts.items() if value not in (None, "")}
    return {"e": "end", "n": number, "s": end.state, "t": end.ended or time.time(), **known}


def ended(described: DescribeAppResponse) -> Ended:
    """Returns the end of a run from its status."""
    first = described.first_failure
    message = str(described.msg) or (first.msg if first is not None else "")
    return Ended(
        described.state.name,
        code_of(described.state, described.cause, first),
        epoch_seconds(described.started_at),
        epoch_seconds(described.ended_at),
        mask_text(message)[:LONGEST_MESSAGE],
    )


def message_of(error: Exception) -> str:
    """Returns the message of an error, with secrets masked."""
    if isinstance(error, TorchxError):
        text = error.message
    else:
        text = str(error)
    return mask_text(text)[:LONGEST_MESSAGE]
