"""Carries out the order of starts, and ends services that are not ready in time or no longer needed.

Each step can be repeated by any process: a start is conditional on the unchanged job, so it never follows a
cancellation, and a job that is marked as no longer needed is ended by the next process.
"""

from __future__ import annotations

from torchx.schedulers.kubernetes.api.client import Cluster, Object
from torchx.schedulers.kubernetes.api.pod_ends import now
from torchx.schedulers.kubernetes.cancel import end_jobs
from torchx.schedulers.kubernetes.gang.restarts import is_cancelled
from torchx.schedulers.kubernetes.manifests.names import AWAITS
from torchx.schedulers.kubernetes.objects import RELEASED, STOPPED, Facts, main_path
from torchx.schedulers.kubernetes.services.plan import plan_of
from torchx.schedulers.kubernetes.services.probing import probe
from torchx.schedulers.kubernetes.status import job_facts
from torchx.specs.status import is_terminal


def coordinate(cluster: Cluster, facts: Facts) -> bool:
    """Brings the services of an application and its order of starts to the due state.

    Returns:
        False if something remains to be done later, also without a change of its objects.
    """
    if is_cancelled(facts):
        return True
    plan = plan_of(facts)
    if plan.end:
        end_jobs(cluster, facts, plan.end, STOPPED)
        return True
    if plan.release:
        for main in plan.release:
            if is_terminal(job_facts("job", main).state):  # it has ended by itself meanwhile
                _patch(cluster, facts, main, {"metadata": {"annotations": {RELEASED: now(cluster)}}})
        end_jobs(cluster, facts, plan.release, RELEASED)
        return True
    started = [_start(cluster, facts, main) for main in plan.start]
    changed, waits = probe(cluster, facts, cluster.clock())
    return all(started) and not (changed or waits)


def _start(cluster: Cluster, facts: Facts, main: Object) -> bool:
    """Starts a job that has waited for others; returns False if another process has changed it."""
    change = {"metadata": {"annotations": {AWAITS: None}}, "spec": {"suspend": False}}
    return cluster.patch_unchanged(main_path("job", facts.namespace, main["metadata"]["name"]), main, change)


def _patch(cluster: Cluster, facts: Facts, main: Object, change: Object) -> None:
    cluster.patch(main_path("job", facts.namespace, main["metadata"]["name"]), change)
