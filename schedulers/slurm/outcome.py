"""In which state a job is, from all that is known of it: the queue, the accounting, its own files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torchx.machine import files
from torchx.schedulers.slurm.parse import JobFacts, words
from torchx.schedulers.slurm.paths import SlurmPaths, clean, distrusted, parse_json, read_own, write
from torchx.schedulers.slurm.record import LATEST, SlurmRecord, is_there
from torchx.specs.status import AppState, is_terminal

GAP = 60.0
"""Seconds after a submission in which Slurm may not know the job yet."""

LIVE = words(
    "PENDING RUNNING SUSPENDED COMPLETING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESIZING SIGNALING "
    "STAGE_OUT STOPPED SPECIAL_EXIT RESV_DEL_HOLD UPDATE_DB POWER_UP_NODE"
)
"""Words of Slurm for jobs that have not ended."""

_FAILURES = {
    "FAILED": "",
    "TIMEOUT": "time limit reached",
    "NODE_FAIL": "a node failed",
    "PREEMPTED": "preempted by a job of higher priority",
    "BOOT_FAIL": "a node could not be started",
    "OUT_OF_MEMORY": "out of memory",
    "DEADLINE": "its deadline passed before it could end",
    "LAUNCH_FAILED": "it could not be started on its nodes",
    "RECONFIG_FAIL": "a node could not be set up",
}
"""Why a job failed, by the word of Slurm for its state."""

_WAITS = {
    "Resources": "waits for free nodes",
    "Priority": "other jobs come before it",
    "Dependency": "waits for other jobs",
    "DependencyNeverSatisfied": "the jobs it depends on will never end as wanted",
    "BeginTime": "its time to begin has not come",
    "JobHeldUser": "held by its user: scontrol release",
    "JobHeldAdmin": "held by an administrator",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs",
    "PartitionNodeLimit": "it asks for more nodes than its partition gives",
    "PartitionConfig": "its partition cannot give what it asks for",
    "PartitionTimeLimit": "it asks for more time than its partition gives",
    "ReqNodeNotAvail": "nodes that it needs are down, reserved or taken",
    "BadConstraints": "no nodes are what it asks for",
    "NodeDown": "a node that it needs is down",
    "Reservation": "its reservation has not begun",
    "Licenses": "waits for licences",
    "launch failed requeued held": "it could not be started on its nodes, and is held: scontrol release",
}
"""What the reasons of Slurm mean."""


@dataclass(frozen=True)
class Outcome:
    """How a job fares.

    Attributes:
        state: the state of the whole.
        msg: why, one line.
        word: Slurm's own word, where that tells more; empty otherwise.
        submitted_at: seconds since the epoch, as all times.
        started_at: when it started.
        ended_at: when it ended.
        exit_code: of its script.
        proved: each of its steps is known to have ended with 0.
    """

    state: AppState
    msg: str = ""
    word: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    proved: bool = False


@dataclass(frozen=True)
class Over:
    """What the script has left at its end.

    Attributes:
        code: its exit code.
        at: when; seconds since the epoch.
        roles: the number of roles that are known to have ended; 0 for scripts of earlier versions.
    """

    code: int
    at: float
    roles: int = 0

    @property
    def proved(self) -> bool:
        """True if each role ended with 0: the script has seen the end of each."""
        return self.code == 0 and self.roles > 0


def outcome_of(
    record: SlurmRecord | None, queue: Sequence[JobFacts], account: Sequence[JobFacts] = ()
) -> Outcome | None:
    """Returns how a job fares; None when nobody tells, and the accounting may be worth a question.

    Args:
        record: what is kept of it.
        queue: what squeue tells of it.
        account: what sacct tells of it.
    """
    paths = record.paths if record is not None else None
    over = read_over(paths) if paths is not None else None
    kept = None if queue or paths is None else _recall(paths)
    if kept is not None:
        return kept
    if told := queue or account:
        found = _of_memory(_of_facts(told, over, paths), paths)
        if record is not None and record.damage:
            found = replace(found, msg="; ".join(text for text in (found.msg, record.damage) if text))
        return found
    if over is not None and record is not None:
        state, msg = AppState.SUCCEEDED if over.code == 0 else AppState.FAILED, ""
        if _cut_short(record.paths, over):
            state, msg = AppState.CANCELLED, "cancelled"
        found = Outcome(
            state, msg, submitted_at=record.submitted_at, started_at=_started(record), ended_at=over.at,
            exit_code=over.code, proved=over.proved,
        )  # fmt: skip
        return _of_memory(found, record.paths)
    return None


def _of_memory(outcome: Outcome, paths: SlurmPaths | None) -> Outcome:
    """Returns an outcome by its right name: where a step was killed for its memory, a job has just failed."""
    if paths is None or outcome.state is not AppState.FAILED or outcome.word not in ("", "FAILED"):
        return outcome
    if not re.search("|".join(_MEMORY), last_words(paths), re.IGNORECASE):
        return outcome
    return replace(outcome, msg=_FAILURES["OUT_OF_MEMORY"], word="OUT_OF_MEMORY")


def without_slurm(record: SlurmRecord) -> Outcome:
    """Returns how a job fares that Slurm does not tell of, by what it has left."""
    state, msg, word = _guess(record)
    return Outcome(state, msg, word, record.submitted_at, _started(record))


def _guess(record: SlurmRecord) -> tuple[AppState, str, str]:
    if record.damage:
        return AppState.UNKNOWN, record.damage, ""
    if is_there(record.paths.cancelled):
        return AppState.CANCELLED, "cancelled", ""
    said = last_words(record.paths)
    for said_so, word in {**_LAST_WORDS, **dict.fromkeys(_MEMORY, "OUT_OF_MEMORY")}.items():
        if re.search(said_so, said, re.IGNORECASE):
            return AppState.FAILED, _FAILURES[word], word
    if "CANCELLED AT" in said or "has expired" in said:
        return AppState.CANCELLED, "cancelled", ""
    if time.time() - record.submitted_at < GAP:
        return AppState.SUBMITTED, "Slurm does not tell of it yet", ""
    return AppState.UNKNOWN, "Slurm knows it no more, and it has left no end", ""


_LAST_WORDS = {
    "DUE TO TIME LIMIT": "TIMEOUT",
    "DUE TO NODE FAILURE": "NODE_FAIL",
    "DUE TO PREEMPTION": "PREEMPTED",
}
_MEMORY = ("oom[-_]kill", "exceeded (job )?memory limit")


def _of_facts(facts: Sequence[JobFacts], over: Over | None, paths: SlurmPaths | None) -> Outcome:
    """Returns what a job is by Slurm's own words, and by its end where it has told that itself."""
    first = facts[0]
    submitted = first.submitted
    if not all(part.state for part in facts):
        return Outcome(AppState.UNKNOWN, "Slurm gives no state of it that can be read", "", submitted)
    live = [part for part in facts if part.state in LIVE]
    if live:
        if all(
            part.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING", "SPECIAL_EXIT")
            for part in live
        ):
            again = paths is not None and attempts_of(paths) > 0
            why = why_it_waits(live)
            msg = "; ".join(part for part in ("queued again" if again else "", why) if part)
            return Outcome(AppState.PENDING, msg, first.state, submitted)
        if over is not None and over.at >= int(first.started or 0):
            state, msg = AppState.SUCCEEDED if over.code == 0 else AppState.FAILED, ""
            if paths is not None and _cut_short(paths, over):
                state, msg = AppState.CANCELLED, "cancelled"
            return Outcome(state, msg, "", submitted, first.started, over.at, over.code, over.proved)
        held = "suspended" if first.state in ("SUSPENDED", "STOPPED") else ""
        return Outcome(AppState.RUNNING, held, first.state, submitted, first.started)
    started = min((p.started for p in facts if p.started), default=None)
    ended = max((p.ended for p in facts if p.ended), default=None)
    told = [part.state for part in facts]
    word = next((w for w in told if w not in ("COMPLETED", "CANCELLED")), None) or (
        "CANCELLED" if "CANCELLED" in told else "COMPLETED"
    )
    code = over.code if over is not None else first.exit_code
    if over is not None and over.code == 0:
        word = "COMPLETED"
    asked = paths is not None and _cut_short(paths, over)
    if word == "CANCELLED" and over is not None and not asked:
        word = "FAILED"
    if word == "COMPLETED":
        state, msg = AppState.SUCCEEDED, ""
    elif word == "CANCELLED" or (asked and word in ("FAILED", "NODE_FAIL")):
        state, msg = AppState.CANCELLED, "cancelled"
    else:
        state, msg = AppState.FAILED, _FAILURES.get(word, word.lower().replace("_", " "))
        if word == "FAILED" and first.reason in _WAITS:
            msg = f"{first.reason}: {_WAITS[first.reason]}"
        if code == 73 and over is None:
            msg = "its folder cannot be made on its node; job_dir has to be seen by all nodes"
    if ended is not None and started is not None and ended < started:
        started = None  # it never ran: that is when it might have
    proved = over is not None and over.proved
    return Outcome(state, msg, word, submitted, started, ended or (over.at if over else None), code, proved)


