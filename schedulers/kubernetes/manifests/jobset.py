"""Manifests of a JobSet, whose roles end and restart together."""

from __future__ import annotations

from collections.abc import Iterator

from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.manifests.attempt_number import RESTARTS, field_of
from torchx.schedulers.kubernetes.manifests.job import (
    DISRUPTED,
    job_spec,
    lifetime,
    queue_labels,
    rank0_service,
    restarts_as_a_whole,
)
from torchx.schedulers.kubernetes.manifests.pod import AppContext, pod_template

API = "jobset.x-k8s.io/v1alpha2"
PODS_SPARE = len("-0") + len("-xxxxx")
"""Additional characters in names of pods, compared to a Job: the Job's number and five random letters."""


def manifests(context: AppContext, names: list[str]) -> Iterator[Object]:
    """Yields the service of rank 0 and the JobSet, which creates the service of all pods itself."""
    yield rank0_service(context, f"{context.app_id}-{names[0]}-0-0")
    yield {
        "apiVersion": API,
        "kind": "JobSet",
        "metadata": context.metadata(context.app_id, {**context.labels, **queue_labels(context)}),
        "spec": {
            "network": {
                "enableDNSHostnames": True,
                "subdomain": context.app_id,
                "publishNotReadyAddresses": True,
            },
            "failurePolicy": failure_policy(context, names),
            **lifetime(context),
            "replicatedJobs": [_replicated(context, number, name) for number, name in enumerate(names)],
        },
    }


def failure_policy(context: AppContext, names: list[str]) -> Object:
    """Returns the failure policy: restarts of all roles, or the end of all for roles without them."""
    roles = context.app.roles
    whole = [name for role, name in zip(roles, names, strict=True) if restarts_as_a_whole(role)]
    final = [name for role, name in zip(roles, names, strict=True) if not restarts_as_a_whole(role)]
    restarts = max((role.max_retries for role in roles if restarts_as_a_whole(role)), default=0)
    if not restarts:
        return {"maxRestarts": restarts}
    rules: list[Object] = [
        {
            "name": "disrupted",  # an eviction or a lost node restarts all roles, and uses up no restart
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
            "targetReplicatedJobs": whole,
        }
    ]
    if final:
        rules.append({"name": "final", "action": "FailJobSet", "targetReplicatedJobs": final})
    return {"maxRestarts": restarts, "rules": rules}


def _replicated(context: AppContext, number: int, name: str) -> Object:
    labels = context.role_labels(number)
    role = context.app.roles[number]
    alone = role.max_retries and not restarts_as_a_whole(role)
    together = any(restarts_as_a_whole(each) for each in context.app.roles)
    if together and not alone:
        retries_at = RESTARTS
    else:
        retries_at = field_of(role)
    spec = job_spec(context, number)
    if restarts_as_a_whole(role):
        # the first failure ends the Job, which triggers the rules of the JobSet
        spec = {key: spec[key] for key in ("completionMode", "completions", "parallelism")} | {
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onPodConditions": [dict(DISRUPTED)]}]},
        }
    return {
        "name": name,
        "replicas": 1,
        "template": {
            "metadata": {"labels": labels},
            "spec": {**spec, "template": pod_template(context, number, retries_at=retries_at)},
        },
    }
