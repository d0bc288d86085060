"""Parse the output of squeue and sacct, of Slurm 20.11 and newer."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from torchx.masking.names import name_set
from torchx.schedulers.shared.batch.paths import clean
from torchx.schedulers.shared.batch.record import key_of
from torchx.specs.handles import PartOfJobException

_QUEUE_FIELDS = ("%i", "%A", "%T", "%V", "%S", "%e", "%u", "%N", "%r", "%j", "%k")
ACCOUNT_FORMAT = "JobID,JobIDRaw,State,Submit,Start,End,User,NodeList,ExitCode,JobName,Comment"
"""The output fields of sacct."""
FIELDS = len(_QUEUE_FIELDS)
LONGEST_TEXT = 1 << 16
"""Maximum characters of a name, a comment or a node list; the rest is cut off."""
MAX_HOSTS = 100_000


def separator() -> str:
    """Returns a random field separator, which users cannot predict.

    Names and comments of jobs can contain any text, including line breaks and bars.
    """
    return f"|{os.urandom(8).hex()}|"


def queue_format(between: str) -> str:
    """Returns the squeue format with a separator between the fields."""
    return between.join(_QUEUE_FIELDS)


class JobFacts(NamedTuple):
    """Facts from Slurm on a job, or on one part of a heterogeneous job.

    Attributes:
        job_id: id of the job; for a part, of the heterogeneous job; for a task, of the array.
        part: index of the part, from 0.
        state: Slurm state, in capitals.
        reason: why the job is pending, or ended.
        name: job name.
        comment: job comment.
        user: owner of the job.
        nodes: allocated nodes, as a Slurm node list.
        submitted: time of submission or requeue, in seconds since the epoch.
        started: start time; expected start of a pending job.
        ended: end time; latest end of a running job.
        exit_code: exit code of the script.
        signal: signal that ended the script.
        task: index of the task of a job array; None for other jobs.
        own_id: the id by which srun knows the job, also a task of an array; 0 if unknown.
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
    task: int | None = None
    own_id: int = 0

    @property
    def key(self) -> str:
        """The id of the job, with the index of its task in an array: ``7`` or ``7_3``."""
        return key_of(self.job_id, self.task)


_PART = re.compile(r"([0-9]{1,18})(\+[0-9]+|_[0-9]+|\.[a-z0-9+]+)")
_PARTS = {"+": "a part of the heterogeneous job", "_": "a task of the job array", ".": "a step of the job"}


def check_not_part(app_id: str) -> None:
    """Checks that an id is not that of a part of a job.

    Raises:
        PartOfJobException: it is.
    """
    if match := _PART.fullmatch(app_id):
        job = match[1]
        raise PartOfJobException(
            f"`{app_id}` is {_PARTS[match[2][0]]} {job}, not an application",
            hint=f"use the id of the job: slurm://torchx/{job}",
        )


def _number(value: str) -> int | None:
    """Parses a number."""
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    if abs(number) < 1 << 63:
        return number
    return None


def _time(value: str) -> float | None:
    number = _number(value)
    if number is not None and 0 < number < 1 << 33:
        return float(number)
    return None


def _text(value: str) -> str:
    if value in ("(null)", "None assigned"):
        return ""
    return clean(value[:LONGEST_TEXT])


@lru_cache(1000)  # the jobs of a listing have few states
def _state(value: str) -> str:
    """Parses a state, or a state and flags such as ``PENDING REQUEUED``.

    Returns:
        The state, or an empty string if invalid.
    """
    names = [name.upper() for name in value.split()]
    names = [name.rstrip("+") for name in names if _STATE.fullmatch(name)]
    return next((name for name in names if name in _BASE), names[0] if names else "")


_STATE = re.compile(r"[A-Z_]{1,40}\+?")
ENDED = name_set(
    "COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY LAUNCH_FAILED "
    "RECONFIG_FAIL"
)
"""Slurm states of jobs that have ended; a state that is not known here is not an end."""
_BASE = ENDED | {"PENDING", "RUNNING", "SUSPENDED"}
"""The base states of a job; flags such as COMPLETING, CONFIGURING and REQUEUED are added to them."""


def _reason(value: str) -> str:
    text = _text(value).strip("()")
    if text == "None":
        return ""
    return text


def _signal(value: str) -> int | None:
    """Parses the signal in a field such as ``RaisedSignal:9(Killed)``."""
    match = _SIGNAL.match(value)
    if match is None:
        return None
    return int(match[1])


_SIGNAL = re.compile(r"RaisedSignal:([0-9]{1,3})\b")


