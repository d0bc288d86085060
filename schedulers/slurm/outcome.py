"""Determine the state of a job from the queue, the accounting and its own files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence

from torchx.masking.names import name_set
from torchx.printable import joined
from torchx.schedulers.shared.batch.batch_log import log_tail
from torchx.schedulers.shared.batch.ends import (
    FAILURES,
    FULL_DISK,
    NEVER_SATISFIED,
    NO_FOLDER,
    SCRIPT_KILLED,
    why_no_folder,
)
from torchx.schedulers.shared.batch.outcome import (
    Outcome,
    read_outcome,
    started_at,
    state_of_script,
    was_cancelled,
)
from torchx.schedulers.shared.batch.paths import ATTEMPT_FILE, BatchPaths, path_exists
from torchx.schedulers.shared.batch.progress import ScriptEnd, attempts_of, read_script_end
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.slurm.parse import ENDED, JobFacts, hosts_of
from torchx.schedulers.slurm.reasons import (
    is_launch_failure,
    why_it_failed,
    why_it_waits,
    why_it_was_cancelled,
    why_script_was_killed,
)
from torchx.specs.status import AppState, is_terminal

GAP = 60.0
"""Seconds after submission in which Slurm may not list the job yet."""

TASK_GAP = 5.0
"""Seconds after submission in which Slurm may not list a task of an array yet."""

_QUEUED = name_set(
    "PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD CONFIGURING SPECIAL_EXIT RESV_DEL_HOLD EXPEDITING "
    "POWER_UP_NODE"
)
"""Slurm states of jobs that have not started, or wait to start again."""

_RUNNING = name_set("RUNNING SUSPENDED STOPPED COMPLETING RESIZING SIGNALING STAGE_OUT UPDATE_DB")
"""Slurm states of jobs that have nodes."""


def outcome_of(
    record: BatchRecord | None, queue: Sequence[JobFacts], account: Sequence[JobFacts] = ()
) -> Outcome | None:
    """Returns the state of a job, or None if unknown without the accounting.

    Args:
        record: the record of the job.
        queue: its facts from squeue.
        account: its facts from sacct.
    """
    if queue and all(part.state in _QUEUED for part in queue):
        return with_damage(_waiting_outcome(queue, record), record)
    paths = over = None
    if record is not None:
        paths = record.paths
        over = read_script_end(paths)
        saved = None if queue else read_outcome(paths)
        if saved is not None:
            return saved
    if facts := queue or account:
        outcome = _outcome_of_facts(facts, over, record, paths)
        if over is None:
            outcome = _check_script(outcome, facts[0], paths)
        outcome = _check_out_of_memory(outcome, paths)
        if over is None and record is not None:
            outcome = _check_folder(outcome, record, facts[0])
        return with_damage(outcome, record)
    if over is not None and record is not None:
        state, msg = state_of_script(over, record.paths)
        outcome = Outcome(
            state,
            msg,
            submitted_at=record.submitted_at,
            started_at=started_at(record.paths),
            ended_at=over.at,
            exit_code=over.code,
            proved=over.proved,
        )
        return _check_out_of_memory(outcome, record.paths)
    return None


def with_damage(outcome: Outcome, record: BatchRecord | None) -> Outcome:
    """Adds the reason for which the record of a job cannot be used."""
    if record is None or not record.damage:
        return outcome
    return outcome._replace(msg=joined(outcome.msg, record.damage))


def _check_out_of_memory(outcome: Outcome, paths: BatchPaths | None) -> Outcome:
    """Corrects an outcome if a step ran out of memory, for which Slurm may just report a failed job."""
    words = ("", "FAILED", SCRIPT_KILLED)
    if paths is None or outcome.state is not AppState.FAILED or outcome.word not in words:
        return outcome
    # many lines of other replicas may follow
    if not re.search("|".join(_MEMORY), log_tail(paths, 1 << 20), re.IGNORECASE):
        return outcome
    return outcome._replace(msg=FAILURES["OUT_OF_MEMORY"], word="OUT_OF_MEMORY")


def _check_script(outcome: Outcome, part: JobFacts, paths: BatchPaths | None) -> Outcome:
    """Adds the message about a script that was killed before it could report its end, or was not started."""
    if outcome.state is not AppState.FAILED or outcome.word != "FAILED" or outcome.msg:
        return outcome
    begun = None
    if paths is not None:
        begun = started_at(paths)
    # in this run; the clocks of a node and of the controller may differ
    has_begun = begun is not None and begun >= (part.started or 0.0) - 2.0
    killed = why_script_was_killed(part, has_begun)
    if killed:
        return outcome._replace(msg=killed, word=SCRIPT_KILLED)
    if begun is None and is_launch_failure(part) and paths is not None and path_exists(paths.folder):
        return outcome._replace(msg=FAILURES["LAUNCH_FAILED"], word="LAUNCH_FAILED")
    return outcome


def _check_folder(outcome: Outcome, record: BatchRecord, part: JobFacts) -> Outcome:
    """Adds the message about a script that has found no folder of its job, and so has written no files."""
    if outcome.state is not AppState.FAILED or outcome.msg or not record.folders:
        return outcome
    if outcome.exit_code == FULL_DISK and not attempts_of(record.paths):
        folder, node = record.paths.folder, next(hosts_of(part.nodes), "its node")
        return outcome._replace(msg=f"{node} cannot write to {folder}: its disk is full")
    if outcome.exit_code is None:  # without accounting
        paths = record.paths
        exited = part.reason == "NonZeroExitCode" and path_exists(paths.folder) and not attempts_of(paths)
    else:
        exited = outcome.exit_code == NO_FOLDER
    if exited:
        return outcome._replace(msg=why_no_folder(record.folders, next(hosts_of(part.nodes), "its node")))
    return outcome


def outcome_without_slurm(record: BatchRecord) -> Outcome:
    """Returns the state of a job that Slurm does not list, from its files."""
    state, msg, word = _state_without_slurm(record)
    return Outcome(state, msg, word, record.submitted_at, started_at(record.paths))


def outcome_unlisted(record: BatchRecord) -> Outcome:
    """Returns the state of a job that Slurm has answered not to know, from its files.

    Slurm keeps no trace of a task of an array that is cancelled before its start.
    """
    outcome = outcome_without_slurm(record)
    if record.task is None or is_terminal(outcome.state) or time.time() - record.submitted_at < TASK_GAP:
        return outcome
    if path_exists(record.paths.folder) and not attempts_of(record.paths):
        return outcome._replace(state=AppState.CANCELLED, msg="cancelled before its start", word="")
    return outcome


def _state_without_slurm(record: BatchRecord) -> tuple[AppState, str, str]:
    if record.damage:
        return AppState.UNKNOWN, record.damage, ""
    if path_exists(record.paths.cancelled):
        return AppState.CANCELLED, "cancelled", ""
    log = log_tail(record.paths)
    for pattern, word in {**_LOG_PATTERNS, **dict.fromkeys(_MEMORY, "OUT_OF_MEMORY")}.items():
        if re.search(pattern, log, re.IGNORECASE):
            return AppState.FAILED, FAILURES[word], word
    if ("CANCELLED AT" in log and "DUE TO JOB REQUEUE" not in log) or "has expired" in log:
        return AppState.CANCELLED, "cancelled", ""
    if time.time() - record.submitted_at < GAP:
        return AppState.SUBMITTED, "not yet listed by Slurm", ""
    return AppState.UNKNOWN, "Slurm no longer lists it, and its files show no end", ""


_LOG_PATTERNS = {
    "DUE TO TIME LIMIT": "TIMEOUT",
    "DUE TO NODE FAILURE": "NODE_FAIL",
    "DUE TO PREEMPTION": "PREEMPTED",
    r"FAILED \(NON-ZERO EXIT CODE OR": SCRIPT_KILLED,  # the steps were ended, as the script has failed
}
_MEMORY = ("oom[-_]kill", "exceeded (job )?memory limit")


def _waiting_outcome(parts: Sequence[JobFacts], record: BatchRecord | None) -> Outcome:
    """Returns the state of a job that waits for its start, or for its next run.

    Most jobs of a long listing wait: no file is read, and the path of only one is made.

    Args:
        parts: the parts that have not ended.
        record: the record of the job.
    """
    again = record is not None and _was_queued_again(record, parts[0])
    msg = joined("queued again" if again else "", why_it_waits(parts))
    word = parts[0].state
    if any(part.reason == NEVER_SATISFIED for part in parts):
        word = NEVER_SATISFIED
    return Outcome(AppState.PENDING, msg, word, parts[0].submitted)


def _was_queued_again(record: BatchRecord, part: JobFacts) -> bool:
    """Returns True if a run of a job began before it was queued; a later one began after Slurm's answer."""
    queued_at = part.submitted or 0.0  # in whole seconds
    if part.reason == "BeginTime":  # as after a requeue, perhaps in the second of the start
        queued_at += 1.0
    try:
        return os.lstat(f"{record.current_folder}/{ATTEMPT_FILE}").st_mtime < queued_at
    except OSError:
        return False


