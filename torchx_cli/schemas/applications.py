"""The JSON output about applications, as types; `torchx schema` and the docs show their descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict, get_type_hints

from torchx_cli.schemas.errors import ErrorData

State = Literal["SUBMITTED", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN"]
Time = str
"""ISO 8601 with zone."""

AppName = Annotated[str, "the name of the application"]
AppState = Annotated[State, "the state of the application"]
Reason = Annotated[str, "the reason of the state"]
SubmittedAt = Annotated[Time | None, "the time of the submission"]
StartedAt = Annotated[Time | None, "the time of the start"]
EndedAt = Annotated[Time | None, "the time of the end"]
Tags = Annotated[dict[str, str], "the tags; the value of a tag that is only a name is empty"]
WebPage = Annotated[str | None, "a web page about it"]
LogFolder = Annotated[str | None, "the folder of its logs"]
Workspaces = Annotated[dict[str, str], "the working directory of each role with a workspace, by role name"]
Metadata = Annotated[dict[str, Any], "data for the scheduler"]
RunOptions = Annotated[dict[str, Any], "the run options"]

RoleName = Annotated[str, "the name of the role"]
ReplicaId = Annotated[int, "the number within the role, from 0"]
RunNumber = Annotated[int | None, "in a sweep, the number of the run; null else"]
RunHandle = Annotated[str | None, "the handle of the run, in a sweep; null else, or if it was never started"]
AttemptNumber = Annotated[int, "the number of the attempt, from 1"]
ExitCode = Annotated[int | None, "the exit code, null if unknown or ended by a signal"]
Signal = Annotated[str | None, "the name of the signal that ended it, such as SIGKILL"]
ResultCode = Annotated[int | None, "the exit code, or 128 + N for signal N"]
ProcessId = Annotated[int | None, "the process id on its machine"]

Cores = Annotated[float | None, "CPU cores in use"]
Memory = Annotated[int | None, "memory in bytes"]
GpuShare = Annotated[float | None, "utilisation of the GPUs, 0 to 1"]
GpuMemory = Annotated[int | None, "memory of the GPUs in bytes"]
OutputRate = Annotated[float | None, "output to the log, bytes per second"]
ReadRate = Annotated[float | None, "reads from storage, bytes per second"]
WriteRate = Annotated[float | None, "writes to storage, bytes per second"]


class Totals(TypedDict):
    """Means and peaks."""

    seconds: float
    """the measured time"""
    mean_cpu: float | None
    """CPU cores in use, the mean"""
    peak_memory: int | None
    """memory in bytes, the largest value"""
    mean_gpu: float | None
    """utilisation of the GPUs, 0 to 1, the mean"""
    peak_gpu_memory: int | None
    """memory of the GPUs in bytes, the largest value"""
    output_rate: OutputRate
    read_rate: ReadRate
    write_rate: WriteRate


class Requested(TypedDict):
    """The requested resources of a replica."""

    cpu: float | None
    """CPU cores"""
    memory: Memory
    gpu: int | None
    """GPUs"""


class ReplicaUsage(Totals):
    """The measurements of an attempt of a replica."""

    role: RoleName
    replica: ReplicaId
    attempt: AttemptNumber
    running: bool
    """whether the attempt is running"""
    requested: Requested
    """the requested resources"""


class Sample(TypedDict):
    """Measurements of a span of time."""

    time: float
    """the end of the span, seconds since the epoch"""
    span: float
    """the duration in seconds"""
    cpu: Cores
    memory: Memory
    gpu: GpuShare
    gpu_memory: GpuMemory
    output: OutputRate
    read: ReadRate
    write: WriteRate


class SampledReplica(ReplicaUsage):
    """The measurements of an attempt of a replica, with its samples."""

    samples: list[Sample]
    """the samples in order of time"""


class AppUsage(Totals):
    """The measurements of an application; means and peaks are of a mean replica."""

    source: str
    """the origin of the measurements, such as /proc"""
    interval: float | None
    """seconds between two samples; null if the engine is queried on demand"""
    current: list[str]
    """the measurements that are current values, not means or peaks"""
    largest: str | None
    """the replica with the largest memory, as ROLE/ID"""


class Usage(AppUsage):
    """The measurements of an application and its replicas."""

    replicas: list[ReplicaUsage]
    """an object for each attempt"""


class SampledUsage(AppUsage):
    """The measurements of an application and its replicas, with samples."""

    replicas: list[SampledReplica]
    """an object for each attempt"""
    summary: dict[str, str]
    """the peaks and means of each role, as `status` shows them"""


class Identity(TypedDict):
    """The application."""

    handle: str
    """the handle: SCHEDULER://SESSION/APP_ID"""
    app_id: str
    """the id that the scheduler gave"""
    scheduler: str
    """the scheduler"""


