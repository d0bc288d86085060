"""The JSON output about applications, as types; `torchx schema` and the docs show their descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict, get_type_hints

from torchx_cli.schemas.errors import ErrorData
from torchx_cli.schemas.measurements import SampledUsage, Usage

State = Literal["SUBMITTED", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN"]
Time = str
"""ISO 8601 with zone."""

EXIT_CODE = "the exit code, null if unknown or ended by a signal"
SIGNAL = "the name of the signal that ended it, such as SIGKILL"


class Identity(TypedDict):
    """The application."""

    handle: Annotated[str, "the handle: SCHEDULER://SESSION/APP_ID"]
    app_id: Annotated[str, "the id that the scheduler gave"]
    scheduler: Annotated[str, "the scheduler"]


class Named(Identity):
    """The application with its name."""

    name: Annotated[str, "the name of the application"]
    session: Annotated[str, "the session part of the handle"]


class Times(TypedDict):
    """Times of an application or a replica."""

    started_at: Annotated[Time | None, "the time of the start"]
    ended_at: Annotated[Time | None, "the time of the end"]
    duration: Annotated[float | None, "the run time, in seconds"]


class AppTimes(Times):
    """Times of an application."""

    submitted_at: Annotated[Time | None, "the time of the submission"]


class Labels(TypedDict):
    """Tags and note of an application."""

    tags: Annotated[dict[str, str], "the tags; the value of a tag that is only a name is empty"]
    note: Annotated[str, "the note; empty without one"]


class Attempt(Times):
    """An attempt of a replica."""

    number: Annotated[int, "the number of the attempt, from 1"]
    state: Annotated[State, "the state of the attempt"]
    exit_code: Annotated[int | None, EXIT_CODE]
    signal: Annotated[str | None, SIGNAL]
    result: Annotated[int | None, "the exit code, or 128 + N for signal N"]
    pid: Annotated[int | None, "the process id on its machine"]
    msg: Annotated[str, "the reason of the state"]


class Replica(Times):
    """A replica."""

    id: Annotated[int, "the number within the role, from 0"]
    state: Annotated[State, "the state of the replica"]
    role: Annotated[str, "the name of the role"]
    hostname: Annotated[str, "the host on which it runs"]
    structured_error_msg: Annotated[str, "the error file of the replica, or `<NONE>`"]
    hostaddr: Annotated[str | None, "the address of the host"]
    attempt: Annotated[int, "the number of the current or last attempt, from 1"]
    max_attempts: Annotated[int, "the largest number of attempts"]
    exit_code: Annotated[int | None, EXIT_CODE]
    signal: Annotated[str | None, SIGNAL]
    pid: Annotated[int | None, "the process id on its machine"]
    attempts: Annotated[list[Attempt], "all known attempts"]


class RoleState(TypedDict):
    """A role with its replicas."""

    role: Annotated[str, "the name of the role"]
    ready: Annotated[int | None, "the number of ready replicas of a service; null for an ordinary role"]
    replicas: Annotated[list[Replica], "the replicas of the role"]


class FirstFailure(TypedDict):
    """The replica that failed first."""

    role: Annotated[str, "the name of the role"]
    replica: Annotated[int, "the number within the role, from 0"]
    attempt: Annotated[int, "the number of the attempt, from 1"]
    exit_code: Annotated[int | None, EXIT_CODE]
    signal: Annotated[str | None, SIGNAL]
    msg: Annotated[str, "the reason, if it is more than the exit code"]
    cause: Annotated[str | None, "the cause, if the engine or the supervisor knows it, as in `why`"]
    result: Annotated[int | None, "the exit code, or 128 + N for signal N"]


class Notification(TypedDict):
    """A notification."""

    target: Annotated[str, "the target, without secrets"]
    kind: Annotated[str, "end, failure or stall"]
    state: Annotated[
        Literal["planned", "sending", "retry", "delivered", "failed", "unknown"], "the state of the delivery"
    ]
    at: Annotated[Time | None, "the time of the last try"]
    tries: Annotated[int, "the number of tries"]
    message: Annotated[str, "the reason of the state"]


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

    state: Annotated[State, "the state of the application"]
    num_restarts: Annotated[int, "the number of restarts of the whole application; -1 if unknown"]
    run: Annotated[int, "the number of its run, from 1; each requeue begins the next one"]
    roles: Annotated[list[RoleState], "the roles, or those of --roles"]
    msg: Annotated[str, "the reason of the state"]
    structured_error_msg: Annotated[str, "the error file of the replica that failed first, or `<NONE>`"]
    url: Annotated[str | None, "a web page about it"]
    first_failure: Annotated[FirstFailure | None, "the replica that failed first"]
    log_dir: Annotated[str | None, "the folder of its logs"]
    workspaces: Annotated[dict[str, str], "the working directory of each role with a workspace, by role name"]
    usage: Annotated[Usage | None, "the measurements; null if there are none"]
    notifications: Annotated[list[Notification], "its notifications"]


class ListedOptional(TypedDict, total=False):
    """Keys of some lists."""

    usage: Annotated[Usage | None, "the measurements; with --columns and one of cpu, memory and gpu"]


class Listed(Named, AppTimes, ListedOptional):
    """An application in the output of `torchx list`."""

    tags: Annotated[dict[str, str], "the tags; the value of a tag that is only a name is empty"]
    state: Annotated[State, "the state of the application"]
    exit_code: Annotated[int | None, "0, or the code of the replica that failed first (128 + N for a signal)"]
    msg: Annotated[str, "the reason of the state"]


ListedColumns = TypedDict(  # type: ignore[misc]  # not spelled out again
    "ListedColumns", get_type_hints(Listed, include_extras=True), total=False
)


class ResourceData(TypedDict):
    """The resources of a replica."""

    cpu: Annotated[float, "CPU cores; -1 for no request"]
    gpu: Annotated[float, "GPUs; -1 for no request"]
    memMB: Annotated[float, "memory in MB; -1 for no request"]
    capabilities: Annotated[dict[str, Any], "further requests by name"]
    devices: Annotated[dict[str, int], "numbers of other devices by name"]
    tags: Annotated[dict[str, Any], "labels without effect"]


class RoleData(TypedDict):
    """A role of an application, with the fields of `Role`."""

    name: Annotated[str, "the name of the role"]
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
    metadata: Annotated[dict[str, Any], "data for the scheduler"]
    mounts: Annotated[list[dict[str, Any]], "the mounts, each with its type and the fields of its class"]
    workspace: Annotated[dict[str, str] | None, "the projects of the workspace, with their targets"]


class AppData(TypedDict):
    """An application, with the fields of `AppDef`."""

    name: Annotated[str, "the name of the application"]
    roles: Annotated[list[RoleData], "the roles"]
    metadata: Annotated[dict[str, Any], "data for the scheduler"]


class Details(Named, AppTimes, Labels):
    """The description of an application."""

    state: Annotated[State, "the state of the application"]
    msg: Annotated[str, "the reason of the state"]
    first_failure: Annotated[FirstFailure | None, "the replica that failed first"]
    roles: Annotated[list[RoleState], "the roles with their replicas"]
    log_dir: Annotated[str | None, "the folder of its logs"]
    ui_url: Annotated[str | None, "a web page about it"]
    workspaces: Annotated[dict[str, str], "the working directory of each role with a workspace, by role name"]
    cfg: Annotated[dict[str, Any], "the run options"]
    command_line: Annotated[
        str | None,
        "the command line that submitted it, with secrets masked; null if it was not submitted by a command; "
        "with … instead of values on engines where other users could read them: Kubernetes, and Docker on "
        "other machines",
    ]
    app: Annotated[AppData, "the application"]


class Described(Details):
    """The output of `torchx describe`."""

    usage: Annotated[Usage | None, "the measurements; null if there are none"]


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
    usage_error: Annotated[str | None, "the reason if the engine cannot be queried for measurements"]
    metrics: Annotated[
        dict[str, list[list[float]]],
        "the numbers that trackers have, by name: pairs of a time, in seconds since the epoch, or the number "
        "of a run of a sweep, and the value",
    ]
    runs: Annotated[list[list[str]], "the table of the runs of a sweep, its heads first; empty if none"]


class Ended(Identity):
    """The result of an application."""

    state: Annotated[State, "the state of the application"]
    ui_url: Annotated[str | None, "a web page about it"]
    exit_code: Annotated[int | None, "the exit code of the command for it; null while it runs"]
    first_failure: Annotated[FirstFailure | None, "the replica that failed first"]


class DryRun(TypedDict):
    """The output of `torchx run --dryrun -o json`."""

    scheduler: Annotated[str | None, "the scheduler"]
    cfg: Annotated[dict[str, Any], "the run options"]
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

    role: Annotated[str, "the name of the role"]
    replica: Annotated[int, "the number within the role, from 0"]
    state: Annotated[str, "the state, or how it ended"]
    attempt: Annotated[int, "the number of the attempt, from 1"]
    cpu: Annotated[float | None, "CPU cores in use"]
    memory: Annotated[int | None, "memory in bytes"]
    gpu: Annotated[float | None, "utilisation of the GPUs, 0 to 1"]
    gpu_memory: Annotated[int | None, "memory of the GPUs in bytes"]
    output: Annotated[float | None, "output in bytes per second"]
    last_line: Annotated[str, "the last line of its log"]


class TopApp(Identity):
    """An application in the output of `torchx top`."""

    state: Annotated[str, "the state of the application"]
    replicas: Annotated[list[TopReplica], "the replicas"]
