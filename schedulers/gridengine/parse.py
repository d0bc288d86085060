"""Parse the output of qstat and qacct, of Grid Engine 8.1 and similar ones."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from torchx.schedulers.shared.batch.paths import clean
from torchx.schedulers.shared.batch.record import LATEST, key_of

LONGEST_TEXT = 1 << 16
MOST_TASKS = 100_000
_JOB = re.compile(r"<job_list\b[^>]*>(.*?)</job_list>", re.DOTALL)
_FIELD = re.compile(r"<(\w+)>([^<]*)</\1>")
_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}):([0-9]{1,9}))?")


class JobFacts(NamedTuple):
    """Facts from qstat on a job, or on one task of a job array.

    Attributes:
        job_id: the id of the job; for a task, of the array.
        task: the index of the task; None for other jobs.
        state: the letters of its state, such as ``qw`` or ``r``.
        name: the name of the job.
        at: the time of the submission of a waiting job, of the start of another, in seconds since the epoch.
        host: the host of its script; empty before its start.
    """

    job_id: int
    task: int | None
    state: str
    name: str = ""
    at: float | None = None
    host: str = ""

    @property
    def key(self) -> str:
        """The id of the job, with the index of its task: ``7`` or ``7_3``."""
        return key_of(self.job_id, self.task)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its start, or for its next run."""
        return "q" in self.state

    @property
    def has_failed(self) -> bool:
        """Whether Grid Engine could not start it, and does not try again."""
        return "E" in self.state

    @property
    def is_running(self) -> bool:
        """Whether its state is known, and it has begun."""
        return not self.is_waiting and bool(re.fullmatch(r"[rtRsSTNPdh]+", self.state))

    @property
    def is_suspended(self) -> bool:
        """Whether it is suspended, by a command, its queue or a threshold."""
        return bool(set("sSTNP") & set(self.state))


def read_queue(text: str) -> Iterator[JobFacts]:
    """Yields the jobs in the output of ``qstat -xml``, the waiting tasks of an array one by one."""
    for match in _JOB.finditer(text):
        fields = {
            name: clean(html.unescape(value[:LONGEST_TEXT])) for name, value in _FIELD.findall(match[1])
        }
        number = fields.get("JB_job_number", "")
        if not re.fullmatch("[0-9]{1,18}", number):
            continue
        state = fields.get("state", "")
        at = _time_of(fields.get("JAT_start_time") or fields.get("JB_submission_time", ""))
        host = fields.get("queue_name", "").rpartition("@")[2]
        for task in _tasks(fields.get("tasks", "")):
            yield JobFacts(int(number), task, state, fields.get("JB_name", ""), at, host)


def _tasks(text: str) -> Iterator[int | None]:
    """Yields the tasks of an entry: ``3``, ``2,4`` or ``5-9:1``; None for other jobs.

    >>> list(_tasks("")), list(_tasks("1,4-8:2"))
    ([None], [1, 4, 6, 8])
    """
    if not text:
        yield None
        return
    for part in text.split(","):
        if match := _TASKS.fullmatch(part):
            last, step = int(match[2] or match[1]), int(match[3] or 1)
            yield from range(int(match[1]), min(last, int(match[1]) + MOST_TASKS) + 1, max(step, 1))


def _time_of(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
    if 0 < at < LATEST:
        return at
    return None


class Account(NamedTuple):
    """The end of a job in the accounting.

    Attributes:
        name: the name of the job.
        failed: the number of the failure by Grid Engine, 0 without.
        text: its explanation.
        exit_code: the exit code of its script.
        started: the time of its start, in seconds since the epoch; None if it did not start.
        ended: the time of its end.
    """

    name: str
    failed: int
    text: str
    exit_code: int
    started: float | None = None
    ended: float | None = None


def read_accounts(text: str, task: int | None = None) -> list[Account]:
    """Returns the runs of a job, or of a task, in the output of ``qacct -j``, in order.

    Args:
        text: the output.
        task: the index of a task of an array.
    """
    accounts = []
    for block in re.split(r"(?m)^=+$", text):
        pairs = (line.split(None, 1) for line in block.splitlines())
        facts = {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
        failed = re.match(r"([0-9]{1,4})\s*:?\s*(.*)", facts.get("failed", ""))
        code = re.match(r"[0-9]{1,3}", facts.get("exit_status", ""))
        if failed is None or code is None or (task is not None and facts.get("taskid") != str(task)):
            continue
        accounts.append(
            Account(
                clean(facts.get("jobname", "")),
                int(failed[1]),
                clean(failed[2]),
                int(code[0]),
                _date_of(facts.get("start_time", "")),
                _date_of(facts.get("end_time", "")),
            )
        )
    return accounts


def _date_of(text: str) -> float | None:
    """Returns the time of a date as qacct writes it, in local time; None for ``-/-``.

    >>> _date_of("-/-") is None
    True
    """
    for form in ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S"):
        try:
            return datetime.strptime(text, form).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def reasons_of(text: str) -> Sequence[str]:
    """Returns why a job waits or could not be started, from the output of ``qstat -j``, without repetitions.

    >>> reasons_of('error reason    1:  no folder\\nscheduling info:   queue "a" dropped\\n   cannot run')
    ['no folder', 'queue "a" dropped', 'cannot run']
    """
    found = []
    is_info = False
    for line in text.splitlines():
        match = re.match(r"(error reason\s+[0-9]+|scheduling info)\s*:\s*(.*)", line)
        if match:
            is_info = match[1] == "scheduling info"
            found.append(match[2].strip())
        elif is_info and line.startswith(" "):
            found.append(line.strip())
        else:
            is_info = False
    return [
        clean(line[:300]) for line in dict.fromkeys(found) if line and not re.fullmatch(_NO_REASONS, line)
    ]


_NO_REASONS = r".*(no messages available|job information is turned off).*"

AGAIN = (24, 25)
"""The numbers of ``failed`` in the accounting of a run after which the job is queued again."""
