"""The JSON output about applications, as types; `torchx schema` and the docs show their descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict, get_type_hints

from torchx_cli.schemas.errors import ErrorData
from torchx_cli.schemas.keys import (
    AppName,
    AppState,
    AttemptNumber,
    Cores,
    EndedAt,
    ExitCode,
    GpuMemory,
    GpuShare,
    LogFolder,
    Memory,
    Metadata,
    ProcessId,
    Reason,
    ReplicaId,
    ResultCode,
    RoleName,
    RunHandle,
    RunOptions,
    Signal,
    StartedAt,
    State,
    SubmittedAt,
    Tags,
    Time,
    WebPage,
    Workspaces,
)
from torchx_cli.schemas.measurements import SampledUsage, Usage


class Identity(TypedDict):
    """The application."""

    handle: Annotated[str, "the handle: SCHEDULER://SESSION/APP_ID"]
    app_id: Annotated[str, "the id that the scheduler gave"]
    scheduler: Annotated[str, "the scheduler"]


class Named(Identity):
    """The application with its name."""

    name: AppName
    session: Annotated[str, "the session part of the handle"]


class Times(TypedDict):
    """Times of an application or a replica."""

    started_at: StartedAt
    ended_at: EndedAt
    duration: Annotated[float | None, "the run time, in seconds"]


class AppTimes(Times):
    """Times of an application."""

    submitted_at: SubmittedAt


class Labels(TypedDict):
    """Tags and note of an application."""

    tags: Tags
    note: Annotated[str, "the note; empty without one"]


class Attempt(Times):
    """An attempt of a replica."""

    number: AttemptNumber
    state: Annotated[State, "the state of the attempt"]
    exit_code: ExitCode
    signal: Signal
    result: ResultCode
    pid: ProcessId
    msg: Reason


class Replica(Times):
    """A replica."""

    id: ReplicaId
    state: Annotated[State, "the state of the replica"]
    role: RoleName
    hostname: Annotated[str, "the host on which it runs"]
    structured_error_msg: Annotated[str, "the error file of the replica, or `<NONE>`"]
    hostaddr: Annotated[str | None, "the address of the host"]
    attempt: Annotated[int, "the number of the current or last attempt, from 1"]
    max_attempts: Annotated[int, "the largest number of attempts"]
    exit_code: ExitCode
    signal: Signal
    pid: ProcessId
    attempts: Annotated[list[Attempt], "all known attempts"]


class RoleState(TypedDict):
    """A role with its replicas."""

    role: RoleName
    ready: Annotated[int | None, "the number of ready replicas of a service; null for an ordinary role"]
    replicas: Annotated[list[Replica], "the replicas of the role"]


class FirstFailure(TypedDict):
    """The replica that failed first."""

    role: RoleName
    replica: ReplicaId
    handle: RunHandle
    attempt: AttemptNumber
    exit_code: ExitCode
    signal: Signal
    rank: Annotated[int | None, "the rank of torchrun that failed first"]
    msg: Annotated[str, "the reason, or the line of the output that names the cause; empty without one"]
    cause: Annotated[str | None, "the cause, as in `why`"]
    result: ResultCode


First = Annotated[FirstFailure | None, "the replica that failed first"]
OwnUsage = Annotated[Usage | None, "the measurements; null if there are none"]


class Notification(TypedDict):
    """A notification."""

    target: Annotated[str, "the target, without secrets"]
    kind: Annotated[str, "end, failure or stall"]
    state: Annotated[
        Literal["planned", "sending", "retry", "delivered", "failed", "unknown"], "the state of the delivery"
    ]
    at: Annotated[Time | None, "the time of the last try"]
    tries: Annotated[int, "the number of tries"]
    message: Reason


class Rank(TypedDict):
    """A rank of torchrun."""

    rank: Annotated[int, "the rank in the application"]
    role: Annotated[str, "the role of its replica"]
    replica: Annotated[int, "the number of its replica"]
    local_rank: Annotated[int | None, "the rank in its replica; null unless it failed"]
    host: Annotated[str | None, "its host; null unless it failed"]
    exit_code: Annotated[int | None, "its exit code; null unless it failed"]
    signal: Annotated[str | None, "the signal that ended it; null unless it failed"]
    last_line: Annotated[str, "its last line in the log"]


class StatusOptional(TypedDict, total=False):
    """Keys of some statuses."""

    ranks: Annotated[list[Rank], "torchrun's ranks that the log names; with --ranks"]


class Status(Named, AppTimes, Labels, StatusOptional):
    """The output of `torchx status`."""

    state: AppState
    num_restarts: Annotated[int, "the number of restarts of the whole application; -1 if unknown"]
    run: Annotated[int, "the number of its run, from 1; each requeue begins the next one"]
    roles: Annotated[list[RoleState], "the roles, or those of --roles"]
    msg: Reason
    structured_error_msg: Annotated[str, "the error file of the replica that failed first, or `<NONE>`"]
    url: WebPage
    first_failure: First
    log_dir: LogFolder
    workspaces: Workspaces
    usage: OwnUsage
    notifications: Annotated[list[Notification], "its notifications"]


class ListedOptional(TypedDict, total=False):
    """Keys of some lists."""

    usage: Annotated[Usage | None, "the measurements; with --columns and one of cpu, memory and gpu"]


class Listed(Named, AppTimes, ListedOptional):
    """An application in the output of `torchx list`."""

    tags: Tags
    state: AppState
    exit_code: Annotated[int | None, "0, or the code of the replica that failed first (128 + N for a signal)"]
    msg: Reason


ListedColumns = TypedDict(  # type: ignore[misc]  # not spelled out again
    "ListedColumns", get_type_hints(Listed, include_extras=True), total=False
)


class ResourceData(TypedDict):
    """The resources of a replica."""

    cpu: Annotated[float, "CPU cores; -1 for no request"]
    gpu: Annotated[float, "GPUs; -1 for no request"]
    memMB: Annotated[float, "memory in MB; -1 for no request"]
    capabilities: Annotated[dict[str, Any], "further requests by name"]
    devices: Annotated[dict[str, int], "counts of other devices by name"]
    tags: Annotated[dict[str, Any], "labels without effect"]


class RoleData(TypedDict):
    """A role of an application, with the fields of `Role`."""

    name: RoleName
    image: Annotated[str, "the image"]
    min_replicas: Annotated[int | None, "the smallest number of replicas"]
    entrypoint: Annotated[str, "the program"]
    args: Annotated[list[str], "the arguments of the program"]
    env: Annotated[dict[str, str], "the environment variables; secrets are masked"]
    num_replicas: Annotated[int, "the number of replicas"]
    max_retries: Annotated[int, "the number of retries"]
    retry_policy: Annotated[str, "the part that is started again: REPLICA, ROLE or APPLICATION"]
    resource: Annotated[ResourceData, "the resources of a replica"]
    port_map: Annotated[dict[str, int], "ports by name"]
    metadata: Metadata
    mounts: Annotated[list[dict[str, Any]], "the mounts, each with its type and the fields of its class"]
    workspace: Annotated[dict[str, str] | None, "the projects of the workspace, with their targets"]


class AppData(TypedDict):
    """An application, with the fields of `AppDef`."""

    name: AppName
    roles: Annotated[list[RoleData], "the roles"]
    metadata: Metadata


class Details(Named, AppTimes, Labels):
    """The description of an application."""

    state: AppState
    msg: Reason
    first_failure: First
    roles: Annotated[list[RoleState], "the roles with their replicas"]
    log_dir: LogFolder
    ui_url: WebPage
    workspaces: Workspaces
    cfg: RunOptions
    command_line: Annotated[
        str | None,
        "the command line that submitted it, with secrets masked; null if it was not submitted by a command; "
        "with … instead of values on engines where other users could read them: Kubernetes, and Docker on "
        "other machines",
    ]
    app: Annotated[AppData, "the application"]


class Described(Details):
    """The output of `torchx describe`."""

    usage: OwnUsage


class ReportCommands(TypedDict):
    """Commands for an application."""

    again: Annotated[str, "the command that runs it again"]
    log: Annotated[str, "the command that prints its log"]


class ReportFailure(TypedDict):
    """The first failure with its last lines."""

    description: Annotated[str, "a sentence about the replica that failed first"]
    meaning: Annotated[str | None, "the usual cause of the signal"]
    rank: Annotated[str, "a sentence about the rank of torchrun that failed first; empty without one"]
    error_file: Annotated[list[str], "the lines of the error file"]
    last_lines: Annotated[list[str], "the last lines of the log"]
    log: Annotated[str, "the command that prints the whole log"]


class Report(Details):
    """The output of `torchx report --json`."""

    made_at: Annotated[Time, "the time of the report"]
    commands: Annotated[ReportCommands, "commands for the application"]
    failure: Annotated[ReportFailure | None, "the first failure"]
    usage: Annotated[SampledUsage | None, "the measurements with their samples; null if there are none"]
    usage_error: Annotated[str | None, "why the engine gives no measurements"]
    metrics: Annotated[
        dict[str, list[list[float]]],
        "the tracked numbers, by name: pairs of a time, in seconds since the epoch, or the number "
        "of a run of a sweep, and the value",
    ]
    runs: Annotated[list[list[str]], "the table of the runs of a sweep, its heads first; empty if none"]


class Ended(Identity):
    """The result of an application."""

    state: AppState
    msg: Reason
    ui_url: WebPage
    exit_code: Annotated[int | None, "the exit code of the command for it; null while it runs"]
    first_failure: First


class DryRun(TypedDict):
    """The output of `torchx run --dryrun -o json`."""

    scheduler: Annotated[str | None, "the scheduler"]
    cfg: RunOptions
    app: Annotated[AppData | None, "the application"]
    request: Annotated[Any, "the scheduler request; the format depends on the scheduler"]
    notes: Annotated[list[str], "requested features that the scheduler does not support"]


_Waited = TypedDict(
    "_Waited",
    {
        "for": Annotated[str, "the condition of --for, other than done"],
        "met": Annotated[bool | None, "whether it was met; null after a timeout; with --for"],
        "line": Annotated[str | None, "for log:REGEX: the matching line; with --for"],
        "replica": Annotated[
            str | None, "for log:REGEX: the replica that printed it, as ROLE/ID; with --for"
        ],
    },
    total=False,
)


class Waited(Ended, _Waited):
    """An application in the output of `torchx wait`; its exit code is null after a timeout."""

    error: Annotated[
        ErrorData | None, "why its state cannot be read; the error of one alone is the whole output"
    ]


class TopReplica(TypedDict):
    """A replica with its current use."""

    role: RoleName
    replica: ReplicaId
    state: State
    attempt: AttemptNumber
    exit_code: ExitCode
    signal: Signal
    cpu: Cores
    memory: Memory
    gpu: GpuShare
    gpu_memory: GpuMemory
    output: Annotated[float | None, "output in bytes per second"]
    last_line: Annotated[str, "the last line of its log"]


class TopApp(Identity):
    """An application in the output of `torchx top`."""

    state: AppState
    replicas: Annotated[list[TopReplica], "the replicas"]