def _records(text: str, between: str) -> Iterator[tuple[_Ids, list[str]]]:
    """Yields the ids and the remaining fields of each job in an output.

    Names and comments may contain line breaks: a record extends until it has all its separators, and then up
    to the next line with a separator.
    """
    records: list[list[str]] = []
    left = 0
    for line in clean(text).removesuffix("\n").split("\n"):
        count = line.count(between)
        if left > 0 or (records and not count and between != "|"):
            records[-1].append(line)
            left -= count
        elif count:
            records.append([line])
            left = FIELDS - 1 - count if between != "|" else 0
    for record in records:
        cells = [cell[:LONGEST_TEXT] for cell in "\n".join(record).split(between, FIELDS - 1)]
        ids = None
        if len(cells) == FIELDS:
            ids = _ids(cells[0], cells[1])
        if ids is not None:
            yield ids, cells[2:]


def read_queue(text: str, between: str = "|") -> list[JobFacts]:
    """Parses the output of squeue in :func:`queue_format`.

    Args:
        text: the output.
        between: the field separator; with a plain bar, each line is a record.
    """
    facts = []
    for ids, cells in _records(text, between):
        state, submitted, started, ended, user, nodes, reason, name, comment = cells
        facts.append(
            JobFacts(
                ids.job,
                ids.part,
                _state(state),
                _reason(reason),
                name,
                _text(comment),
                user,
                nodes,
                _time(submitted),
                _time(started),
                _time(ended),
                signal=_signal(reason),
                task=ids.task,
                own_id=ids.own,
            )
        )
    return facts


def read_account(text: str, between: str = "|") -> list[JobFacts]:
    """Parses the output of ``sacct --parsable2`` in :data:`ACCOUNT_FORMAT`.

    Args:
        text: the output.
        between: the field separator.
    """
    facts = []
    for ids, cells in _records(text, between):
        state, submitted, started, ended, user, nodes, code, name, comment = cells
        exit_code, _, signal = code.partition(":")
        facts.append(
            JobFacts(
                ids.job,
                ids.part,
                _state(state),
                "",
                name,
                _text(comment),
                user,
                nodes.replace("None assigned", ""),
                _time(submitted),
                _time(started),
                _time(ended),
                _number(exit_code),
                _number(signal) or None,
                ids.task,
                ids.own,
            )
        )
    return facts


class _Ids(NamedTuple):
    """The ids of a job in an output: as in :class:`JobFacts`."""

    job: int
    part: int
    task: int | None
    own: int


def _ids(text: str, own: str) -> _Ids | None:
    """Parses ``7``, ``7+1`` (part of a heterogeneous job) and ``7_3`` (task of an array)."""
    match = re.fullmatch(r"([0-9]{1,18})(?:\+([0-9]{1,9})|_([0-9]{1,9}))?", text.strip())
    if match is None:
        return None
    own_id = 0
    if own.isdecimal() and own.isascii() and len(own) <= 18:
        own_id = int(own)
    return _Ids(int(match[1]), int(match[2] or 0), int(match[3]) if match[3] else None, own_id)


def by_job(facts: Iterable[JobFacts]) -> dict[str, list[JobFacts]]:
    """Returns the parts of each job, in order; the last one wins if a part is listed twice.

    The keys are as in :attr:`JobFacts.key`.
    """
    jobs: dict[str, dict[int, JobFacts]] = {}
    for part in facts:
        jobs.setdefault(part.key, {})[part.part] = part
    return {job: [parts[number] for number in sorted(parts)] for job, parts in jobs.items()}


def hosts_of(nodes: str) -> Iterator[str]:
    """Yields the nodes of a Slurm node list, at most MAX_HOSTS.

    >>> list(hosts_of("gpu[08-10,12],login1"))
    ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login1']
    """
    parts = re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes[:LONGEST_TEXT])
    yield from itertools.islice((host for part in parts for host in _expand(part)), MAX_HOSTS)


def _expand(part: str) -> Iterator[str]:
    """Yields the nodes of one element of a node list, which may have several ranges."""
    texts = re.split(r"\[([^\]]*)\]", part)
    if len(texts) > 2 * MAX_RANGES:
        return iter([part])
    choices = [_span(text) if at % 2 else [text] for at, text in enumerate(texts)]
    return ("".join(choice) for choice in itertools.product(*choices))


MAX_RANGES = 4


def _span(text: str) -> list[str]:
    hosts: list[str] = []
    for span in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", span)
        if match is None:
            hosts.append(span)
            continue
        first, last = int(match[1]), int(match[2])
        last = min(last, first + MAX_HOSTS)
        hosts += [f"{number:0{len(match[1])}d}" for number in range(first, last + 1)]
        if len(hosts) > MAX_HOSTS:
            break
    return hosts
