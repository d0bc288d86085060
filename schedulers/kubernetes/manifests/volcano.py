"""Manifest of a Volcano Job: a task for each replica, scheduled together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.manifests.attempt_number import RETRY_COUNT
from torchx.schedulers.kubernetes.manifests.job import restarts_as_a_whole
from torchx.schedulers.kubernetes.manifests.pod import AppContext, pod_template
from torchx.specs.app import RetryPolicy, Role

API = "batch.volcano.sh/v1alpha1"
PODS_SPARE = len("-0")
"""Additional characters in names of pods, compared to a Job: the number within the task."""


def manifests(context: AppContext, names: list[str]) -> Iterator[Object]:
    """Yields the job; Volcano creates the service of its pods itself."""
    roles = context.app.roles
    restarts = [role.max_retries for role in roles if role.max_retries]
    ttl = context.cfg.get("ttl")
    yield {
        "apiVersion": API,
        "kind": "Job",
        "metadata": context.metadata(context.app_id, context.labels),
        "spec": {
            "schedulerName": "volcano",
            "queue": context.cfg["queue"],
            "minAvailable": sum(role.min_replicas or role.num_replicas for role in roles),
            "plugins": {"svc": ["--publish-not-ready-addresses"], "env": []},
            # the job fails at this number of restarts, so the last one never happens
            "maxRetry": min(restarts, default=0) + 1,
            **({"ttlSecondsAfterFinished": ttl} if ttl is not None else {}),
            "tasks": [
                _task(context, number, f"{name}-{replica}", replica)
                for number, name in enumerate(names)
                for replica in range(roles[number].num_replicas)
            ],
        },
    }


def rank0_host(app_id: str, first: str) -> str:
    """Returns the host of replica 0 of the first role, as seen by the other pods."""
    return f"{app_id}-{first}-0-0.{app_id}"


def _task(context: AppContext, number: int, name: str, replica: int) -> Object:
    role = context.app.roles[number]
    if (number, replica) == (0, 0):
        # its own host name: torchrun opens the port only if both are equal
        context = replace(context, rank0=context.rank0.partition(".")[0])
    retried = [each for each in context.app.roles if each.max_retries]
    # of tasks that restart alone, no field of the pod has the number
    counted = None
    if all(map(restarts_as_a_whole, retried)):
        counted = RETRY_COUNT
    template = pod_template(context, number, replica, counted if retried else "")
    policies = _policies(role, fail_fast=bool(context.cfg.get("fail_fast", True)))
    return {
        "name": name,
        "replicas": 1,
        **({"maxRetry": role.max_retries + 1} if role.max_retries else {}),
        **({"policies": policies} if policies else {}),
        "template": template,
    }


def _policies(role: Role, fail_fast: bool) -> list[Object]:
    if restarts_as_a_whole(role):
        action = "RestartJob"
    elif role.max_retries and role.retry_policy is RetryPolicy.REPLICA:
        action = "RestartTask"
    elif fail_fast:
        action = "TerminateJob"
    else:
        return []
    return [{"event": event, "action": action} for event in ("PodEvicted", "PodFailed")]
