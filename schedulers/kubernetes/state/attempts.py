"""Converts a pod to attempts of a replica: state, reason for waiting, result."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from torchx.end_causes import cause_in
from torchx.exit_codes import signal_of
from torchx.json_limits import Data
from torchx.printable import joined
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    conditions_of,
    count_of,
    deleted,
    short,
    text_at,
    time_of,
    value_at,
)
from torchx.schedulers.kubernetes.names import ENDED as ENDED_BY_US
from torchx.schedulers.kubernetes.names import LATE, NOTICE, READY
from torchx.schedulers.kubernetes.state.taken import cause_of, disruption, taken_away
from torchx.specs.status import AppState, AttemptStatus, EndCause, Reason

FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
ENDED = "it was ended"
_NO_IMAGE = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
)
_SIGNALLED = (128 + 9, 128 + 15)
_NEVER_RAN = ("ContainerStatusUnknown", "StartError", "ContainerCannotRun")
# the scheduler's remarks on preemption, which are of no use to users
_PREEMPTION = r",? (no new claims to deallocate, )?preemption: .*| no new claims to deallocate.*"


def container_of(pod: Object, role: str = "main") -> Data:
    """Returns the status of the role's container; empty before it exists."""
    statuses = value_at(pod, "status", "containerStatuses") or []
    only = statuses[0] if len(statuses) == 1 else {}
    return next((status for status in statuses if status.get("name") == role), only)


def live(pod: Object) -> bool:
    """Returns True if a container of a pod may still run."""
    if is_over(pod):
        return False
    statuses = value_at(pod, "status", "containerStatuses") or []
    own = container_of(pod).get("state") or {}
    return "terminated" not in own or any("running" in (status.get("state") or {}) for status in statuses)


def is_over(pod: Object) -> bool:
    """Returns True if a pod has ended."""
    return value_at(pod, "status", "phase") in ("Succeeded", "Failed")


def ended_by_us(pod: Object) -> bool:
    """Returns True if torchx ended the pod by a deadline, which keeps pod and log."""
    return bool(annotation(pod, ENDED_BY_US))


def needs_end(pod: Object) -> bool:
    """Returns True if a container of a pod may still run, and its end was not requested."""
    return live(pod) and not deleted(pod) and not ended_by_us(pod)


def ended_container(pod: Object) -> Data:
    """Returns the end of the role's container; empty before it."""
    return value_at(container_of(pod), "state", "terminated") or {}


def finished_after_notice(pod: Object) -> bool:
    """Returns True if the program of a pod has ended with 0 after the notice of the time limit.

    Its node may be late: the time of the end is not considered.
    """
    ended = ended_container(pod)
    if ended_by_us(pod) or annotation(pod, LATE) or not count_of(annotation(pod, NOTICE)):
        return False
    return ended.get("exitCode") == 0 and value_at(pod, "status", "reason") == "DeadlineExceeded"


def ended_by_itself(pod: Object) -> bool:
    """Returns True if a pod that torchx ended had failed before, with a code of its own."""
    ended = ended_container(pod)
    at, marked = time_of(ended.get("finishedAt")), time_of(annotation(pod, ENDED_BY_US))
    own = ended.get("exitCode") not in (None, 0, *_SIGNALLED)
    return own and at is not None and marked is not None and at <= marked


def attempts_of(
    pod: Object, number: int, events: Iterable[Object] = (), *, by_hand: bool = False, now: float = 0.0
) -> list[AttemptStatus]:
    """Returns the attempts of a pod: the last run of its container, and the one before a restart.

    Args:
        pod: the pod.
        number: the number of its first attempt, from 1.
        events: its warnings.
        by_hand: a deletion is by hand: neither torchx nor the Job has a reason for it.
        now: seconds since the epoch by the clock of the cluster, for notices of running programs.
    """
    status = container_of(pod)
    restarts = int(status.get("restartCount") or 0)
    state = status.get("state") or {}
    attempts = []
    last = value_at(status, "lastState", "terminated") or {}
    if "exitCode" in last and restarts:
        attempts.append(_ended(pod, last, number + restarts - 1, by_hand))
    if last and "waiting" in state and restarts:
        return [*attempts, _pending(number + restarts, waits_for(pod, events))]
    return [*attempts, _current(pod, state, number + restarts, events, by_hand, now)]


