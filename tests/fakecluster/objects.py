"""Jobs and pods of the fake cluster: how they are made, what they are called, which rules apply to them."""

from __future__ import annotations

import uuid

from fakecluster.store import Object, Refused, copied

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
TRACKED = "batch.kubernetes.io/job-tracking"
"""The finalizer of the pods of jobs: one that is deleted stays until its job has counted it."""


def phase(pod: Object) -> str:
    return str(pod["status"]["phase"])


def index(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][INDEX])


def exit_code(pod: Object) -> int:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return int((statuses[0].get("state") or {}).get("terminated", {}).get("exitCode", 1))


def ready(pod: Object) -> bool:
    """Returns True unless a condition of a pod says that it is not ready."""
    conditions = pod["status"].get("conditions") or []
    return not any(c["type"] == "Ready" and c["status"] == "False" for c in conditions)


def indexes(job: Object, key: str) -> set[int]:
    return {int(each) for each in str((job.get("status") or {}).get(key) or "").split(",") if each}


def disrupted(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in conditions)


def rules_of(spec: Object) -> list[Object]:
    return (spec.get("podFailurePolicy") or {}).get("rules") or []


def ignored(job: Object, pod: Object) -> bool:
    """Returns True if a rule of a job has the end of a pod count for nothing."""
    return any(r["action"] == "Ignore" and "onPodConditions" in r for r in rules_of(job["spec"])) and (
        disrupted(pod)
    )


def failed_by_rule(spec: Object, bad: list[Object]) -> str:
    """Returns the message of a rule by which a pod has failed its job; empty when there is none."""
    for number, rule in enumerate(rules_of(spec)):
        for pod in bad:
            code = exit_code(pod)
            where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            codes = rule.get("onExitCodes")
            if rule["action"] == "FailJob" and codes and code not in codes["values"]:
                return (
                    f"Container main for pod {where} failed with exit code {code} "
                    f"matching FailJob rule at index {number}"
                )
            if rule["action"] == "FailJob" and not codes and disrupted(pod):
                kind = "condition DisruptionTarget matching FailJob rule"
                return f"Pod {where} has {kind} at index {number}"
    return ""


def failed_indexes(spec: Object, pods: list[Object]) -> set[int]:
    """Returns the indexes that a rule of a job has fail without another attempt."""
    found = set()
    for pod in pods:
        if phase(pod) != "Failed" or pod["metadata"].get("deletionTimestamp"):
            continue
        for rule in rules_of(spec):
            codes = rule.get("onExitCodes") or {"operator": "In", "values": []}
            within = exit_code(pod) in codes["values"]
            if rule["action"] == "FailIndex" and within is (codes["operator"] == "In"):
                found.add(index(pod))
    return found


def owned(thing: Object, owner: Object) -> bool:
    return any(o["uid"] == owner["metadata"]["uid"] for o in thing["metadata"].get("ownerReferences") or [])


def ended(thing: Object) -> bool:
    conditions = (thing.get("status") or {}).get("conditions") or []
    return any(c["type"] in ("Complete", "Completed", "Failed") and c["status"] == "True" for c in conditions)


def pod_of(job: Object, number: int, failures: int, spared: int = 0) -> Object:
    """Returns the pod of an index of a job."""
    template = copied(job["spec"]["template"])
    metadata = template.setdefault("metadata", {})
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    metadata["name"] = f"{name}-{number}-{uuid.uuid4().hex[:5]}"
    labels = {
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        INDEX: str(number),
    }
    metadata.setdefault("labels", {}).update(labels)
    notes = metadata.setdefault("annotations", {})
    notes[INDEX] = str(number)
    if job["spec"].get("backoffLimitPerIndex") is not None:
        notes[FAILURES] = str(failures)
        notes.update({IGNORED: str(spared)} if spared else {})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    metadata["ownerReferences"] = [owner]
    metadata["finalizers"] = [TRACKED]
    spec = {**template["spec"], "hostname": f"{name}-{number}"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "qosClass": "Burstable"}}


def child_job(jobset: Object, each: Object, name: str, run: str, suspend: bool) -> Object:
    """Returns a job of a JobSet."""
    own = {
        "jobset.sigs.k8s.io/jobset-name": jobset["metadata"]["name"],
        "jobset.sigs.k8s.io/replicatedjob-name": each["name"],
        "jobset.sigs.k8s.io/restart-attempt": run,
    }
    template = copied(each["template"])
    spec = template["spec"]
    spec["suspend"] = suspend
    spec["template"].setdefault("metadata", {}).setdefault("labels", {}).update(own)
    labels = {**(template.get("metadata") or {}).get("labels", {}), **own}
    uid = jobset["metadata"]["uid"]
    owner = {
        "apiVersion": jobset["apiVersion"],
        "kind": "JobSet",
        "name": jobset["metadata"]["name"],
        "uid": uid,
    }
    metadata = {"name": name, "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": {}}


def pod_metrics(pods: list[Object], usage: dict[str, str]) -> Object:
    """Returns the same use for each running pod, in the form of metrics-server."""
    items = [
        {
            "metadata": {"name": pod["metadata"]["name"]},
            "timestamp": "2026-01-01T00:00:00Z",
            "window": "15.2s",
            "containers": [{"name": "main", "usage": usage}],
        }
        for pod in pods
        if (pod.get("status") or {}).get("phase") == "Running"
    ]
    return {"kind": "PodMetricsList", "metadata": {}, "items": items}


def checked(found: Object, change: Object) -> Object:
    """Refuses what the API refuses (facts 16): a deadline that grows, a rule of a job, an old version."""
    before, after = found.get("spec") or {}, change.get("spec") or {}
    version = (change.get("metadata") or {}).get("resourceVersion")
    if version not in (None, found["metadata"]["resourceVersion"]):
        raise Refused(409, "Conflict", f"{found['metadata']['name']}: the object has been modified")
    limit = after.get("activeDeadlineSeconds")
    if limit is not None and before.get("activeDeadlineSeconds", limit) < limit:
        message = "spec.activeDeadlineSeconds: must be less than or equal to previous value"
        raise Refused(422, "Invalid", message)
    for key in ("podFailurePolicy", "backoffLimitPerIndex", "completionMode"):
        if key in after and after[key] != before.get(key):
            raise Refused(422, "Invalid", f"spec.{key}: field is immutable")
    return change
