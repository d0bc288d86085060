"""The JSON output of streams, `torchx log` and `torchx events`, as types: each line is an object."""

from __future__ import annotations

from typing import Annotated, TypedDict

from torchx_cli.schemas.keys import Time


class Line(TypedDict):
    """A line of a log, or a part of one."""

    role: Annotated[str, "the role that printed it"]
    replica: Annotated[int, "the replica that printed it"]
    attempt: Annotated[int, "the attempt that printed it"]
    stream: Annotated[str, "stdout or stderr; combined if the scheduler does not distinguish them"]
    time: Annotated[Time | None, "the time of the line"]
    line: Annotated[str, "the text"]
    partial: Annotated[
        bool, "true if the line is incomplete: the next object of the same replica and stream continues it"
    ]


class LineSource(TypedDict):
    """A source of folded lines."""

    role: Annotated[str, "the role that printed it"]
    replica: Annotated[int, "the replica that printed it"]
    attempt: Annotated[int, "the attempt that printed it"]
    prefix: Annotated[str, "the ranks before the line, such as [rank3]:"]


class FoldedLine(TypedDict):
    """Equal lines of several replicas, with --fold."""

    replicas: Annotated[list[LineSource], "the sources"]
    stream: Annotated[str, "the stream of the first of these lines"]
    time: Annotated[Time | None, "the time of the first of these lines"]
    line: Annotated[str, "the text"]
    partial: Annotated[bool, "true if the line is incomplete"]


class EventDetails(TypedDict, total=False):
    """Data of an event, by kind."""

    name: Annotated[str, "submitted: the name of the application"]
    state: Annotated[str, "ended: the state"]
    exit_code: Annotated[int, "ended: the exit code"]
    signal: Annotated[str, "ended: the name of the signal"]
    memory: Annotated[int, "ended, measured: the peak memory in bytes"]
    cpu: Annotated[float, "ended: the mean number of CPU cores"]
    reason: Annotated[str, "ended: the reason, if there is more than the exit code or the signal"]
    pid: Annotated[int | None, "started: the process id"]
    service: Annotated[bool, "started: true for a service, which is to become ready"]
    scope: Annotated[str, "retry: the part that is started again: replica, role or application"]
    number: Annotated[int, "retry: the number of the retry, from 1"]
    allowed: Annotated[int, "retry: the allowed number of retries"]
    run: Annotated[int, "notice, requeued: the number of the run; number and allowed count the requeues"]
    delay: Annotated[float, "retry: the seconds before it"]
    time: Annotated[
        str, "observed if the engine did not record the time; unknown if nothing observed it either"
    ]


class Event(TypedDict):
    """An event."""

    time: Annotated[Time, "the time"]
    kind: Annotated[str, "the kind, such as submitted, started, retry, requeued, stalled or ended"]
    handle: Annotated[str, "the handle of the application"]
    app_id: Annotated[str, "the id that the scheduler gave"]
    role: Annotated[str | None, "the role; null for an event of the whole application"]
    replica: Annotated[int | None, "the replica; null for an event of the whole application"]
    attempt: Annotated[int | None, "the attempt; null for an event of the whole application"]
    message: Annotated[str, "one line"]
    details: Annotated[EventDetails, "further data"]
