"""The JSON output of `torchx why`, and of submissions, as types."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from torchx_cli.schemas.applications import Ended, Identity
from torchx_cli.schemas.keys import (
    AppName,
    AppState,
    AttemptNumber,
    EndedAt,
    ExitCode,
    ReplicaId,
    RoleName,
    RunHandle,
    Signal,
    StartedAt,
    SubmittedAt,
    Time,
)

CauseOfState = TypedDict(
    "CauseOfState",
    {
        "class": Annotated[str, "the cause, such as import_error or out_of_memory"],
        "source": Annotated[
            Literal["engine", "exit", "output"], "the origin of the evidence; exit: code or signal"
        ],
        "evidence": Annotated[str, "the facts, one line"],
        "advice": Annotated[str | None, "the usual remedy"],
    },
)


class ExplainedFailure(TypedDict):
    """The replica that failed first."""

    role: RoleName
    replica: ReplicaId
    handle: RunHandle
    attempt: AttemptNumber
    max_attempts: Annotated[int | None, "the largest number of attempts"]
    host: Annotated[str | None, "the host on which it ran"]
    exit_code: ExitCode
    signal: Signal
    rank: Annotated[int | None, "the rank of torchrun that failed first"]
    msg: Annotated[str, "the reason, or the line of the output that names the cause; empty without one"]


class LastLine(TypedDict):
    """A last line of the log."""

    line: Annotated[str, "the text"]
    replica: Annotated[str, "the first replica that has printed it, as ROLE/ID"]
    replicas: Annotated[int, "the number of replicas that have printed it"]


class PeakUsage(TypedDict):
    """The largest measurements beside the request."""

    peak_memory: Annotated[int | None, "the most memory of one replica, in bytes"]
    requested_memory: Annotated[int | None, "the memory requested for it, in bytes"]
    largest: Annotated[str | None, "this replica, as ROLE/ID"]
    mean_cpu: Annotated[float | None, "mean CPU cores of a replica"]
    requested_cpu: Annotated[float | None, "the CPU cores requested for a replica"]
    mean_gpu: Annotated[float | None, "mean utilisation of the GPUs, 0 to 1"]
    peak_gpu_memory: Annotated[int | None, "the most GPU memory of one replica, in bytes"]


class DifferenceFromSuccess(TypedDict):
    """A difference from the last success; null for a part that an application does not have."""

    part: Annotated[str, "the part, such as `role trainer: args`"]
    before: Annotated[str | None, "its value in the application that succeeded"]
    now: Annotated[str | None, "its value in this application"]


class Explained(Identity):
    """The output of `torchx why`, at most 4,000 bytes; long texts are shortened."""

    name: AppName
    state: AppState
    replicas: Annotated[dict[str, int], "the number of replicas in each state"]
    submitted_at: SubmittedAt
    started_at: StartedAt
    ended_at: EndedAt
    cause: Annotated[CauseOfState, "the cause of the state"]
    first_failure: Annotated[ExplainedFailure | None, "the replica that failed first"]
    last_output_at: Annotated[Time | None, "the time of the last output of a running application"]
    lines: Annotated[list[LastLine], "the distinct last lines"]
    usage: Annotated[PeakUsage | None, "the measurements; null if there are none"]
    last_success: Annotated[str | None, "the last application of this name that succeeded before"]
    differences: Annotated[list[DifferenceFromSuccess], "the differences from it"]
    more_differences: Annotated[int, "the number of further differences"]
    commands: Annotated[list[str], "commands to try next"]


class Result(Ended, total=False):
    """The output of `torchx run --json`, when the command ends."""

    existed: Annotated[bool, "whether nothing was submitted, as the application existed; with --once"]
    runs: Annotated[int, "the number of runs of a sweep"]
    submitted: Annotated[int, "the number of runs of a sweep that were submitted now"]
