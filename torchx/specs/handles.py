"""Handles: names of submitted applications, and the arguments of `torchx log`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from torchx.errors import StateError, UsageError
from torchx.json_limits import MOST_REPLICAS
from torchx.suggestions import did_you_mean

AppHandle = str
"""``{scheduler}://{session}/{app_id}``; the session may be empty."""

_HANDLE = r"(.+)://(.*)/(.+)"
_TARGET = r"(?P<handle>[^/:]+://[^/]*/[^/]+|[^/]+)(?:/(?P<role>[^/]+)(?:/(?P<replicas>[^/]+))?)?"


class MalformedAppHandleException(UsageError):
    """A text is not a valid application handle.

    Args:
        app_handle: the text.
    """

    code = "invalid_handle"

    def __init__(self, app_handle: str) -> None:
        hint = "a handle reads SCHEDULER://SESSION/APP_ID, e.g. local_cwd://torchx/train-x7k2m9cd"
        if "/" not in app_handle:  # commands resolve it themselves
            hint = (
                "expected SCHEDULER://SESSION/APP_ID; for an id, a name or @last: runner.resolve_handle(NAME)"
            )
        super().__init__(
            f"`{app_handle}` is not an application handle",
            hint=hint,
            facts={"given": app_handle},
        )
        self.app_handle = app_handle


OTHER_NAMES = {
    "local_cwd": "local process subprocess",
    "local_docker": "docker podman container",
    "kubernetes": "k8s kube kubectl",
    "slurm": "sbatch srun",
    "gridengine": "sge qsub qrsh",
}
"""Scheduler -> its names in other tools."""

FORMER = ("aws_batch", "aws_sagemaker", "gcp_batch", "kubernetes_mcad", "lsf", "ray")
"""Schedulers of TorchX that do not exist here."""


class UnknownSchedulerException(UsageError):
    """No scheduler has this name.

    Args:
        scheduler_backend: the name.
        known: the existing names, for the hint.
    """

    code = "unknown_scheduler"

    def __init__(self, scheduler_backend: str, known: Iterable[str] = ()) -> None:
        names = list(known)
        every = None
        if names:
            every = f"all schedulers: {', '.join(names)}"
        meant = next(
            (name for name, others in OTHER_NAMES.items() if scheduler_backend in others.split()), ""
        )
        hint = did_you_mean(meant or scheduler_backend, names, every)
        if scheduler_backend in FORMER:
            hint = f"TorchX had it, this package does not   {every or ''}".rstrip()
        super().__init__(
            f"unknown scheduler `{scheduler_backend}`",
            hint=hint,
            facts={"scheduler": scheduler_backend},
        )
        self.scheduler_backend = scheduler_backend


class UnknownAppException(StateError):
    """The scheduler does not know this application.

    Args:
        app_handle: the handle.
        known: the existing handles or ids, for the hint.
    """

    code = "unknown_application"

    def __init__(self, app_handle: AppHandle, known: Iterable[str] = ()) -> None:
        super().__init__(
            f"there is no application `{app_handle}`",
            hint=did_you_mean(app_handle, known, "all applications: torchx list"),
            facts={"handle": app_handle},
        )
        self.app_handle = app_handle


class PartOfJobException(UsageError):
    """An id belongs to a part of an application, such as a step of a job."""

    code = "part_of_job"


class ParsedAppHandle(NamedTuple):
    """The parts of a handle.

    Attributes:
        scheduler_backend: name of the scheduler.
        session_name: name of the session, may be empty.
        app_id: the id that the scheduler gave.
    """

    scheduler_backend: str
    session_name: str
    app_id: str


def parse_app_handle(app_handle: AppHandle) -> ParsedAppHandle:
    """Parses a handle.

    Raises:
        MalformedAppHandleException: the text is not a handle.

    >>> parse_app_handle("slurm:///12")
    ParsedAppHandle(scheduler_backend='slurm', session_name='', app_id='12')
    """
    match = re.fullmatch(_HANDLE, app_handle)
    if match is None:
        raise MalformedAppHandleException(app_handle)
    return ParsedAppHandle(match[1], match[2], match[3])


def make_app_handle(scheduler_backend: str, session_name: str, app_id: str) -> AppHandle:
    """Builds a handle.

    >>> make_app_handle("local_cwd", "torchx", "echo-b4zt1k8s")
    'local_cwd://torchx/echo-b4zt1k8s'
    """
    return f"{scheduler_backend}://{session_name}/{app_id}"


class LogTarget(NamedTuple):
    """The replicas whose logs are requested.

    Attributes:
        handle: the application, as it was written: a handle or a short name of one.
        role: name of the role; None for all.
        replicas: ids within the role, in the order they were written; empty for all.
    """

    handle: str
    role: str | None = None
    replicas: tuple[int, ...] = ()


def parse_log_target(text: str) -> LogTarget:
    """Reads ``HANDLE``, ``HANDLE/ROLE`` or ``HANDLE/ROLE/REPLICAS``, replicas such as ``0,1,3-5``.

    Raises:
        UsageError: the text has another form.

    >>> parse_log_target("local_cwd://torchx/train-x7k2m9cd/trainer/0,2-3")
    LogTarget(handle='local_cwd://torchx/train-x7k2m9cd', role='trainer', replicas=(0, 2, 3))
    >>> parse_log_target("train-x7k2m9cd/trainer").role
    'trainer'
    """
    match = re.fullmatch(_TARGET, text)
    if match is None:
        raise UsageError(
            f"`{text}` names no logs",
            hint="write APP, APP/ROLE or APP/ROLE/REPLICAS, e.g. @last/trainer/0,2-3",
        )
    ids = match["replicas"]
    replicas: tuple[int, ...] = ()
    if ids is not None:
        replicas = parse_numbers(ids.removesuffix(","), f"`{text}`", "replica id")
    return LogTarget(match["handle"], match["role"], replicas)


def parse_numbers(text: str, where: str, noun: str = "rank") -> tuple[int, ...]:
    """Reads numbers such as ``0,1,3-5``.

    Args:
        text: the numbers.
        where: the place of the text, for the error message.
        noun: the name of such a number, for the error message.

    Raises:
        UsageError: the text has another form.

    >>> parse_numbers("0,4-6", "--rank")
    (0, 4, 5, 6)
    """
    wanted: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part, re.ASCII)
        if match:
            first, last = (int(match[1]), int(match[2] or match[1]))
        else:
            first, last = (1, 0)
        if not first <= last < first + MOST_REPLICAS:
            raise UsageError(f"`{part}` in {where} is not a {noun}", hint=f"write {noun}s as 0,1,3-5")
        wanted.update(dict.fromkeys(range(first, last + 1)))
    return tuple(wanted)