def _current(
    pod: Object, state: Data, number: int, events: Iterable[Object], by_hand: bool, now: float
) -> AttemptStatus:
    status = pod.get("status", {})
    ended = state.get("terminated") or {}
    if "exitCode" in ended:
        return _ended(pod, ended, number, by_hand)
    if status.get("phase") in ("Failed", "Succeeded"):
        return _never_seen(pod, number, by_hand)
    taken = taken_away(pod, by_hand=by_hand)
    if "running" in state:
        ending = taken or deleted(pod) or ended_by_us(pod) or annotation(pod, LATE)
        return AttemptStatus(
            number,
            AppState.RUNNING,
            started_at=time_of(state["running"].get("startedAt")),
            msg=joined(taken, "it is being ended" if ending else ""),
            ready_at=time_of(annotation(pod, READY)),
            noticed_at=_noticed_at(pod, datetime.fromtimestamp(now, timezone.utc)),
        )
    if taken:
        return _pending(number, Reason(taken))
    return _pending(number, waits_for(pod, events))


def _pending(number: int, why: Reason) -> AttemptStatus:
    return AttemptStatus(number, AppState.PENDING, msg=why.text, cause=why.cause)


def _stopped(pod: Object, by_hand: bool) -> bool:
    """Returns True if a pod was ended by torchx or its Job, not by itself or a disruption."""
    if ended_by_us(pod):
        return not ended_by_itself(pod)
    return deleted(pod) and not by_hand and not disruption(pod)


def _ended(pod: Object, terminated: Data, number: int, by_hand: bool) -> AttemptStatus:
    code = int(terminated["exitCode"])
    never = terminated.get("reason") in _NEVER_RAN
    named = None if never else signal_of(code)
    stopped = _stopped(pod, by_hand)
    # at its deadline a pod fails, regardless of the exit code
    status = pod.get("status", {})
    overdue = status.get("phase") == "Failed" or status.get("reason") == "DeadlineExceeded"
    good = code == 0 and (not overdue or finished_after_notice(pod))
    why = _why(pod, terminated, by_hand)
    if good or stopped:
        why = Reason(disruption(pod) if good else ENDED)
    return AttemptStatus(
        number,
        _end_state(good, stopped),
        # without a run, the code is not that of the program
        exit_code=None if named or never else code,
        signal=named,
        started_at=None if never else time_of(terminated.get("startedAt")),
        ended_at=time_of(terminated.get("finishedAt")) or _ended_at(pod),
        msg=why.text,
        ready_at=time_of(annotation(pod, READY)),
        cause=why.cause,
        noticed_at=_noticed_at(pod, time_of(terminated.get("finishedAt"))),
    )


def _noticed_at(pod: Object, until: datetime | None) -> datetime | None:
    """Returns when the program of a pod was notified of its time limit; None if it was not.

    Args:
        pod: the pod.
        until: the end of its program, if known, or the current time.
    """
    deadline = value_at(pod, "spec", "activeDeadlineSeconds")
    begin = time_of(value_at(pod, "status", "startTime"))
    if not (count_of(annotation(pod, NOTICE)) and deadline and begin) or ended_by_us(pod):
        return None
    at = begin + timedelta(seconds=int(deadline))
    if until and until >= at:
        return at
    return None


def _never_seen(pod: Object, number: int, by_hand: bool) -> AttemptStatus:
    """Returns the attempt of a pod without a container status, such as one evicted before its start."""
    status = pod.get("status", {})
    good = status.get("phase") == "Succeeded"
    stopped = _stopped(pod, by_hand) and (ended_by_us(pod) or not status.get("reason"))
    why = _why(pod, {}, by_hand)
    if good or stopped:
        why = Reason("" if good else ENDED)
    state = _end_state(good, stopped)
    return AttemptStatus(number, state, ended_at=_ended_at(pod), msg=why.text, cause=why.cause)


def _end_state(good: bool, stopped: bool) -> AppState:
    if good:
        return AppState.SUCCEEDED
    if stopped:
        return AppState.CANCELLED
    return AppState.FAILED


def _ended_at(pod: Object) -> datetime | None:
    times = [time_of(c.get("lastTransitionTime")) for c in conditions_of(pod).values()]
    return max((at for at in times if at is not None), default=None)


