"""The JSON output of `torchx queue`, as types."""

from __future__ import annotations

from typing import Annotated, TypedDict


class QueuedGpu(TypedDict):
    """A GPU of this machine."""

    gpu: Annotated[str, "its index, or the id of an instance of a divided GPU"]
    id: Annotated[str, "its id"]
    free: Annotated[bool, "whether nothing uses it"]
    app: Annotated[str, "the application that holds it, or an empty string"]
    user: Annotated[str, "the user of the holder; an empty string if it is free"]
    pid: Annotated[int | None, "the process that uses it, if torchx did not start it"]
    program: Annotated[str, "the program of that process, or an empty string"]
    since: Annotated[str | None, "the start of the holder, ISO 8601"]
    use: Annotated[float | None, "its utilisation, 0 to 1"]
    memory: Annotated[int | None, "bytes of its memory in use"]
    total: Annotated[int | None, "bytes of its memory"]


class QueuedApp(TypedDict):
    """A waiting application."""

    app_id: Annotated[str, "the application"]
    user: Annotated[str, "its user"]
    gpus: Annotated[int, "the number of GPUs that it needs"]
    cpus: Annotated[int, "the number of processors that it reserves"]
    memory: Annotated[int, "the units of memory that it reserves"]
    priority: Annotated[int, "its priority; higher ones start first"]
    since: Annotated[str, "the time that determines its place, ISO 8601"]
    limit: Annotated[float | None, "its time limit in seconds"]
    held: Annotated[bool, "whether it is held"]
    own: Annotated[bool, "whether it is in this state home"]
    reason: Annotated[str, "why it waits"]


class Queue(TypedDict):
    """The queue of this machine."""

    gpus: Annotated[list[QueuedGpu], "its GPUs"]
    waiting: Annotated[list[QueuedApp], "the waiting applications of all users, in their order"]
