"""What squeue and sacct print, of every release from 20.11 on, as plain facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

QUEUE_FORMAT = "%i|%A|%T|%V|%S|%e|%u|%N|%r|%j|%k"
"""For squeue: nothing before the name can hold a bar; ours have none either."""
ACCOUNT_FORMAT = "JobID,JobIDRaw,State,Submit,Start,End,User,NodeList,ExitCode,JobName,Comment"
"""For sacct, which puts a bar between the fields, too."""


@dataclass(frozen=True)
class JobFacts:
    """What Slurm tells of one job, or of one part of a heterogeneous one.

    Attributes:
        job_id: the id of the job; of a part, that of the whole.
        part: which part, from 0.
        state: the word for its state, in capitals.
        reason: why it waits, or ended.
        name: its name.
        comment: its comment.
        user: whose it is.
        nodes: the nodes it has, as Slurm writes them.
        submitted: when it was submitted, or put back into the queue; seconds since the epoch.
        started: when it started; of a waiting one, when it may start.
        ended: when it ended; of a running one, when it may have to.
        exit_code: of the script.
        signal: that ended the script.
    """

    job_id: int
    part: int
    state: str
    reason: str = ""
    name: str = ""
    comment: str = ""
    user: str = ""
    nodes: str = ""
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None


def words(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


def read_json(text: str) -> list[JobFacts]:
    """Reads what ``squeue --json`` and ``sacct --json`` print.

    A field may be a number in one release, an object in the next, and absent in a state: what is not there
    is not known.

    Raises:
        ValueError: it is not what one of them prints.
    """
    data = json.loads(text)
    jobs = data.get("jobs") if isinstance(data, dict) else None
    if not isinstance(jobs, list):
        raise ValueError("no list of jobs")
    if data.get("errors") and not jobs:
        raise ValueError("squeue tells of an error, and ends as if all were well")
    return [_job(job) for job in jobs if isinstance(job, dict) and _number(job.get("job_id")) is not None]


def _job(job: Mapping[str, Any]) -> JobFacts:
    whole, part = _number(job.get("het_job_id")), _number(job.get("het_job_offset"))
    het = job.get("het")
    if isinstance(het, dict):  # sacct
        whole, part = _number(het.get("job_id")), _number(het.get("job_offset"))
    job_id = _number(job.get("job_id")) or 0
    times = job.get("time")
    times = times if isinstance(times, dict) else {}
    code, signal = _exit(job.get("exit_code"))
    state = job.get("job_state", job.get("state"))
    reason = job.get("state_reason")
    if isinstance(state, dict):
        reason = state.get("reason")
        state = state.get("current")
    return JobFacts(
        job_id=whole or job_id,
        part=(part or 0) if whole else 0,
        state=_state(state),
        reason=_reason(reason),
        name=_text(job.get("name")),
        comment=_comment(job.get("comment")),
        user=_text(job.get("user_name", job.get("user"))),
        nodes=_text(job.get("nodes")),
        submitted=_time(job.get("submit_time", times.get("submission"))),
        started=_time(job.get("start_time", times.get("start"))),
        ended=_time(job.get("end_time", times.get("end"))),
        exit_code=code,
        signal=signal,
    )


def _number(value: Any) -> int | None:
    """Reads a number that newer releases wrap: ``{"set": true, "infinite": false, "number": 4}``."""
    if isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _time(value: Any) -> float | None:
    found = _number(value)
    return float(found) if found is not None and 0 < found < 1 << 33 else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value not in ("(null)", "None assigned") else ""


def _comment(value: Any) -> str:
    return _text(value.get("job")) if isinstance(value, dict) else _text(value)


def _state(value: Any) -> str:
    """Reads a state: a word, or the words of a state and what is about it, as ``["PENDING", "REQUEUED"]``."""
    found = [str(word) for word in value] if isinstance(value, list) else str(value or "").split()
    found = [word.strip().upper() for word in found if word.strip()]
    if not found:
        return ""
    return next((word for word in found if word in STATES), found[0]).rstrip("+")


STATES = words(
    "PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE "
    "OUT_OF_MEMORY"
)
"""What a job can be in itself; COMPLETING, CONFIGURING, REQUEUED and the like come beside one of these."""


def _reason(value: Any) -> str:
    text = _text(value).strip("()")
    return "" if text == "None" else text


def _exit(value: Any) -> tuple[int | None, int | None]:
    """Reads how a script ended: the status of wait(2), or an object with code and signal."""
    if isinstance(value, dict):
        signal = value.get("signal")
        number = None
        if isinstance(signal, dict):
            number = _number(signal.get("id", signal.get("signal_id")))
        return _number(value.get("return_code")), number or None
    status = _number(value)
    return (None, None) if status is None else (status >> 8, status & 0x7F or None)


def _lines(text: str) -> Iterator[tuple[tuple[int, int], list[str]]]:
    """Yields of each line that tells of a job its ids, and what follows the two cells of these."""
    for line in text.splitlines():
        cells = line.split("|", 10)
        numbers = _ids(cells[0]) if len(cells) == 11 else None
        if numbers is not None:
            yield numbers, cells[2:]


def read_queue(text: str) -> list[JobFacts]:
    """Reads what squeue prints in :data:`QUEUE_FORMAT`."""
    found = []
    for numbers, cells in _lines(text):
        state, submitted, started, ended, user, nodes, reason, name, comment = cells
        found.append(
            JobFacts(
                *numbers, _state(state), _reason(reason), name, _text(comment), user, nodes,
                _time(submitted), _time(started), _time(ended),
            )
        )  # fmt: skip
    return found


def read_account(text: str) -> list[JobFacts]:
    """Reads what ``sacct --parsable2`` prints in :data:`ACCOUNT_FORMAT`."""
    found = []
    for numbers, cells in _lines(text):
        state, submitted, started, ended, user, nodes, code, name, comment = cells
        exit_code, _, signal = code.partition(":")
        found.append(
            JobFacts(
                *numbers, _state(state), "", name, _text(comment), user, nodes.replace("None assigned", ""),
                _time(submitted), _time(started), _time(ended), _number(exit_code), _number(signal) or None,
            )
        )  # fmt: skip
    return found


def _ids(text: str) -> tuple[int, int] | None:
    """Reads ``7``, ``7+1`` (a part of a heterogeneous job), ``7_3`` (of an array)."""
    match = re.fullmatch(r"(\d+)(?:\+(\d+)|_.*)?", text.strip())
    return (int(match[1]), int(match[2] or 0)) if match else None


def by_job(facts: Iterable[JobFacts]) -> dict[int, list[JobFacts]]:
    """Returns the parts of each job, in their order; of a part that is told of twice, what came last."""
    jobs: dict[int, dict[int, JobFacts]] = {}
    for each in facts:
        jobs.setdefault(each.job_id, {})[each.part] = each
    return {job: [parts[part] for part in sorted(parts)] for job, parts in jobs.items()}


def hosts_of(nodes: str) -> Iterator[str]:
    """Yields the nodes of a list as Slurm writes it.

    >>> list(hosts_of("gpu[08-10,12],login1"))
    ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login1']
    """
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        head, bracket, rest = part.partition("[")
        if not bracket:
            yield head
            continue
        inner, _, tail = rest.partition("]")
        for span in inner.split(","):
            first, dash, last = span.partition("-")
            if not dash or not (first.isdigit() and last.isdigit()):
                yield from hosts_of(f"{head}{span}{tail}")
                continue
            for number in range(int(first), int(last) + 1):
                yield from hosts_of(f"{head}{number:0{len(first)}d}{tail}")