class Named(Identity):
    """The application with its name."""

    name: AppName
    session: str
    """the session part of the handle"""


class Times(TypedDict):
    """Times of an application or a replica."""

    started_at: StartedAt
    ended_at: EndedAt
    duration: float | None
    """the run time, in seconds"""


class AppTimes(Times):
    """Times of an application."""

    submitted_at: SubmittedAt


class Labels(TypedDict):
    """Tags and note of an application."""

    tags: Tags
    note: str
    """the note; empty without one"""


class Attempt(Times):
    """An attempt of a replica."""

    number: AttemptNumber
    state: State
    """the state of the attempt"""
    exit_code: ExitCode
    signal: Signal
    result: ResultCode
    pid: ProcessId
    msg: Reason


class Replica(Times):
    """A replica."""

    id: ReplicaId
    state: State
    """the state of the replica"""
    role: RoleName
    hostname: str
    """the host on which it runs"""
    structured_error_msg: str
    """the error file of the replica, or `<NONE>`"""
    hostaddr: str | None
    """the address of the host"""
    attempt: int
    """the number of the current or last attempt, from 1"""
    max_attempts: int
    """the largest number of attempts"""
    exit_code: ExitCode
    signal: Signal
    pid: ProcessId
    attempts: list[Attempt]
    """all known attempts"""


class RoleState(TypedDict):
    """A role with its replicas."""

    role: RoleName
    ready: int | None
    """the number of ready replicas of a service; null for an ordinary role"""
    replicas: list[Replica]
    """the replicas of the role"""


class FirstFailure(TypedDict):
    """The replica that failed first."""

    role: RoleName
    replica: ReplicaId
    run: RunNumber
    handle: RunHandle
    attempt: AttemptNumber
    exit_code: ExitCode
    signal: Signal
    rank: int | None
    """the rank of torchrun that failed first"""
    msg: str
    """the reason, or the line of the output that names the cause; empty without one"""
    cause: str | None
    """the cause, as in `why`"""
    result: ResultCode


First = Annotated[FirstFailure | None, "the replica that failed first"]
OwnUsage = Annotated[Usage | None, "the measurements; null if there are none"]


class Notification(TypedDict):
    """A notification."""

    target: str
    """the target, without secrets"""
    kind: str
    """end, failure or stall"""
    state: Literal["planned", "sending", "retry", "delivered", "failed", "unknown"]
    """the state of the delivery"""
    at: Time | None
    """the time of the last try"""
    tries: int
    """the number of tries"""
    message: Reason


class Rank(TypedDict):
    """A rank of torchrun."""

    rank: int
    """the rank in the application"""
    role: str
    """the role of its replica"""
    replica: int
    """the number of its replica"""
    local_rank: int | None
    """the rank in its replica; null unless it failed"""
    host: str | None
    """its host; null unless it failed"""
    exit_code: int | None
    """its exit code; null unless it failed"""
    signal: str | None
    """the signal that ended it; null unless it failed"""
    last_line: str
    """its last line in the log"""


class StatusOptional(TypedDict, total=False):
    """Keys of some statuses."""

    ranks: list[Rank]
    """torchrun's ranks that the log names; with --ranks"""


class Status(Named, AppTimes, Labels, StatusOptional):
    """The output of `torchx status`."""

    state: AppState
    num_restarts: int
    """the number of restarts of the whole application; -1 if unknown"""
    run: int
    """the number of its run, from 1; each requeue begins the next one"""
    roles: list[RoleState]
    """the roles, or those of --roles"""
    msg: Reason
    structured_error_msg: str
    """the error file of the replica that failed first, or `<NONE>`"""
    url: WebPage
    first_failure: First
    log_dir: LogFolder
    workspaces: Workspaces
    usage: OwnUsage
    notifications: list[Notification]
    """its notifications"""


class ListedOptional(TypedDict, total=False):
    """Keys of some lists."""

    usage: Usage | None
    """the measurements; with --columns and one of cpu, memory and gpu"""


