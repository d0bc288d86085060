"""Checks of the Kubernetes cluster for ``torchx doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from torchx.errors import TorchxError
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.api.rights import may
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.scheduling.findings import Finding, Verdict

KINDS = {
    "JobSet": ("/apis/jobset.x-k8s.io", "applications of several roles, and their restarts, by the cluster"),
    "Volcano": ("/apis/batch.volcano.sh", "kind=volcano"),
    "Kueue": ("/apis/kueue.x-k8s.io", "queues, with the run option queue"),
}
"""Optional components of a cluster: their API group and purpose."""


RIGHTS = (
    ("create", "jobs", "batch"),
    ("create", "services", ""),
    ("list", "pods", ""),
    ("get", "pods/log", ""),
)
"""Required rights: verb, resource, group."""


def diagnose(clusters: Clusters) -> Iterator[Finding]:
    """Checks the default cluster; changes nothing."""
    try:
        clusters.require_config(None)
        cluster = clusters.select({}, quick=True)
    except TorchxError as error:
        yield Finding.of_error("cluster", error)
        return
    try:
        version = cluster.get("/version")
        detail = f"{cluster.host} ({cluster.origin}), Kubernetes {version.get('gitVersion')}"
        yield Finding("cluster", Verdict.GOOD, detail)
        for name, (path, purpose) in KINDS.items():
            there = cluster.find(path) is not None
            yield Finding(name, Verdict.GOOD if there else Verdict.ABSENT, purpose)
    except TorchxError as error:
        yield Finding.of_error("cluster", error)
        return
    for verb, resource, group in RIGHTS:
        yield _right(cluster, verb, resource, group)


def _right(cluster: Cluster, verb: str, resource: str, group: str) -> Finding:
    what = f"may {verb} {resource}"
    try:
        allowed = may(cluster, cluster.namespace, verb, group, resource)
    except TorchxError as error:
        return Finding(what, Verdict.ABSENT, f"unknown: {error.message}")
    if allowed:
        return Finding(what, Verdict.GOOD, f"in namespace {cluster.namespace}")
    hint = f"request the right to {verb} {resource} from the cluster's administrator"
    return Finding(what, Verdict.WRONG, f"not in namespace {cluster.namespace}", hint)
