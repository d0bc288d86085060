"""The attempts of replicas, from the files written by their nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from torchx.end_causes import recorded_cause
from torchx.json_shape import Limited, fits
from torchx.printable import joined
from torchx.schedulers.shared.batch.ends import CAUSES, SCRIPT_KILLED
from torchx.schedulers.shared.batch.outcome import Outcome, is_time
from torchx.schedulers.shared.batch.paths import clean, parse_json, read_own
from torchx.schedulers.shared.batch.record import TIME
from torchx.scheduling.observation import CANCELLED, OTHER_FAILED, while_needed
from torchx.scheduling.responses import local_time
from torchx.scheduling.retry_rules import NOT_RETRIED, Failure, RetryRules
from torchx.services import NO_LONGER_NEEDED
from torchx.specs.status import AppState, AttemptStatus, EndCause, is_terminal


def statuses_of(
    numbered: Sequence[tuple[int, Path]],
    outcome: Outcome,
    *,
    service: bool = False,
    retries: int = 0,
    cfg: Mapping[str, Any],
) -> list[tuple[AttemptStatus, str]]:
    """Returns the attempts of a replica, in order, each with its node.

    Args:
        numbered: the numbers and folders of its attempts.
        outcome: the state of its job.
        service: it belongs to a service.
        retries: the retries of its role.
        cfg: the run options of the job.
    """
    attempts = []
    for number, path in numbered:
        end, start = read_facts(path / "end.json"), read_facts(path / "start.json")
        facts = {**(start or {}), **(end or {})}
        last = number == numbered[-1][0]
        if last and not end and _has_begun_since(path, facts, outcome):
            break
        attempt = _attempt(number, facts, bool(end), outcome, last)
        if last and attempt.cause is EndCause.OUT_OF_MEMORY:
            refused = facts.get("refused", "")
            if number <= retries:
                refused = RetryRules.recorded(cfg).refusal(_KILLED) or refused
            attempt = replace(attempt, msg=joined(attempt.msg, refused), refused=bool(refused))
        if service and end:
            attempt = _end_of_service(attempt, end, outcome, last)
        elif service and attempt.state is AppState.SUCCEEDED:  # killed, with the program that records its end
            attempt = replace(attempt, state=AppState.CANCELLED, msg=NO_LONGER_NEEDED)
        attempts.append((attempt, str(facts.get("host", ""))))
    return attempts


def _has_begun_since(path: Path, facts: Mapping[str, Any], outcome: Outcome) -> bool:
    """Returns True if an attempt has begun after Slurm's answer, which says that the job waits for its start.

    Otherwise the job has been queued again since.
    """
    queued_at = outcome.submitted_at
    if outcome.state not in (AppState.SUBMITTED, AppState.PENDING) or queued_at is None:
        return False
    started: Any = facts.get("started_at")
    if is_time(started):
        return bool(started >= queued_at)
    try:  # a node without Python records no start
        return path.stat().st_mtime >= queued_at
    except OSError:
        return True


_KILLED = Failure(None, "SIGKILL", known=EndCause.OUT_OF_MEMORY)
"""A failure whose node does not know the cause."""
CLOCKS_DIFFER = 2.0
"""Seconds by which the clocks of a node and of the file system may differ."""
LARGEST_RUN = 1 << 30
"""Exclusive limit of the number of a run."""


def _attempt(
    number: int, facts: Mapping[str, Any], ended: bool, outcome: Outcome, last: bool
) -> AttemptStatus:
    msg, cause = str(facts.get("msg", "")), recorded_cause(facts)
    started = facts.get("started_at")
    if ended:
        state, msg, cause = _ended(facts, msg, cause, outcome, last)
    elif last and outcome.state in (AppState.RUNNING, AppState.UNKNOWN):
        state, msg = outcome.state, ""
        if state is AppState.RUNNING:  # the clock of the node may be behind
            started = started and max(started, outcome.started_at or 0.0)
    elif last and not is_terminal(outcome.state):
        state, msg = AppState.FAILED, "interrupted"  # the job has been queued again
    elif last and outcome.state is AppState.SUCCEEDED:
        # not yet reported by its node, or lost unless the end of its step is known
        if outcome.proved:
            state = AppState.SUCCEEDED
        else:
            state = AppState.UNKNOWN
    else:
        state, msg, cause = _stopped(outcome, last)
    return AttemptStatus(
        number=number,
        state=state,
        exit_code=None if facts.get("signal") else facts.get("exit_code"),
        signal=facts.get("signal"),
        started_at=local_time(started),
        ended_at=local_time(facts.get("ended_at")),
        msg=msg,
        ready_at=local_time(facts.get("ready_at")),
        cause=cause,
        run=facts.get("run", 1),
        noticed_at=local_time(facts.get("noticed_at")),
        refused=bool(facts.get("refused")),
    )


def _ended(
    facts: Mapping[str, Any], msg: str, cause: EndCause | None, outcome: Outcome, last: bool
) -> tuple[AppState, str, EndCause | None]:
    """Returns state, message and cause of an attempt whose end is recorded with a message and a cause."""
    code, signal = facts.get("exit_code"), facts.get("signal")
    state = AppState.FAILED
    if code == 0 and not signal:
        state = AppState.SUCCEEDED
    if facts.get("stop_signal") and (state is AppState.FAILED or outcome.state is not AppState.SUCCEEDED):
        return _stopped(outcome, last)
    if outcome.word == "OUT_OF_MEMORY" and (signal == "SIGKILL" or code == 137):  # 137: a shell
        return state, outcome.msg, EndCause.OUT_OF_MEMORY
    return state, msg, cause


def _end_of_service(
    attempt: AttemptStatus, facts: Mapping[str, Any], outcome: Outcome, last: bool
) -> AttemptStatus:
    """Returns the end of a service: if it was needed, a failure, whatever its exit code."""
    if facts.get("needed"):
        failed = while_needed(attempt)
        if attempt.signal == "SIGKILL":
            return replace(failed, msg=attempt.msg)
        return failed
    if outcome.state is AppState.SUCCEEDED and last:
        return replace(attempt, state=AppState.CANCELLED, msg=NO_LONGER_NEEDED)
    state, msg, cause = _stopped(outcome, last)
    return replace(attempt, state=state, msg=msg, cause=cause)


_JOB_WIDE_CAUSES = ("TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL")


def _stopped(outcome: Outcome, last: bool) -> tuple[AppState, str, EndCause | None]:
    """Returns state, message and cause of an attempt that did not end by itself."""
    if not last:
        return AppState.FAILED, "stopped for a restart", None
    if outcome.state is AppState.FAILED and outcome.word in _JOB_WIDE_CAUSES:
        return AppState.FAILED, outcome.msg, CAUSES.get(outcome.word)
    if outcome.word == SCRIPT_KILLED:
        return AppState.CANCELLED, outcome.msg, None
    if outcome.state is AppState.FAILED:
        return AppState.CANCELLED, OTHER_FAILED, None
    return AppState.CANCELLED, CANCELLED if outcome.state is AppState.CANCELLED else "stopped", None


def ready_since(path: Path) -> datetime | None:
    """Returns the time in the file of a replica that is ready; None for files of version 0.1.0."""
    try:
        at = float((read_own(path) or b"")[:32])
    except ValueError:
        return None
    if is_time(at):
        return local_time(at)
    return None


def read_facts(path: Path) -> dict[str, Any] | None:
    """Returns the valid fields of a file written by a replica, or None."""
    try:
        data, written = parse_json(read_own(path) or b""), path.lstat().st_mtime
    except (ValueError, OSError):
        return None
    if not isinstance(data, dict):
        return None
    data.setdefault("stop_signal", data.get("told"))  # the name in files of version 0.1.0
    fields: dict[str, Any] = {
        name: data[name] for name, shape in _FACTS.items() if fits(data.get(name), shape)
    }
    ahead = max((fields[name] for name in _TIMES if name in fields), default=0.0) - written
    for name, value in fields.items():
        if name in _TIMES and ahead > CLOCKS_DIFFER:
            fields[name] = (
                value - ahead
            )  # of the node's clock: its latest time is not after the file was written
        if isinstance(value, str):
            fields[name] = clean(value[:1000])
    # in files of earlier versions, only the message has it
    fields.setdefault("refused", "".join(fields.get("msg", "").partition(NOT_RETRIED)[1:]))
    return fields


_TIMES = ("started_at", "ended_at", "ready_at", "noticed_at")
_FACTS = {
    **dict.fromkeys(_TIMES, TIME),
    **dict.fromkeys(("host", "cwd", "signal", "stop_signal", "msg", "cause", "refused"), str),
    "needed": Limited(bool, bool),
    "run": Limited(int, lambda number: 0 < number < LARGEST_RUN),
    "exit_code": Limited(int, lambda code: 0 <= code < 256),
}
"""The shapes of the fields of such a file; others are ignored."""