def _outcome_of_facts(
    facts: Sequence[JobFacts], over: ScriptEnd | None, record: BatchRecord | None, paths: BatchPaths | None
) -> Outcome:
    """Returns the state of a job from Slurm's facts and the end of its script."""
    first = facts[0]
    live = [part for part in facts if part.state not in ENDED]
    if not live and first.part == 0:  # the script runs in the first part
        return _ended_outcome(facts, over, paths)
    if live and all(part.state in _QUEUED for part in live):
        return _waiting_outcome(live, record)
    if over is not None and first.started is not None and over.at >= int(first.started):  # Slurm cleans up
        state, msg = state_of_script(over, paths)
        return Outcome(state, msg, "", first.submitted, first.started, over.at, over.code, over.proved)
    if not any(part.state in _RUNNING for part in live):
        return Outcome(AppState.UNKNOWN, _why_unknown(live), "", first.submitted, first.started)
    held = ""
    if first.state in ("SUSPENDED", "STOPPED"):
        held = "suspended"
    return Outcome(AppState.RUNNING, held, first.state, first.submitted, first.started)


def _why_unknown(live: Sequence[JobFacts]) -> str:
    """Returns the message of a job of which Slurm reports neither an end nor a known other state."""
    states = ", ".join(sorted({part.state or "no valid state" for part in live}))
    return f"Slurm reports {states or 'only a part of the job'}: neither an end nor a known state"