def _why(pod: Object, terminated: Data, by_hand: bool) -> Reason:
    """Returns why an attempt ended, if there is more than its exit code."""
    status = pod.get("status", {})
    reason = text_at(terminated, "reason")
    if taken := taken_away(pod, by_hand=by_hand):
        return Reason(taken, cause_of(pod))
    if late := annotation(pod, LATE):
        return Reason(short(late), EndCause.NOT_READY)
    if status.get("reason") == "DeadlineExceeded":
        return Reason("time limit reached", EndCause.TIME_LIMIT)
    if reason == "OOMKilled":
        limit = _memory_limit(pod)
        text = "out of memory" + (f": its limit is {limit}" if limit else "")
        return Reason(text, EndCause.OUT_OF_MEMORY)
    if reason in ("StartError", "ContainerCannotRun"):
        error = _start_error(str(terminated.get("message") or ""))
        return Reason(f"it could not be started: {error}", cause_in(error) or EndCause.NOT_STARTED)
    if reason == "ContainerStatusUnknown":
        return Reason("it was lost with its node", EndCause.NODE_LOST)
    if status.get("reason"):
        return Reason(f"{status['reason']}: {short(status.get('message'))}".rstrip(": "))
    if terminated:
        return Reason()
    return _init_failure(pod)


def _start_error(message: str) -> str:
    """Returns the last cause in the runtime's error message.

    >>> _start_error('OCI runtime create failed: exec: "nope": executable file not found in $PATH: unknown')
    '"nope": executable file not found in $PATH'
    """
    match = re.search(r"exec: (\".*)", message, re.DOTALL)
    return short((match[1] if match else message).removesuffix(": unknown"))


def _init_failure(pod: Object) -> Reason:
    for status in value_at(pod, "status", "initContainerStatuses") or []:
        ended = value_at(status, "state", "terminated") or {}
        if ended.get("exitCode"):
            more = short(ended.get("message"))
            why = f"its init container `{status.get('name')}` ended with exit {ended['exitCode']}"
            if more:
                why = f"{why}: {more}"
            return Reason(why, EndCause.NOT_STARTED)
    return Reason()


def _memory_limit(pod: Object) -> str:
    for container in value_at(pod, "spec", "containers") or []:
        limit = value_at(container, "resources", "limits", "memory")
        if limit:
            return str(limit)
    return ""


def waits_for(pod: Object, events: Iterable[Object] = ()) -> Reason:
    """Returns the reason why a pod is not running yet, in one line."""
    scheduled = conditions_of(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False":
        detail = short(re.sub(_PREEMPTION, "", text_at(scheduled, "message"))).rstrip(". ")
        gated = scheduled.get("reason") == "SchedulingGated"
        if gated:
            return Reason(f"scheduling is gated: {detail}")
        return Reason(f"no node can run it: {detail}")
    waiting, init = _waiting(pod)
    if init:
        return Reason(f"its init container `{init}` is running")
    reason, message = text_at(waiting, "reason"), short(waiting.get("message"))
    if reason in _NO_IMAGE:
        return Reason(f"its image cannot be pulled: {_pull_error(message) or reason}", EndCause.IMAGE)
    if reason == "CrashLoopBackOff":
        return Reason("it failed, and waits for its restart")
    if message:
        return Reason(f"it cannot be started: {message}", cause_in(message))
    if trouble := _trouble(events):
        return Reason(trouble, cause_in(trouble))
    if reason or value_at(pod, "spec", "nodeName"):
        return Reason("its node pulls the image and creates the container")
    return Reason("it waits for a node")


def _waiting(pod: Object) -> tuple[Data, str]:
    """Returns why a container of a pod waits, as its node reports it, and the init container that runs."""
    waiting = value_at(container_of(pod), "state", "waiting") or {}
    for init in value_at(pod, "status", "initContainerStatuses") or []:
        state = init.get("state") or {}
        held = state.get("waiting") or {}
        if held.get("message") or held.get("reason") in _NO_IMAGE:
            waiting = held
        elif "running" in state and not init.get("started"):
            return {}, f"{init.get('name')}"
    return waiting, ""


def _trouble(events: Iterable[Object]) -> str:
    warnings = [e for e in events if e.get("type") == "Warning" and e.get("reason") != "FailedScheduling"]
    if not warnings:
        return ""
    newest = max(warnings, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
    if newest.get("reason") in ("Failed", "FailedCreate"):
        reason = ""
    else:
        reason = f"{newest.get('reason')}: "
    return reason + short(newest.get("message"))


def _pull_error(message: str) -> str:
    """Returns the image and the error, without the prefix of the back-off message."""
    match = re.search(
        r"failed to (?:pull|resolve) (?:and unpack )?(?:image|reference) \"([^\"]+)\".*?: ([^:]+)$", message
    )
    if match:
        return f"{match[1]}: {match[2]}"
    return message.removeprefix("Back-off pulling image ")
