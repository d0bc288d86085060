"""The state of a job, and its end as saved in the folder of the job."""

from __future__ import annotations

import contextlib
import json
from types import NoneType
from typing import Any, NamedTuple

from torchx.json_limits import Object
from torchx.json_shape import check, fits
from torchx.schedulers.shared.batch.paths import (
    BatchPaths,
    clean,
    distrust_reason,
    parse_json,
    path_exists,
    read_own,
    write,
)
from torchx.schedulers.shared.batch.progress import ScriptEnd
from torchx.schedulers.shared.batch.record import TIME, BatchRecord
from torchx.specs.status import AppState, is_terminal


class Outcome(NamedTuple):
    """State of a job.

    Attributes:
        state: the state of the application.
        msg: the reason, one line.
        word: the name of its end or its state, if that adds information; else empty.
        submitted_at: time of submission, in seconds since the epoch.
        started_at: time of the start.
        ended_at: time of the end.
        exit_code: exit code of the script.
        proved: True if each step is known to have ended with 0.
    """

    state: AppState
    msg: str = ""
    word: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    proved: bool = False

    @property
    def exit_message(self) -> str:
        """The reason for a failure without any other: the exit code of the script."""
        if self.exit_code:
            return f"its script exited with {self.exit_code}"
        return ""


def state_of_script(over: ScriptEnd, paths: BatchPaths | None) -> tuple[AppState, str]:
    """Returns the state and the message of a job whose script has ended."""
    if paths is not None and was_cancelled(paths, over):
        return AppState.CANCELLED, "cancelled"
    return (AppState.SUCCEEDED if over.code == 0 else AppState.FAILED), ""


def was_cancelled(paths: BatchPaths, over: ScriptEnd | None) -> bool:
    """Returns True if the job was cancelled before it ended by itself."""
    try:
        cancelled_at = paths.cancelled.stat().st_mtime
    except OSError:
        return False
    return over is None or (over.code != 0 and cancelled_at < over.at + 1)  # over.at has whole seconds


def started_at(paths: BatchPaths) -> float | None:
    """Returns the time of the last start of the script, None before it."""
    try:
        return paths.attempt.lstat().st_mtime
    except OSError:
        return None


def save_outcome(record: BatchRecord, outcome: Outcome) -> None:
    """Saves how a job of the caller ended, since an engine without accounting soon forgets it.

    Called by commands that wait for a job or end it, not by queries.
    """
    paths = record.paths
    if not is_terminal(outcome.state) or not record.folder or distrust_reason(paths.folder, record.token):
        return
    if not path_exists(paths.outcome):
        data: Object = {**outcome._asdict(), "state": outcome.state.name}
        with contextlib.suppress(OSError, ValueError):
            write(paths.outcome, json.dumps(data))


def read_outcome(paths: BatchPaths) -> Outcome | None:
    """Returns the saved end of a job, None without one."""
    try:
        data = parse_json(read_own(paths.outcome) or b"")
        check(data, _SHAPE, "")
        outcome = Outcome(**{**data, "state": AppState[data["state"]]})
    except (ValueError, TypeError, KeyError):
        return None
    if is_terminal(outcome.state):
        return outcome._replace(msg=clean(outcome.msg))
    return None


_SHAPE = {
    "state": str,
    "msg": str,
    "word": str,
    "exit_code": (int, NoneType),
    **dict.fromkeys(("submitted_at", "started_at", "ended_at"), (TIME, NoneType)),
}


def is_time(value: Any) -> bool:
    """Returns True if a value can be a time, in seconds since the epoch."""
    return fits(value, TIME)
