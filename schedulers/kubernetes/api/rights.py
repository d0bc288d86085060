"""Checks that the caller may carry out restarts of a gang, which Kubernetes grants right by right."""

from __future__ import annotations

from collections.abc import Iterable

from torchx.json_shape import value_at
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
        try:
            if not may(cluster, namespace, verb, group, resource):
                return f"{verb} {resource}"
        except ClusterError as error:
            if error.passes:
                raise
            return ""
    return ""


def may(cluster: Cluster, namespace: str, verb: str, group: str, resource: str) -> bool:
    """Returns False if the caller lacks a right.

    Args:
        cluster: the cluster.
        namespace: the namespace.
        verb: the verb.
        group: the API group.
        resource: the resource, or a part of one, such as ``pods/log``.

    Raises:
        ClusterError: the cluster does not answer.
    """
    name, _, part = resource.partition("/")
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": name, "subresource": part}
    review: Object = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return value_at(cluster.create(_REVIEWS, review), "status", "allowed") is not False
