"""Explains why a job waits or has failed, from Slurm's states and reasons."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torchx.exit_codes import signal_of
from torchx.lazy import lazy_imports
from torchx.schedulers.shared.batch.ends import FAILURES, NEVER_SATISFIED, SCRIPT_KILLED
from torchx.schedulers.slurm.parse import JobFacts, hosts_of

with lazy_imports:
    import datetime


NO_LAUNCH = 53
"""Slurm's number instead of a signal for a script that it could not start."""

_WAITS = {
    "Resources": "waits for free nodes",
    "Priority": "other jobs have higher priority",
    "Dependency": "waits for other jobs",
    NEVER_SATISFIED: "its dependencies can never be satisfied",
    "BeginTime": "its begin time has not come",
    "JobHeldUser": "held by its user: scontrol release",
    "JobHeldAdmin": "held by an administrator",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it requests more nodes than its partition allows",
    "PartitionConfig": "its partition cannot satisfy its request",
    "PartitionTimeLimit": "it requests more time than its partition allows",
    "ReqNodeNotAvail": "required nodes are down, reserved or in use",
    "BadConstraints": "no nodes match its constraints",
    "Constraints": "no free nodes match its constraints",
    "NodeDown": "a required node is down",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation was deleted: scontrol update JobId=… ReservationName=…",
    "ReservationInvalid": "its reservation is invalid",
    "MpiPortsBusy": "waits for free ports for MPI",
    "MaxPoweredUpNodes": "waits until nodes power down",
    "job requeued in held state": "held: scontrol release",
    "Licenses": "waits for licences",
    "launch failed requeued held": "it could not be started on its nodes, and is held: scontrol release",
}
"""Explanations of Slurm's pending reasons."""


FORESEEABLE = 180 * 86400
"""Maximum seconds to an expected start that is shown: without time limits, Slurm expects it in a year."""


def why_it_waits(parts: Sequence[JobFacts]) -> str:
    """Returns why a job is pending: Slurm's reason, an explanation, and the expected start."""
    first = next((part for part in parts if part.reason), parts[0])
    meaning = _meaning_of(first.reason)
    if first.state == "CONFIGURING":
        msg = "its nodes are being prepared"
    elif meaning:
        msg = f"{first.reason}: {meaning}"
    else:
        msg = first.reason or "Slurm has not considered it yet"
    start = max((part.started for part in parts if part.started), default=None)
    if start is not None and -60 < start - time.time() < FORESEEABLE:
        when = datetime.datetime.fromtimestamp(start).astimezone().strftime("%Y-%m-%d %H:%M")
        msg = f"{msg}; expected to start at {when}"
    return msg


def _meaning_of(reason: str) -> str:
    """Returns the explanation of a pending reason, which may begin with a known one; empty without one."""
    known = _WAITS.get(reason) or next((text for key, text in _WAITS.items() if reason.startswith(key)), "")
    if not known and ("Limit" in reason or reason.startswith(("QOS", "Assoc"))):
        return "a limit of your account or its quality of service"
    return known


def why_it_was_cancelled(part: JobFacts) -> str:
    """Returns the message of a cancelled job, from the facts on its first part."""
    if part.reason == NEVER_SATISFIED:
        return f"{part.reason}: {_WAITS[part.reason]}"
    return "cancelled"


def is_launch_failure(part: JobFacts) -> bool:
    """Returns True if Slurm could not start the script of a job; 22.05 also reports that of a killed one."""
    return part.reason == "JobLaunchFailure" or part.signal == NO_LAUNCH


def why_script_was_killed(part: JobFacts, has_begun: bool) -> str:
    """Returns the message of a failed job whose script has not reported its end; empty if it was not killed.

    Slurm 22.05 calls it a launch failure, with the signal in the accounting only.

    Args:
        part: its first part, on the first node of which the script runs.
        has_begun: the script has begun.
    """
    signal = signal_of(128 + (part.signal or 0))
    if not (signal or (has_begun and is_launch_failure(part))):
        return ""
    message = FAILURES[SCRIPT_KILLED]
    if signal:
        message += f" by {signal}"
    if node := next(hosts_of(part.nodes), ""):
        message += f" on {node}"
    return message


def why_it_failed(state: str, part: JobFacts) -> str:
    """Returns the message of a failed job.

    Args:
        state: Slurm's state of the job.
        part: its first part.
    """
    if state == "FAILED" and part.reason in _WAITS:
        return f"{part.reason}: {_WAITS[part.reason]}"
    return FAILURES[state]