class Listed(Named, AppTimes, ListedOptional):
    """An application in the output of `torchx list`."""

    tags: Tags
    state: AppState
    exit_code: int | None
    """0, or the code of the replica that failed first (128 + N for a signal)"""
    msg: Reason


ListedColumns = TypedDict(  # type: ignore[misc]  # not spelled out again
    "ListedColumns", get_type_hints(Listed, include_extras=True), total=False
)


class ResourceData(TypedDict):
    """The resources of a replica."""

    cpu: float
    """CPU cores; -1 for no request"""
    gpu: float
    """GPUs; -1 for no request"""
    memMB: float
    """memory in MB; -1 for no request"""
    capabilities: dict[str, Any]
    """further requests by name"""
    devices: dict[str, int]
    """counts of other devices by name"""
    tags: dict[str, Any]
    """labels without effect"""


class RoleData(TypedDict):
    """A role of an application, with the fields of `Role`."""

    name: RoleName
    image: str
    """the image"""
    min_replicas: int | None
    """the smallest number of replicas"""
    entrypoint: str
    """the program"""
    args: list[str]
    """the arguments of the program"""
    env: dict[str, str]
    """the environment variables; secrets are masked"""
    num_replicas: int
    """the number of replicas"""
    max_retries: int
    """the number of retries"""
    retry_policy: str
    """the part that is started again: REPLICA, ROLE or APPLICATION"""
    resource: ResourceData
    """the resources of a replica"""
    port_map: dict[str, int]
    """ports by name"""
    metadata: Metadata
    mounts: list[dict[str, Any]]
    """the mounts, each with its type and the fields of its class"""
    workspace: dict[str, str] | None
    """the projects of the workspace, with their targets"""


class AppData(TypedDict):
    """An application, with the fields of `AppDef`."""

    name: AppName
    roles: list[RoleData]
    """the roles"""
    metadata: Metadata


class Details(Named, AppTimes, Labels):
    """The description of an application."""

    state: AppState
    msg: Reason
    first_failure: First
    roles: list[RoleState]
    """the roles with their replicas"""
    log_dir: LogFolder
    ui_url: WebPage
    workspaces: Workspaces
    cfg: RunOptions
    command_line: str | None
    (
        "the command line that submitted it, with secrets masked; null if it was not submitted by a "
        "command; with … instead of values on engines where other users could read them: Kubernetes, and"
        " Docker on other machines"
    )
    app: AppData
    """the application"""


class Described(Details):
    """The output of `torchx describe`."""

    usage: OwnUsage


class ReportCommands(TypedDict):
    """Commands for an application."""

    again: str
    """the command that runs it again"""
    log: str
    """the command that prints its log"""


class ReportFailure(TypedDict):
    """The first failure with its last lines."""

    description: str
    """a sentence about the replica that failed first"""
    meaning: str | None
    """the usual cause of the signal"""
    rank: str
    """a sentence about the rank of torchrun that failed first; empty without one"""
    error_file: list[str]
    """the lines of the error file"""
    last_lines: list[str]
    """the last lines of the log"""
    log: str
    """the command that prints the whole log"""


class Report(Details):
    """The output of `torchx report --json`."""

    made_at: Time
    """the time of the report"""
    commands: ReportCommands
    """commands for the application"""
    failure: ReportFailure | None
    """the first failure"""
    usage: SampledUsage | None
    """the measurements with their samples; null if there are none"""
    usage_error: str | None
    """why the engine gives no measurements"""
    metrics: dict[str, list[list[float]]]
    (
        "the tracked numbers, by name: pairs of a time, in seconds since the epoch, or the number of a "
        "run of a sweep, and the value"
    )
    runs: list[list[str]]
    """the table of the runs of a sweep, its heads first; empty if none"""


class Ended(Identity):
    """The result of an application."""

    state: AppState
    msg: Reason
    ui_url: WebPage
    exit_code: int | None
    """the exit code of the command for it; null while it runs"""
    first_failure: First


class DryRun(TypedDict):
    """The output of `torchx run --dryrun -o json`."""

    scheduler: str | None
    """the scheduler"""
    cfg: RunOptions
    app: AppData | None
    """the application"""
    request: Any
    """the scheduler request; the format depends on the scheduler"""
    notes: list[str]
    """requested features that the scheduler does not support"""


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

    error: ErrorData | None
    """why its state cannot be read; the error of one alone is the whole output"""


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
    output: float | None
    """output in bytes per second"""
    last_line: str
    """the last line of its log"""


