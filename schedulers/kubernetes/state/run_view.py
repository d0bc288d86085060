"""One run of a Job with many, as the Job and the pods of an application with one replica."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torchx.json_limits import MOST_REPLICAS
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    ended_indexes,
    indexes,
    label,
    owned_pods,
    text_at,
    true_conditions,
    value_at,
)
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.names import (
    CANCELLED,
    CANCELLED_CODE,
    CANCELLED_RUNS,
    CANCELLED_RUNS_AT,
    DELETED_RUNS,
    DISRUPTED,
    JOB_COMPLETION_INDEX,
    RUNS,
)
from torchx.schedulers.kubernetes.state.attempts import ended_by_us, ended_container, live

_ENDS = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")


def has_runs(main: Object) -> bool:
    """Returns True if the indexes of a Job are the runs of a sweep."""
    return bool(annotation(main, RUNS))


def count_of_runs(main: Object) -> int:
    """Returns the number of indexes of a Job."""
    return min(int(value_at(main, "spec", "completions") or 0), MOST_REPLICAS)


def has_index(main: Object, index: int) -> bool:
    """Returns True if a Job has a run that was not deleted."""
    return index < count_of_runs(main) and index not in indexes(annotation(main, DELETED_RUNS))


def index_of(pod: Object) -> str:
    """Returns the index of a pod in its Job."""
    return annotation(pod, JOB_COMPLETION_INDEX) or label(pod, JOB_COMPLETION_INDEX)


def is_cancelled(main: Object, index: int) -> bool:
    """Returns True if a run was cancelled, by itself or with all others."""
    return bool(annotation(main, CANCELLED)) or index in indexes(annotation(main, CANCELLED_RUNS))


def kind_of(main: Object, index: int) -> tuple[bool, ...]:
    """Returns the facts on which the status of a run without a pod depends."""
    noted = any(key.startswith(f"{DISRUPTED}{index}-") for key in main["metadata"]["annotations"])
    return (*(index in ended for ended in ended_indexes(main)), is_cancelled(main, index), noted)


def run_facts(job: Facts, run: int) -> Facts:
    """Returns a run of a sweep as an application with one replica.

    Args:
        job: the Job with all runs, and at least the pods of this one, oldest first.
        run: the index of the run.
    """
    main, pods = run_view(job.mains[0], run, owned_pods(job.mains, job.pods))
    return replace(job, name=f"{job.name}.{run}", mains=[main], jobs=[main], pods=pods, run=run)


def run_view(main: Object, index: int, pods: Iterable[Object]) -> tuple[Object, list[Object]]:
    """Returns the Job and the pods of a run, as if it were an application.

    Args:
        main: the Job with all runs; unchanged.
        index: the index of the run.
        pods: its pods, oldest first; those of other runs are left out.
    """
    completed, failed = ended_indexes(main)
    begun, cancelled = _begun(main, index, pods)
    newest = begun[-1] if begun else None
    running = any(live(pod) for pod in begun)
    whole = true_conditions(main).get("Failed") or true_conditions(main).get("Complete") or {}
    at = _ended_at(newest, whole)
    own: Object = {
        "conditions": _conditions(main, index, whole, at, suspended=cancelled and not running),
        "completedIndexes": "0" if index in completed else "",
        "failedIndexes": "0" if index in failed else "",
        "active": int(running),
    }
    if newest is not None:
        own |= {"startTime": text_at(begun[0], "status", "startTime")}
        own |= {"ready": int(running and bool(value_at(newest, "status", "phase") == "Running"))}
    notes = _annotations(main, index)
    if cancelled:
        notes[CANCELLED] = annotation(main, CANCELLED) or at or annotation(main, CANCELLED_RUNS_AT)
    job = {
        **main,
        "metadata": {**main["metadata"], "annotations": notes},
        "spec": {**main["spec"], "completions": 1, "parallelism": 1},
        "status": own,
    }
    return job, [_as_replica_0(pod) for pod in begun]


def _begun(main: Object, index: int, pods: Iterable[Object]) -> tuple[list[Object], bool]:
    """Returns the pods of a run that have started its program, and whether the run was cancelled."""
    completed, failed = ended_indexes(main)
    own = [pod for pod in pods if index_of(pod) == str(index)]
    if index in completed or not is_cancelled(main, index):
        return own, False
    begun = [pod for pod in own if not _ends_immediately(main, pod)]
    had_failed = index in failed and begun and len(begun) == len(own) and not ended_by_us(begun[-1])
    return begun, not had_failed


def _conditions(
    main: Object, index: int, whole: Mapping[str, Any], at: str, *, suspended: bool
) -> list[Object]:
    """Returns the conditions of a run.

    Args:
        main: the Job with all runs.
        index: the index of the run.
        whole: the condition of the end of the Job; empty before it.
        at: the time of the end of the run; empty if unknown.
        suspended: the run was cancelled, and no pod runs.
    """
    completed, failed = ended_indexes(main)
    known = value_at(main, "status", "conditions") or []
    conditions = [each for each in known if each.get("type") not in _ENDS]
    ended: Object = {"status": "True", **({"lastTransitionTime": at} if at else {})}
    if index in completed:
        conditions.append({**ended, "type": "Complete", "reason": "CompletionsReached"})
    elif index in failed:
        conditions.append({**ended, "type": "Failed", "reason": "FailedIndexes"})
    elif whole.get("type") == "Failed":
        conditions.append({**whole})
    elif suspended and not any(each.get("type") == "Suspended" for each in conditions):
        conditions.append({"type": "Suspended", "status": "True", "reason": "JobSuspended"})
    return conditions


def _ends_immediately(main: Object, pod: Object) -> bool:
    """Returns True if a pod of a cancelled run was started after the cancellation, and only reads that."""
    at = annotation(main, CANCELLED) or annotation(main, CANCELLED_RUNS_AT)
    later = bool(at) and text_at(pod, "metadata", "creationTimestamp") > at
    return ended_container(pod).get("exitCode") == CANCELLED_CODE or (
        later and live(pod) and not ended_by_us(pod)
    )


def _annotations(main: Object, index: int) -> dict[str, str]:
    """Returns the annotations of a Job for a run: the notes are those on its own pods, as of index 0."""
    result: dict[str, str] = {}
    for key, text in main["metadata"]["annotations"].items():
        number, dash, rest = key.removeprefix(DISRUPTED).partition("-")
        if not key.startswith(DISRUPTED):
            result.update({key: text} if key != CANCELLED else {})
        elif number == str(index):
            result[f"{DISRUPTED}0{dash}{rest}"] = text
    return result


def _as_replica_0(pod: Object) -> Object:
    metadata = pod["metadata"]
    changed = {
        key: {
            name: value for name, value in (metadata.get(key) or {}).items() if name != JOB_COMPLETION_INDEX
        }
        for key in ("labels", "annotations")
    }
    changed["annotations"][JOB_COMPLETION_INDEX] = "0"
    return {**pod, "metadata": {**metadata, **changed}}


def _ended_at(pod: Object | None, whole: Mapping[str, Any]) -> str:
    """Returns the end of a pod, or else that of its Job."""
    at = None
    if pod is not None:
        at = ended_container(pod).get("finishedAt")
    return str(at or whole.get("lastTransitionTime") or "")
