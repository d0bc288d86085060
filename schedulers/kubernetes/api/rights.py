"""Checks that the caller may carry out restarts of a gang, which Kubernetes grants right by right."""

from __future__ import annotations

from collections.abc import Iterable

from torchx.json_shape import typed_at
from torchx.schedulers.kubernetes.api.client import Cluster, Object
from torchx.schedulers.kubernetes.api.errors import ClusterError

NEEDED = (
    ("patch", "", "pods"),
    ("create", "batch", "jobs"),
    ("patch", "batch", "jobs"),
    ("create", "", "services"),
)
"""The rights that a restart needs: verb, API group, resource."""
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def missing_right(cluster: Cluster, namespace: str, needed: Iterable[tuple[str, str, str]] = NEEDED) -> str:
    """Returns the first right that the caller lacks, such as ``patch pods``, or an empty string.

    Args:
        cluster: the cluster; one that does not answer such queries is assumed to grant all.
        namespace: the namespace of the application.
        needed: the rights: verb, API group, resource.
    """
    for verb, group, resource in needed:
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        review: Object = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            status = typed_at(cluster.create(_REVIEWS, review), dict, "status")
        except ClusterError as error:
            if error.passes:
                raise
            return ""
        if status.get("allowed") is False:
            return f"{verb} {resource}"
    return ""