class TopApp(Identity):
    """An application in the output of `torchx top`."""

    state: AppState
    replicas: list[TopReplica]
    """the replicas"""


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
    run: RunNumber
    handle: RunHandle
    attempt: AttemptNumber
    max_attempts: int | None
    """the largest number of attempts"""
    host: str | None
    """the host on which it ran"""
    exit_code: ExitCode
    signal: Signal
    rank: int | None
    """the rank of torchrun that failed first"""
    msg: str
    """the reason, or the line of the output that names the cause; empty without one"""


class LastLine(TypedDict):
    """A last line of the log."""

    line: str
    """the text"""
    replica: str
    """the first replica that has printed it, as ROLE/ID"""
    replicas: int
    """the number of replicas that have printed it"""


class PeakUsage(TypedDict):
    """The largest measurements beside the request."""

    peak_memory: int | None
    """the most memory of one replica, in bytes"""
    requested_memory: int | None
    """the memory requested for it, in bytes"""
    largest: str | None
    """this replica, as ROLE/ID"""
    mean_cpu: float | None
    """mean CPU cores of a replica"""
    requested_cpu: float | None
    """the CPU cores requested for a replica"""
    mean_gpu: float | None
    """mean utilisation of the GPUs, 0 to 1"""
    peak_gpu_memory: int | None
    """the most GPU memory of one replica, in bytes"""


class DifferenceFromSuccess(TypedDict):
    """A difference from the last success; null for a part that an application does not have."""

    part: str
    """the part, such as `role trainer: args`"""
    before: str | None
    """its value in the application that succeeded"""
    now: str | None
    """its value in this application"""


class Explained(Identity):
    """The output of `torchx why`, at most 4,000 bytes; long texts are shortened."""

    name: AppName
    state: AppState
    replicas: dict[str, int]
    """the number of replicas in each state"""
    submitted_at: SubmittedAt
    started_at: StartedAt
    ended_at: EndedAt
    cause: CauseOfState
    """the cause of the state"""
    first_failure: ExplainedFailure | None
    """the replica that failed first"""
    last_output_at: Time | None
    """the time of the last output of a running application"""
    lines: list[LastLine]
    """the distinct last lines"""
    usage: PeakUsage | None
    """the measurements; null if there are none"""
    last_success: str | None
    """the last application of this name that succeeded before"""
    differences: list[DifferenceFromSuccess]
    """the differences from it"""
    more_differences: int
    """the number of further differences"""
    commands: list[str]
    """commands to try next"""


class Result(Ended, total=False):
    """The output of `torchx run --json`, when the command ends."""

    existed: bool
    """whether nothing was submitted, as the application existed; with --once"""
    runs: int
    """the number of runs of a sweep"""
    submitted: int
    """the number of runs of a sweep that were submitted now"""


class Line(TypedDict):
    """A line of a log, or a part of one."""

    role: str
    """the role that printed it"""
    replica: int
    """the replica that printed it"""
    attempt: int
    """the attempt that printed it"""
    stream: str
    """stdout or stderr; combined if the scheduler does not distinguish them"""
    time: Time | None
    """the time of the line"""
    line: str
    """the text"""
    partial: bool
    """true if the line is incomplete: the next object of the same replica and stream continues it"""


class LineSource(TypedDict):
    """A source of folded lines."""

    role: str
    """the role that printed it"""
    replica: int
    """the replica that printed it"""
    attempt: int
    """the attempt that printed it"""
    prefix: str
    """the ranks before the line, such as [rank3]:"""


class FoldedLine(TypedDict):
    """Equal lines of several replicas, with --fold."""

    replicas: list[LineSource]
    """the sources"""
    stream: str
    """the stream of the first of these lines"""
    time: Time | None
    """the time of the first of these lines"""
    line: str
    """the text"""
    partial: bool
    """true if the line is incomplete"""