def _cut_short(paths: SlurmPaths, over: Over | None) -> bool:
    """Tells whether somebody has asked for the end of a job before it came by itself."""
    try:
        asked_at = paths.cancelled.stat().st_mtime
    except OSError:
        return False
    return over is None or (over.code != 0 and asked_at < over.at + 1)  # its clock has whole seconds


def why_it_waits(parts: Sequence[JobFacts]) -> str:
    """Returns why a job waits: in Slurm's word and in plain ones, and when it may start."""
    first = next((part for part in parts if part.reason), parts[0])
    reason = first.reason
    meaning = next((text for word, text in _WAITS.items() if reason == word), "")
    if not meaning:
        meaning = next((text for word, text in _WAITS.items() if reason.startswith(word)), "")
        if not meaning and ("Limit" in reason or reason.startswith(("QOS", "Assoc"))):
            meaning = "a limit of your account or its quality of service"
    told = f"{reason}: {meaning}" if meaning and reason else reason or "Slurm has yet to look at it"
    if first.state == "CONFIGURING":
        told = "its nodes are being made ready"
    start = max((part.started for part in parts if part.started), default=None)
    if start is not None and start > time.time() - 60:
        from datetime import datetime

        when = datetime.fromtimestamp(start).astimezone().strftime("%Y-%m-%d %H:%M")
        told = f"{told}; expected to start at {when}" if told else f"expected to start at {when}"
    return told


