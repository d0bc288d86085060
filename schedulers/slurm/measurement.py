"""The measurements of the steps of a Slurm job, from its accounting and, while it runs, from its nodes."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from torchx.schedulers.shared.batch.paths import path_exists
from torchx.schedulers.shared.batch.progress import attempts_of, read_script_end
from torchx.schedulers.shared.batch.record import BatchRecord, Records, parse_key
from torchx.schedulers.shared.measurement import requests_of
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.marked import minimal_record
from torchx.schedulers.slurm.parse import JobFacts
from torchx.schedulers.slurm.queue import ANSWERS, account, find, find_record
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Requested, Sample
from torchx.scheduling.pace import ALL, Answers, is_sharing
from torchx.specs import serialize

_STEP = r"(?P<job>\d+(?:_\d+)?)(?:\+(?P<part>\d{1,4}))?\.(?P<step>\d{1,9})"
_AFTER_ID = re.compile(r"[.+|]")
_TIME = r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)"
_SIZE = r"(\d+(?:\.\d+)?)([KMGTP]?)"
_COLUMNS = (
    "JobID", "State", "ElapsedRaw", "TotalCPU", "MaxRSS", "MaxRSSTask", "NTasks", "JobIDRaw", "JobName"
)  # fmt: skip

_NO_NAME = ("", "allocation")
"""Names in the accounting of a job that it knows only by its steps yet, as it does in the first seconds."""
_RUNNING = ("RUNNING", "PENDING")
"""States of a running job in the accounting, the second one in the first seconds."""


class Step(NamedTuple):
    """One step of a job: all replicas of one role in one attempt.

    Attributes:
        part: the number of the role.
        step: the number of the step.
        running: whether it is running.
        seconds: its duration.
        cpu: CPU seconds of all replicas; None if unknown.
        memory: peak memory of the largest replica in bytes; None if unknown.
        largest: the id of that replica.
        replicas: their number.
    """

    part: int
    step: int
    running: bool
    seconds: float
    cpu: float | None
    memory: int | None
    largest: int
    replicas: int


def usage(app_id: str) -> AppUsage | None:
    """Returns the measurements of a job: for each role and attempt the largest replica, and the mean CPU.

    The accounting knows whether the job is running: its state, which may be on the screen already, is not
    queried again.

    Returns:
        None before the first measurement, and without accounting also after the end.
    """
    record = find_record(app_id) or _record_of_queue(app_id)
    if record is None:
        return None
    if not attempts_of(record.paths) and path_exists(record.paths.folder):
        return None  # it has not started: sacct takes most of the time of a status
    if is_sharing():
        output = _ACCOUNTS.about(record.key) or ""
    else:
        output = steps_of([record])
    name, own_id = _job_in(output, record)
    if name not in (*_NO_NAME, record.job_name) and _record_of_queue(app_id) is None:
        return None  # it is about a newer job with this id, unless only its name was changed
    steps = list(read_steps(output))
    if not steps:
        return _usage_of_nodes(record)  # the accounting is seconds late
    if own_id and any(step.running for step in steps):
        steps = _with_nodes(own_id, steps)
    return usage_of(record, steps)


def _usage_of_nodes(record: BatchRecord) -> AppUsage | None:
    """Returns the measurements of a running job without its accounting."""
    try:
        began = record.paths.attempt.stat().st_mtime
    except OSError:
        return None
    if read_script_end(record.paths) is not None:
        return None
    return usage_of(record, _with_nodes(record.key, [], time.time() - began))


def _record_of_queue(app_id: str) -> BatchRecord | None:
    """Returns the record of a job as found by its mark in the queue; None if another job has its id."""
    job = find(app_id)
    if job is None or job.lost:
        return None
    return job.record


def _job_in(output: str, record: BatchRecord) -> tuple[str, str]:
    """Returns the name of a job in the output of sacct, and the id for sstat if it is running."""
    for line in output.splitlines():
        cells = line.split("|", len(_COLUMNS) - 1)
        if len(cells) == len(_COLUMNS) and parse_key(cells[0].partition("+")[0]) == record.key:
            number, name = cells[-2:]
            return name, number.partition("+")[0] if cells[1] in _RUNNING else ""
    return "", ""


def usage_of(record: BatchRecord, steps: Iterable[Step]) -> AppUsage | None:
    """Returns the measurements of a job from those of its steps; None if there are none."""
    app = serialize.app_from_dict(record.app)
    requests = requests_of(app.roles)
    measured, attempts = [], dict.fromkeys(range(len(app.roles)), 0)
    for step in sorted(steps):
        if step.part >= len(app.roles):
            continue
        role = app.roles[step.part]
        attempts[step.part] += 1
        if step.cpu is None:
            cpu = None
        else:
            cpu = step.cpu / max(step.seconds, 1.0) / max(step.replicas, 1)
        if step.memory is None and cpu is None:
            continue
        sample = Sample(time.time(), step.seconds, cpu, step.memory)
        requested = requests.get(role.name, Requested())
        # the duration of a step has whole seconds, so its means say little about the first ones
        samples = (sample,) if step.running else ()
        measured.append(
            ReplicaUsage(
                role.name, step.largest, attempts[step.part], sample, samples, step.running, requested
            )
        )
    if measured:
        return AppUsage(tuple(measured), "the accounting of Slurm")
    return None


def steps_of(records: Sequence[BatchRecord]) -> str:
    """Returns the output of sacct on the steps of jobs; empty without accounting or a response."""
    return account(records, f"--format={','.join(_COLUMNS)}")


def lines_by_job(output: str) -> dict[str, str]:
    """Returns the lines of sacct and sstat by the ids of their jobs.

    >>> lines_by_job("7_1.0|COMPLETED\\n7_1|COMPLETED\\n8+1.0|FAILED")
    {'7_1': '7_1.0|COMPLETED\\n7_1|COMPLETED', '8': '8+1.0|FAILED'}
    """
    lines: dict[str, list[str]] = {}
    for line in output.splitlines():
        lines.setdefault(_AFTER_ID.split(line, 1)[0], []).append(line)
    return {job: "\n".join(found) for job, found in lines.items()}


def _running() -> list[JobFacts]:
    """Returns the running jobs of this user, if parts of this process share answers; else none."""
    jobs = {}
    if is_sharing():
        jobs = ANSWERS.about(ALL) or {}
    return [part for parts in jobs.values() for part in parts if part.state == "RUNNING" and not part.part]


def _read_accounts(keys: Collection[str]) -> dict[str, str]:
    records = {part.key: minimal_record(part, "", [], False) for part in _running()}
    records.update(Records("slurm").of(keys))
    if records:
        return lines_by_job(steps_of([*records.values()]))
    return {}


def _read_nodes(ids: Collection[str]) -> dict[str, str]:
    columns = ",".join(("JobID", "AveCPU", "MaxRSS", "MaxRSSTask", "NTasks"))
    argv = ["sstat", "--noheader", "--parsable2", "--allsteps", f"--format={columns}"]
    every = sorted({*ids, *(str(part.own_id) for part in _running())})
    return lines_by_job(client.answer([*argv, f"--jobs={','.join(every)}"]))


_ACCOUNTS, _NODES = Answers(_read_accounts), Answers(_read_nodes)


def _with_nodes(own_id: str, steps: list[Step], seconds: float | None = None) -> list[Step]:
    """Adds the current measurements of running steps, which the accounting does not have yet.

    Args:
        own_id: the id by which sstat knows the job.
        steps: its steps.
        seconds: the duration of steps that are not among them; None to leave them out.
    """
    known = {(step.part, step.step): step for step in steps}
    for line in (_NODES.about(own_id) or "").splitlines():
        name, cpu, memory, largest, replicas = (*line.split("|"), *[""] * 5)[:5]
        match = re.fullmatch(_STEP, name)
        if match:
            key = (int(match["part"] or 0), int(match["step"]))
        else:
            key = (0, -1)
        step = known.get(key)
        if match and seconds is not None:
            step = Step(*key, True, seconds, None, None, 0, 1)
        if step is not None and step.running:
            each, count = seconds_of(cpu), int(replicas) if replicas.isdigit() else 1
            known[step.part, step.step] = step._replace(
                cpu=None if each is None else each * count,
                memory=bytes_of(memory),
                largest=int(largest) if largest.isdigit() else 0,
                replicas=count,
            )
    return list(known.values())


def read_steps(output: str) -> Iterator[Step]:
    """Yields the steps in the output of sacct, without that of the script.

    >>> list(read_steps("7+1.0|COMPLETED|20|00:40.500|646696K|1|2"))
    [Step(part=1, step=0, running=False, seconds=20.0, cpu=40.5, memory=662216704, largest=1, replicas=2)]
    """
    for line in output.splitlines():
        name, state, seconds, cpu, memory, largest, replicas = (*line.split("|"), *[""] * 7)[:7]
        match = re.fullmatch(_STEP, name)
        if match is not None and seconds.isdigit():
            running = state.startswith("RUNNING")
            yield Step(
                int(match["part"] or 0),
                int(match["step"]),
                running,
                float(seconds),
                None if running else seconds_of(cpu),
                bytes_of(memory),
                int(largest) if largest.isdigit() else 0,
                int(replicas) if replicas.isdigit() else 1,
            )


def seconds_of(text: str) -> float | None:
    """Returns the seconds of a duration, None if it is not valid.

    >>> seconds_of("00:20.049"), seconds_of("1-02:03:04"), seconds_of("")
    (20.049, 93784.0, None)
    """
    match = re.fullmatch(_TIME, text)
    if match is None:
        return None
    days, hours, minutes, seconds = (float(value or 0) for value in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def bytes_of(text: str) -> int | None:
    """Returns the bytes of a size, None if it is not valid or unknown.

    >>> bytes_of("1.50M"), bytes_of("16K"), bytes_of(""), bytes_of("0")
    (1572864, 16384, None, None)
    """
    match = re.fullmatch(_SIZE, text)
    if match is None:
        return None
    return int(float(match[1]) * 1024 ** " KMGTP".index(match[2] or " ")) or None