class EventDetails(TypedDict, total=False):
    """Data of an event, by kind."""

    name: str
    """submitted: the name of the application"""
    state: str
    """ended: the state"""
    exit_code: int
    """ended: the exit code"""
    signal: str
    """ended: the name of the signal"""
    memory: int
    """ended, measured: the peak memory in bytes"""
    cpu: float
    """ended: the mean number of CPU cores"""
    reason: str
    """ended: the reason, if there is more than the exit code or the signal"""
    pid: int | None
    """started: the process id"""
    service: bool
    """started: true for a service, which is to become ready"""
    scope: str
    """retry: the part that is started again: replica, role or application"""
    number: int
    """retry: the number of the retry, from 1"""
    allowed: int
    """retry: the allowed number of retries"""
    run: int
    """notice, requeued: the number of the run; number and allowed count the requeues"""
    delay: float
    """retry: the seconds before it"""
    time: str
    """observed if the engine did not record the time; unknown if nothing observed it either"""


class Event(TypedDict):
    """An event."""

    time: Time
    """the time"""
    kind: str
    """the kind, such as submitted, started, retry, requeued, stalled or ended"""
    handle: str
    """the handle of the application"""
    app_id: str
    """the id that the scheduler gave"""
    role: str | None
    """the role; null for an event of the whole application"""
    replica: int | None
    """the replica; null for an event of the whole application"""
    attempt: int | None
    """the attempt; null for an event of the whole application"""
    message: str
    """one line"""
    details: EventDetails
    """further data"""


Kind = Literal["main", "child", "launcher"]


class StackFrame(TypedDict):
    """A frame of a stack."""

    function: str
    """the name of the function"""
    file: str
    """the path of its file"""
    line: int | None
    """the current line"""


class StackOfThread(TypedDict):
    """The Python stack of a thread."""

    name: str
    """the name of the thread"""
    active: bool
    """whether it seemed to run"""
    owns_gil: bool
    """whether it held the global interpreter lock"""
    wait: str
    """the system call in which it waits; empty if it does not wait, or it is unknown"""
    frames: list[StackFrame]
    """its frames, the innermost first"""


class StackOfProcess(TypedDict):
    """A process with the stacks of its threads."""

    role: RoleName
    replica: int
    """the number of its replica within the role, from 0"""
    attempt: int | None
    """the number of the attempt, from 1"""
    rank: int | None
    """the value of RANK in its environment"""
    kind: Kind
    """main: a rank or the program of a replica; child: a process of it; launcher: above it"""
    host: str
    """the host on which it runs"""
    pid: int
    """its process id, as its container sees it"""
    parent: int
    """that of its parent"""
    program: str
    """the name of the program"""
    state: str
    """running, sleeping, stopped, traced, or blocked in the kernel"""
    wait: str
    """the system call in which its first thread waits, or an empty string"""
    threads: list[StackOfThread]
    """the Python threads; empty for another program, or if unknown"""
    note: str
    """why there are no Python stacks, or an empty string"""


class StackGroup(TypedDict):
    """Processes with equal stacks, or with unknown ones."""

    kind: Kind
    """the kind of its processes"""
    count: int
    """the number of its processes"""
    of: int
    """the number of all processes of this kind"""
    unread: bool
    """whether the stacks are unknown, so that only states and system calls are equal"""
    ranks: list[int]
    """the ranks of its processes"""
    processes: list[int]
    """its processes, as positions in `processes`, from 0"""


class Stacks(TypedDict):
    """The stacks of an application."""

    handle: str
    """the handle: SCHEDULER://SESSION/APP_ID"""
    processes: list[StackOfProcess]
    """its processes, by role, replica and rank"""
    groups: list[StackGroup]
    """the groups of equal stacks, the rarest first"""
    notes: list[str]
    """replicas that could not be read, and why"""


class QueuedGpu(TypedDict):
    """A GPU of this machine."""

    gpu: str
    """its index, or the id of an instance of a divided GPU"""
    id: str
    """its id"""
    free: bool
    """whether nothing uses it"""
    app: str
    """the application that holds it, or an empty string"""
    user: str
    """the user of the holder; an empty string if it is free"""
    pid: int | None
    """the process that uses it, if torchx did not start it"""
    program: str
    """the program of that process, or an empty string"""
    since: str | None
    """the start of the holder, ISO 8601"""
    use: float | None
    """its utilisation, 0 to 1"""
    memory: int | None
    """bytes of its memory in use"""
    total: int | None
    """bytes of its memory"""


class QueuedApp(TypedDict):
    """A waiting application."""

    app_id: str
    """the application"""
    user: str
    """its user"""
    gpus: int
    """the number of GPUs that it needs"""
    cpus: int
    """the number of processors that it reserves"""
    memory: int
    """bytes of memory that it reserves"""
    priority: int
    """its priority; higher ones start first"""
    since: str
    """the time that determines its place, ISO 8601"""
    limit: float | None
    """its time limit in seconds"""
    held: bool
    """whether it is held"""
    own: bool
    """whether it is in this state home"""
    reason: str
    """why it waits"""


