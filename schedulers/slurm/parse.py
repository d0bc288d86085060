"""What squeue and sacct print, of every release from 20.11 on, as plain facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchx.schedulers.slurm.paths import clean, parse_json

_QUEUE_FIELDS = ("%i", "%A", "%T", "%V", "%S", "%e", "%u", "%N", "%r", "%j", "%k")
ACCOUNT_FORMAT = "JobID,JobIDRaw,State,Submit,Start,End,User,NodeList,ExitCode,JobName,Comment"
"""The fields that sacct is called for."""
FIELDS = len(_QUEUE_FIELDS)
LONGEST_TEXT = 1 << 16
"""Characters of a name, a comment or a list of nodes that are read."""
MOST_HOSTS = 100_000


def separator() -> str:
    """Returns what separates the fields of a plain answer: nobody can have it in the name of a job.

    Names and comments of jobs hold what their owners want, also line breaks and bars.
    """
    import os

    return f"|{os.urandom(8).hex()}|"


def queue_format(between: str) -> str:
    """Returns the format for squeue with a separator between the fields."""
    return between.join(_QUEUE_FIELDS)


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
    data = parse_json(text)
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
        user=_user(job),
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
        found = int(value)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) < 1 << 63 else None


def _user(job: Mapping[str, Any]) -> str:
    """Returns the owner of a job; the number of a user without a name, as some releases have no name."""
    name = _text(job.get("user_name", job.get("user")))
    if name:
        return name
    number = _number(job.get("user_id"))
    if number is None:
        return ""
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OverflowError):
        return str(number)


def _time(value: Any) -> float | None:
    found = _number(value)
    return float(found) if found is not None and 0 < found < 1 << 33 else None


def _text(value: Any) -> str:
    if not isinstance(value, str) or value in ("(null)", "None assigned"):
        return ""
    return clean(value[:LONGEST_TEXT])


def _comment(value: Any) -> str:
    return _text(value.get("job")) if isinstance(value, dict) else _text(value)


def _state(value: Any) -> str:
    """Reads a state: a word, or the words of a state and what is about it, as ``["PENDING", "REQUEUED"]``.

    Returns:
        One word; empty for what is none.
    """
    if isinstance(value, str):
        value = value.split()
    found = (
        [word.strip().upper() for word in value if isinstance(word, str)] if isinstance(value, list) else []
    )
    found = [word.rstrip("+") for word in found if _STATE.fullmatch(word)]
    return next((word for word in found if word in STATES), found[0] if found else "")


_STATE = re.compile(r"[A-Z_]{1,40}\+?")
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


def _records(text: str, between: str) -> Iterator[tuple[tuple[int, int], list[str]]]:
    """Yields of each job in an answer its ids, and the fields behind these.

    Names and comments may have line breaks: a record goes on until it has all its separators, and then up to
    the next line that has one.
    """
    records: list[list[str]] = []
    left = 0
    for line in text.removesuffix("\n").split("\n"):
        found = line.count(between)
        if left > 0 or (records and not found and between != "|"):
            records[-1].append(line)
            left -= found
        elif found:
            records.append([line])
            left = FIELDS - 1 - found if between != "|" else 0
    for record in records:
        cells = [clean(cell[:LONGEST_TEXT]) for cell in "\n".join(record).split(between, FIELDS - 1)]
        numbers = _ids(cells[0]) if len(cells) == FIELDS else None
        if numbers is not None:
            yield numbers, cells[2:]


def read_queue(text: str, between: str = "|") -> list[JobFacts]:
    """Reads what squeue prints in :func:`queue_format`.

    Args:
        text: the answer.
        between: the separator of the fields; with a plain bar, each line is a record.
    """
    found = []
    for numbers, cells in _records(text, between):
        state, submitted, started, ended, user, nodes, reason, name, comment = cells
        found.append(
            JobFacts(
                *numbers, _state(state), _reason(reason), name, _text(comment), user, nodes,
                _time(submitted), _time(started), _time(ended),
            )
        )  # fmt: skip
    return found


def read_account(text: str, between: str = "|") -> list[JobFacts]:
    """Reads what ``sacct --parsable2`` prints in :data:`ACCOUNT_FORMAT`.

    Args:
        text: the answer.
        between: the separator of the fields.
    """
    found = []
    for numbers, cells in _records(text, between):
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
    match = re.fullmatch(r"([0-9]{1,18})(?:\+([0-9]{1,9})|_.*)?", text.strip())
    return (int(match[1]), int(match[2] or 0)) if match else None


def by_job(facts: Iterable[JobFacts]) -> dict[int, list[JobFacts]]:
    """Returns the parts of each job, in their order; of a part that is told of twice, what came last."""
    jobs: dict[int, dict[int, JobFacts]] = {}
    for each in facts:
        jobs.setdefault(each.job_id, {})[each.part] = each
    return {job: [parts[part] for part in sorted(parts)] for job, parts in jobs.items()}


def hosts_of(nodes: str) -> Iterator[str]:
    """Yields the nodes of a list as Slurm writes it, a limited number of them.

    >>> list(hosts_of("gpu[08-10,12],login1"))
    ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login1']
    """
    from itertools import islice

    parts = re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes[:LONGEST_TEXT])
    yield from islice((host for part in parts for host in _expanded(part)), MOST_HOSTS)


def _expanded(part: str) -> Iterator[str]:
    """Yields the nodes of one element of a list, which may have several ranges."""
    from itertools import product

    texts = re.split(r"\[([^\]]*)\]", part)
    if len(texts) > 2 * MOST_RANGES:
        return iter([part])
    choices = [_span(text) if at % 2 else [text] for at, text in enumerate(texts)]
    return ("".join(chosen) for chosen in product(*choices))


MOST_RANGES = 4


def _span(text: str) -> list[str]:
    found: list[str] = []
    for span in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", span)
        if match is None:
            found.append(span)
            continue
        first, last = int(match[1]), int(match[2])
        last = min(last, first + MOST_HOSTS)
        found += [f"{number:0{len(match[1])}d}" for number in range(first, last + 1)]
        if len(found) > MOST_HOSTS:
            break
    return found
