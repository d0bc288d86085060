"""The output of the commands for sweeps."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from torchx_cli.schemas.keys import Reason, State, Time


class RunResult(TypedDict):
    """The result of a run in the output of `torchx results`."""

    run: Annotated[int, "the number of the run, from 1"]
    handle: Annotated[str | None, "its application; null before it is started"]
    state: Annotated[State, "its state"]
    parameters: Annotated[dict[str, Any], "its parameters: numbers and strings"]
    metrics: Annotated[dict[str, Any], "its metrics, from trackers and --metric: numbers and strings"]
    started_at: Annotated[Time | None, "its start"]
    ended_at: Annotated[Time | None, "its end"]
    duration: Annotated[float | None, "seconds from its start to its end"]
    exit_code: Annotated[int | None, "0, or the code of the replica that failed first (128 + N for a signal)"]
    msg: Reason
    peak_memory: Annotated[int | None, "the most memory that one replica used, bytes"]
    cpu: Annotated[float | None, "CPU cores that a replica used on average"]
    gpu: Annotated[float | None, "utilisation of the GPUs of a replica on average, from 0 to 1"]