class QueuedHolder(TypedDict):
    """An application that holds CPUs or memory."""

    app: str
    """the application; empty if it is unknown"""
    user: str
    """its user"""
    cpus: int
    """the number of processors that it holds"""
    memory: int
    """bytes of memory that it holds"""
    since: str | None
    """the start of the holder, ISO 8601"""


class Queue(TypedDict):
    """The queue of this machine."""

    gpus: list[QueuedGpu]
    """its GPUs"""
    reserved: list[QueuedHolder]
    """the applications that hold CPUs or memory, if a job waits for them"""
    waiting: list[QueuedApp]
    """the waiting applications of all users, in their order"""


class Reordered(Identity):
    """An application in the output of `torchx queue first`, `hold` or `release`."""

    state: AppState
    changed: bool
    """false if it cannot be changed"""
    error: ErrorData | None
    """why it cannot be changed"""


class PrunedApp(Identity):
    """A removed application."""

    state: AppState
    ended_at: EndedAt
    bytes: int
    """the size of its files"""


class Cancelled(Identity):
    """An application in the output of `torchx cancel`."""

    state: State
    """the state when the command ends"""
    cancelled: bool
    """false if it had ended before, or cannot be cancelled"""
    error: ErrorData | None
    """why it cannot be cancelled"""


class Deleted(Identity):
    """An application in the output of `torchx delete`."""

    state: State
    """the last state of the application"""
    deleted: bool
    """false if it cannot be deleted"""
    error: ErrorData | None
    """why it cannot be deleted"""


class Leftover(TypedDict):
    """A leftover file or image."""

    path: str
    """the path or name"""
    bytes: int
    """the size"""


class PruneResult(TypedDict):
    """The output of `torchx prune`."""

    dryrun: bool
    """whether this was a dry-run"""
    applications: list[PrunedApp]
    """the removed applications"""
    leftovers: list[Leftover]
    """the removed leftovers"""
    freed: int
    """total bytes"""


class Compared(Identity):
    """One of two compared applications."""

    name: AppName
    state: AppState
    submitted_at: SubmittedAt


class DiffValue(TypedDict):
    """A value that two applications do not share."""

    name: str
    """the name of the value"""
    a: str | None
    """the value of the first application; null without one"""
    b: str | None
    """the value of the second application; null without one"""
    measured: bool
    """whether it is a measurement, which differs from run to run"""


class DiffSection(TypedDict):
    """One part of a comparison."""

    name: str
    """the part: arguments, program, run options, environment, ..."""
    equal: bool | None
    """whether all values are equal, apart from measurements; null if not compared"""
    missing: str | None
    """why it is not compared"""
    differences: list[DiffValue]
    """the values that differ"""
    notes: list[str]
    """values that could not be compared, one sentence each"""


class SourceDiff(TypedDict):
    """The differences of the source files."""

    text: str
    """a unified diff"""
    missing: list[str]
    """the parts that could not be compared, one sentence each"""


class Comparison(TypedDict):
    """The comparison of two applications."""

    a: Compared
    """the first application"""
    b: Compared
    """the second application"""
    equal: bool
    """whether they are equal, apart from measurements"""
    sections: list[DiffSection]
    """the parts of the comparison"""
    source_diff: SourceDiff | None
    """the differences of the source files; null without --source"""


class RunResult(TypedDict):
    """The result of a run in the output of `torchx results`."""

    run: int
    """the number of the run, from 1"""
    handle: str | None
    """its application; null before it is started"""
    state: State
    """its state"""
    parameters: dict[str, Any]
    """its parameters: numbers and strings"""
    metrics: dict[str, Any]
    """its metrics, from trackers and --metric: numbers and strings"""
    started_at: Time | None
    """its start"""
    ended_at: Time | None
    """its end"""
    duration: float | None
    """seconds from its start to its end"""
    exit_code: int | None
    """0, or the code of the replica that failed first (128 + N for a signal)"""
    msg: Reason
    peak_memory: int | None
    """the most memory that one replica used, bytes"""
    cpu: float | None
    """CPU cores that a replica used on average"""
    gpu: float | None
    """utilisation of the GPUs of a replica on average, from 0 to 1"""
