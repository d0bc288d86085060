"""What a Kubernetes cluster is, and what it can do for an application."""

from __future__ import annotations

from collections.abc import Iterator

from torchx.errors import AbsentError, TorchxError
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.scheduling.findings import Finding, Verdict

KINDS = {
    "JobSet": ("/apis/jobset.x-k8s.io", "several roles, and restarts of a whole, by the cluster itself"),
    "Volcano": ("/apis/batch.volcano.sh", "kind=volcano"),
    "Kueue": ("/apis/kueue.x-k8s.io", "queues, by the run option queue"),
}
"""What a cluster may have -> its group, and what it is for."""


RIGHTS = (
    ("create", "jobs", "batch"),
    ("create", "services", ""),
    ("list", "pods", ""),
    ("get", "pods/log", ""),
)
"""What one has to be allowed: verb, resource, group."""


def diagnose(cluster: Cluster | TorchxError) -> Iterator[Finding]:
    """Looks at a cluster; changes nothing there.

    Args:
        cluster: the cluster, or why there is none to be asked.
    """
    if isinstance(cluster, TorchxError):
        verdict = Verdict.ABSENT if isinstance(cluster, AbsentError) else Verdict.WRONG
        yield Finding("cluster", verdict, cluster.message, cluster.hint or "")
        return
    try:
        version = cluster.get("/version")
        yield Finding(
            "cluster",
            Verdict.GOOD,
            f"{cluster.host} ({cluster.origin}), Kubernetes {version.get('gitVersion')}",
        )
        for name, (path, purpose) in KINDS.items():
            there = cluster.find(path) is not None
            yield Finding(name, Verdict.GOOD if there else Verdict.ABSENT, purpose)
    except TorchxError as error:
        yield Finding("cluster", Verdict.WRONG, error.message, error.hint or "")
        return
    for verb, resource, group in RIGHTS:
        yield _right(cluster, verb, resource, group)


def _right(cluster: Cluster, verb: str, resource: str, group: str) -> Finding:
    name, _, sub = resource.partition("/")
    attributes = {
        "namespace": cluster.namespace,
        "verb": verb,
        "group": group,
        "resource": name,
        "subresource": sub,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    what = f"may {verb} {resource}"
    try:
        review = cluster.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    except TorchxError as error:
        return Finding(what, Verdict.ABSENT, f"not known: {error.message}")
    if (review.get("status") or {}).get("allowed"):
        return Finding(what, Verdict.GOOD, f"in namespace {cluster.namespace}")
    hint = f"ask who runs the cluster for the right to {verb} {resource}"
    return Finding(what, Verdict.WRONG, f"not in namespace {cluster.namespace}", hint)
