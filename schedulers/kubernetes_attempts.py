"""One pod, told as an attempt of a replica: what it does, why it waits, how it ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from torchx.specs.status import AppState, AttemptStatus

Object = dict[str, Any]
"""An object of the API as plain data."""

FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
INDEX = "batch.kubernetes.io/job-completion-index"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
ENDED = "it was asked to end"
_LONGEST = 300
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z", re.ASCII)
_NO_IMAGE = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
)
_NEVER_RAN = ("ContainerStatusUnknown", "StartError", "ContainerCannotRun")
# what the scheduler says of its further attempts to make room, which helps nobody
_PREEMPTION = re.compile(r",? (no new claims to deallocate, )?preemption: .*| no new claims to deallocate.*")
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by something more important",
    "EvictionByEvictionAPI": "evicted from its node",
    "DeletionByTaintManager": "evicted: its node got a taint that it does not bear",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "evicted by its node",
}


def label(thing: Object, key: str) -> str:
    """Returns a label of an object, empty when it has none."""
    return str((thing.get("metadata", {}).get("labels") or {}).get(key, ""))


def annotation(thing: Object, key: str) -> str:
    """Returns an annotation of an object, empty when it has none."""
    return str((thing.get("metadata", {}).get("annotations") or {}).get(key, ""))


def time_of(text: Any) -> datetime | None:
    """Reads a time of the API; None for one that stands for none.

    >>> time_of("2026-11-21T01:11:33.938975097Z").microsecond
    938975
    >>> time_of("1970-01-01T00:00:00Z") is None
    True
    """
    match = _TIME.fullmatch(str(text or ""))
    if match is None or match[1].startswith(("1970-01-01", "0001-")):
        return None
    micro = (match[2] or "")[:6].ljust(6, "0")
    try:
        return datetime.fromisoformat(f"{match[1]}.{micro}+00:00").astimezone()
    except (ValueError, OverflowError):  # the 30th of February, or a year that no clock shows
        return None


def container_of(pod: Object, role: str = "main") -> Mapping[str, Any]:
    """Returns the status of the container that runs the role; empty before there is one."""
    statuses = pod.get("status", {}).get("containerStatuses") or []
    named = next((status for status in statuses if status.get("name") == role), None)
    return named if named is not None else (statuses[0] if len(statuses) == 1 else {})


def live(pod: Object) -> bool:
    """Tells whether something of a pod may still run."""
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    return "terminated" not in (container_of(pod).get("state") or {}) or bool(_others_run(pod))


def _others_run(pod: Object) -> list[Any]:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return [s for s in statuses if "running" in (s.get("state") or {})]


def deleted(pod: Object) -> bool:
    """Tells whether somebody has asked for the pod's end."""
    return bool(pod.get("metadata", {}).get("deletionTimestamp"))


def disruption(pod: Object) -> str:
    """Returns why the cluster took the pod from its node, in words; empty when it did not."""
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            reason = str(condition.get("reason", ""))
            told = _DISRUPTIONS.get(reason, f"taken from its node: {reason}")
            detail = short(condition.get("message"))
            return (
                f"{told} ({detail})"
                if detail and reason in ("TerminationByKubelet", "DeletionByTaintManager")
                else told
            )
    return ""


def attempts_of(pod: Object, number: int, events: Iterable[Object] = ()) -> list[AttemptStatus]:
    """Returns the attempts that a pod stands for: one, and one more for each restart of its container.

    Args:
        pod: the pod.
        number: the number of its first attempt, from 1.
        events: what the cluster told of it.
    """
    status = container_of(pod)
    restarts = int(status.get("restartCount") or 0)
    state = status.get("state") or {}
    found = []
    last = (status.get("lastState") or {}).get("terminated")
    if last and restarts:
        found.append(_ended(pod, last, number + restarts - 1))
    if last and "waiting" in state and restarts:
        return [*found, AttemptStatus(number + restarts, AppState.PENDING, msg=waits_for(pod, events))]
    return [*found, _current(pod, state, number + restarts, events)]


def _current(pod: Object, state: Mapping[str, Any], number: int, events: Iterable[Object]) -> AttemptStatus:
    status = pod.get("status", {})
    if "terminated" in state:
        return _ended(pod, state["terminated"], number)
    if status.get("phase") in ("Failed", "Succeeded"):
        return _never_seen(pod, number)
    if "running" in state:
        msg = "it is being ended" if deleted(pod) else ""
        return AttemptStatus(
            number, AppState.RUNNING, started_at=time_of(state["running"].get("startedAt")), msg=msg
        )
    return AttemptStatus(number, AppState.PENDING, msg=waits_for(pod, events))


def _ended(pod: Object, told: Mapping[str, Any], number: int) -> AttemptStatus:
    code = int(told.get("exitCode") or 0)
    named = signal_of(code) if told.get("reason") not in _NEVER_RAN else None
    stopped = deleted(pod) and not disruption(pod)
    state = AppState.SUCCEEDED if code == 0 else AppState.CANCELLED if stopped else AppState.FAILED
    started, ended = time_of(told.get("startedAt")), time_of(told.get("finishedAt"))
    never = told.get("reason") in _NEVER_RAN
    return AttemptStatus(
        number,
        state,
        # the code of one that never ran is not its own
        exit_code=None if named or never else code,
        signal=named,
        started_at=None if never else started,
        ended_at=ended or _ended_at(pod),
        msg=ENDED if state is AppState.CANCELLED else _why(pod, told) if code else "",
    )