def read_over(paths: SlurmPaths) -> Over | None:
    """Returns what the script has left at its end; None while it has not ended."""
    match = re.fullmatch(_OVER, read_own(paths.over) or b"")
    if match is None or float(match[2]) >= LATEST:
        return None
    return Over(int(match[1]), float(match[2]), int(match[3] or 0))


_OVER = re.compile(rb"\s*[0-9]{1,18} ([0-9]{1,3}) ([0-9]{1,12})(?: ([0-9]{1,6}))?\s*")


BEGINS = "== attempt "
"""Begins the line of the log of script and Slurm with which an attempt of the whole begins."""


def attempts_of(paths: SlurmPaths) -> int:
    """Returns which attempt of the whole this is, from 1; 0 before it has started."""
    match = re.fullmatch(rb"\s*([0-9]{1,9})\s*", read_own(paths.attempt) or b"")
    return int(match[1]) if match else 0


def last_words(paths: SlurmPaths) -> str:
    """Returns the end of what script and Slurm had to say about the last attempt."""
    try:
        with os.fdopen(files.open_file(paths.batch_log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16_384))
            said = file.read().decode("utf-8", "replace")
            return said[max(said.rfind(BEGINS), 0) :]
    except (OSError, ValueError):
        return ""


def complaint(paths: SlurmPaths) -> str:
    """Returns the last line in which something speaks of an error."""
    found = [line for line in last_words(paths).splitlines() if re.search(r"error|cannot|fatal", line)]
    return re.sub(r"^\S+: (error|fatal): ", "", found[-1])[:300] if found else ""


def _started(record: SlurmRecord) -> float | None:
    try:
        return record.paths.attempt.lstat().st_mtime
    except OSError:
        return None


def remember(record: SlurmRecord, outcome: Outcome) -> None:
    """Keeps how a job of the caller ended, since Slurm forgets it soon without accounting.

    Only a command that waits for a job or ends it does so, no query.
    """
    paths = record.paths
    if not is_terminal(outcome.state) or not record.folder or distrusted(paths.folder, record.token):
        return
    if not is_there(paths.outcome):
        data: dict[str, Any] = {**asdict(outcome), "state": outcome.state.name}
        with contextlib.suppress(OSError, ValueError):
            write(paths.outcome, json.dumps(data))


def _recall(paths: SlurmPaths) -> Outcome | None:
    try:
        data = parse_json(read_own(paths.outcome) or b"")
        found = Outcome(**{**data, "state": AppState[data["state"]]})
    except (ValueError, TypeError, KeyError):
        return None
    texts = isinstance(found.msg, str) and isinstance(found.word, str)
    times = all(
        is_time(at) for at in (found.submitted_at, found.started_at, found.ended_at) if at is not None
    )
    code = found.exit_code is None or type(found.exit_code) is int
    return (
        replace(found, msg=clean(found.msg))
        if texts and times and code and is_terminal(found.state)
        else None
    )


def is_time(value: Any) -> bool:
    """Returns True if a value can be a time, in seconds since the epoch."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < LATEST