def _ended_outcome(facts: Sequence[JobFacts], over: ScriptEnd | None, paths: BatchPaths | None) -> Outcome:
    """Returns the state of a job that Slurm reports as ended."""
    first = facts[0]
    started = min((part.started for part in facts if part.started), default=None)
    ended = max((part.ended for part in facts if part.ended), default=None)
    if ended is not None and started is not None:
        never = paths is not None and not attempts_of(paths)
        if ended < started or (ended == started and never):
            started = None  # it never ran: this is the estimated start, or the end
    code, proved = first.exit_code, False
    if over is not None:
        code, proved, ended = over.code, over.proved, ended or over.at
    cancelled = paths is not None and was_cancelled(paths, over)
    word = _word_of_end([part.state for part in facts], over, cancelled)
    if word == "COMPLETED":
        state, msg = AppState.SUCCEEDED, ""
    elif word == "CANCELLED" or (cancelled and word in ("FAILED", "NODE_FAIL")):
        state, msg = AppState.CANCELLED, why_it_was_cancelled(first)
        if first.reason == NEVER_SATISFIED:
            word = NEVER_SATISFIED
    else:
        state, msg = AppState.FAILED, why_it_failed(word, first)
    return Outcome(state, msg, word, first.submitted, started, ended, code, proved)


def _word_of_end(states: Sequence[str], over: ScriptEnd | None, cancelled: bool) -> str:
    """Returns Slurm's state of a job that has ended: that of the part that failed first, if one failed.

    The end of the script counts if Slurm reports another one.
    """
    if over is not None and over.code == 0:
        return "COMPLETED"
    failures = [state for state in states if state not in ("COMPLETED", "CANCELLED")]
    if failures:
        return failures[0]
    if "CANCELLED" not in states:
        return "COMPLETED"
    # torchx did not cancel it, and the script has failed by itself
    if over is not None and not cancelled:
        return "FAILED"
    return "CANCELLED"