def _never_seen(pod: Object, number: int) -> AttemptStatus:
    """Tells of a pod that ended without a word about its container: evicted before it ran, for one."""
    status = pod.get("status", {})
    good = status.get("phase") == "Succeeded"
    stopped = deleted(pod) and not disruption(pod) and not status.get("reason")
    state = AppState.SUCCEEDED if good else AppState.CANCELLED if stopped else AppState.FAILED
    return AttemptStatus(number, state, ended_at=_ended_at(pod), msg="" if good or stopped else _why(pod, {}))


def _ended_at(pod: Object) -> datetime | None:
    times = [time_of(c.get("lastTransitionTime")) for c in pod.get("status", {}).get("conditions") or []]
    return max((at for at in times if at is not None), default=None)


def _why(pod: Object, told: Mapping[str, Any]) -> str:
    """Returns why an attempt failed, where it is more than its exit code."""
    status = pod.get("status", {})
    reason = str(told.get("reason") or "")
    taken = disruption(pod)
    if status.get("reason") == "Evicted":
        return f"evicted by its node: {short(status.get('message'))}"
    if taken:
        return taken
    if status.get("reason") == "DeadlineExceeded":
        return "its time was up"
    if reason == "OOMKilled":
        limit = _memory_limit(pod)
        return "out of memory" + (f": its limit is {limit}" if limit else "")
    if reason in ("StartError", "ContainerCannotRun"):
        return f"it could not be started: {_start_error(str(told.get('message') or ''))}"
    if reason == "ContainerStatusUnknown":
        return "its node has lost it"
    if status.get("reason"):
        return f"{status['reason']}: {short(status.get('message'))}".rstrip(": ")
    return "" if told else _init_failure(pod)


def _start_error(message: str) -> str:
    """Returns the end of the runtime's chain of causes, which is what a person can act on.

    >>> _start_error('OCI runtime create failed: exec: "nope": executable file not found in $PATH: unknown')
    '"nope": executable file not found in $PATH'
    """
    found = re.search(r"exec: (\".*)", message, re.DOTALL)
    return short((found[1] if found else message).removesuffix(": unknown"))


def _init_failure(pod: Object) -> str:
    for status in pod.get("status", {}).get("initContainerStatuses") or []:
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            more = short(ended.get("message"))
            return f"its init container `{status.get('name')}` ended with exit {ended['exitCode']}" + (
                f": {more}" if more else ""
            )
    return ""


def _memory_limit(pod: Object) -> str:
    for container in pod.get("spec", {}).get("containers") or []:
        limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        if limit:
            return str(limit)
    return ""


def waits_for(pod: Object, events: Iterable[Object] = ()) -> str:
    """Returns what a pod that does not run yet waits for, in one line."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            told = short(_PREEMPTION.sub("", str(condition.get("message") or ""))).rstrip(". ")
            gated = condition.get("reason") == "SchedulingGated"
            return f"held back from the nodes: {told}" if gated else f"no node can take it: {told}"
    waiting = container_of(pod).get("state", {}).get("waiting") or {}
    for init in status.get("initContainerStatuses") or []:
        state = init.get("state") or {}
        held = state.get("waiting") or {}
        if held.get("message") or held.get("reason") in _NO_IMAGE:
            waiting = held
        elif "running" in state and not init.get("started"):
            return f"its init container `{init.get('name')}` is running"
    reason, message = str(waiting.get("reason") or ""), short(waiting.get("message"))
    if reason in _NO_IMAGE:
        return f"its image cannot be had: {_pull_error(message) or reason}"
    if reason == "CrashLoopBackOff":
        return "it failed, and waits to be started again"
    if message:
        return f"it cannot be started: {message}"
    trouble = _trouble(events)
    if trouble:
        return trouble
    if reason or pod.get("spec", {}).get("nodeName"):
        return "its node pulls the image and makes the container"
    return "it waits for a node"


def _trouble(events: Iterable[Object]) -> str:
    told = [e for e in events if e.get("type") == "Warning" and e.get("reason") != "FailedScheduling"]
    if not told:
        return ""
    newest = max(told, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
    reason = "" if newest.get("reason") in ("Failed", "FailedCreate") else f"{newest.get('reason')}: "
    return reason + short(newest.get("message"))


def _pull_error(message: str) -> str:
    """Returns which image and why, without what the back-off says before it."""
    found = re.search(
        r"failed to (?:pull|resolve) (?:and unpack )?(?:image|reference) \"([^\"]+)\".*?: ([^:]+)$", message
    )
    return f"{found[1]}: {found[2]}" if found else message.removeprefix("Back-off pulling image ")


def signal_of(code: int) -> str | None:
    """Returns the signal that an exit code of a container stands for.

    >>> signal_of(137), signal_of(3), signal_of(255)
    ('SIGKILL', None, None)
    """
    if not 128 < code <= 128 + 64:
        return None
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return None


def short(text: Any) -> str:
    """Returns a text as one line of bearable length.

    >>> short(" a\\n  b ")
    'a b'
    """
    line = " ".join(str(text or "").split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
