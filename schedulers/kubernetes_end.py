"""Ends applications on a cluster: cancels, kills, deletes, and stops what a failed role leaves behind."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone

from torchx.schedulers.kubernetes_attempts import annotation, label
from torchx.schedulers.kubernetes_client import Cluster, Object, path_of
from torchx.schedulers.kubernetes_errors import ClusterError
from torchx.schedulers.kubernetes_facts import CANCELLED, STOPPED, Facts, main_path, selector
from torchx.schedulers.kubernetes_job import QUEUE
from torchx.schedulers.kubernetes_owner import is_foreign
from torchx.schedulers.kubernetes_states import job_facts
from torchx.specs.status import AppState, is_terminal


def cancel(cluster: Cluster, facts: Facts) -> None:
    """Ends what of an application has not ended; its objects stay, so that it can be described.

    The cluster deletes the pods of a suspended job: TERM, the time of grace, KILL.
    """
    for main in facts.mains:
        if not is_terminal(job_facts(facts.kind, main).state) and not annotation(main, CANCELLED):
            _end(cluster, facts, main, CANCELLED)


def kill(cluster: Cluster, facts: Facts) -> None:
    """Ends what of an application has not ended, with no time to clean up."""
    cancel(cluster, facts)
    now = {**selector(facts.name), "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    cluster.delete(path_of("v1", "pods", facts.namespace), {**now, "gracePeriodSeconds": 0})


def delete(cluster: Cluster, facts: Facts) -> None:
    """Removes an application with all that belongs to it; its pods get their time of grace."""
    for main in facts.mains:
        # the pods go first: nothing of it can run when the object is gone
        path = main_path(facts.kind, facts.namespace, main["metadata"]["name"])
        cluster.delete(path, {"propagationPolicy": "Foreground"})
    for resource in ("services", "configmaps"):
        path = path_of("v1", resource, facts.namespace)
        with suppress(ClusterError):  # the cluster removes them too: they belong to the jobs
            for each in cluster.items(path, selector(facts.name)):
                cluster.delete(f"{path}/{each['metadata']['name']}")


def stop_the_rest(cluster: Cluster, facts: Facts) -> bool:
    """Stops the other jobs of an application when one has failed; jobs know nothing of each other.

    Returns:
        Whether anything was stopped.
    """
    if facts.kind != "job" or len(facts.mains) < 2 or facts.malformed or is_foreign(facts):
        return False
    states = [job_facts(facts.kind, main).state for main in facts.mains]
    if AppState.FAILED not in states or not facts.fails_fast:
        return False
    stopped = False
    for main, state in zip(facts.mains, states, strict=True):
        if not is_terminal(state) and not annotation(main, STOPPED) and not annotation(main, CANCELLED):
            with suppress(ClusterError):  # who may only look leaves it to others
                _end(cluster, facts, main, STOPPED)
                stopped = True
    return stopped


def _end(cluster: Cluster, facts: Facts, main: Object, mark: str) -> None:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    change: Object = {"metadata": {"annotations": {mark: now}}}
    path = main_path(facts.kind, facts.namespace, main["metadata"]["name"])
    if facts.kind != "volcano":
        if label(main, QUEUE):
            _take_from_queue(cluster, facts.namespace, main["metadata"]["uid"])
        change["spec"] = {"suspend": True}
        cluster.patch(path, change)
        return
    metadata = main["metadata"]
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    command = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {
            "generateName": f"{metadata['name']}-abort-",
            "namespace": facts.namespace,
            "ownerReferences": [owner],
        },
        "action": "AbortJob",
        "target": {**owner, "controller": True},
    }
    cluster.create(path_of("bus.volcano.sh/v1alpha1", "commands", facts.namespace), command)
    cluster.patch(path, change)


def _take_from_queue(cluster: Cluster, namespace: str, uid: str) -> None:
    """Tells Kueue not to admit a job any more: it would start it again when its turn comes."""
    with suppress(ClusterError):  # whether or not that may be done, the job is suspended
        kueue = cluster.find("/apis/kueue.x-k8s.io")
        if kueue is None:
            return
        path = path_of(kueue["preferredVersion"]["groupVersion"], "workloads", namespace)
        for workload in cluster.items(path):
            owners = workload["metadata"].get("ownerReferences") or []
            if any(owner.get("uid") == uid for owner in owners):
                cluster.patch(f"{path}/{workload['metadata']['name']}", {"spec": {"active": False}})
