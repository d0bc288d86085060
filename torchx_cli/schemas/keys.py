"""The keys that several types of output share, each with its description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
