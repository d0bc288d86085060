"""The current measurements of running pods, from the metrics API of a cluster, if it has one."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from typing import Any

from torchx.json_limits import Data
from torchx.json_shape import items_at
from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.api.client import Cluster, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import text_at, time_of
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.facts import selector, split_id
from torchx.schedulers.kubernetes.names import split_run
from torchx.schedulers.kubernetes.objects import find, pod_selector
from torchx.schedulers.kubernetes.state.attempts import live
from torchx.schedulers.kubernetes.state.replicas import by_replica, members_of, number_of
from torchx.schedulers.shared.measurement import requests_of
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Requested, Sample
from torchx.scheduling.pace import is_sharing

with lazy_imports:
    from torchx.schedulers.kubernetes import application

PATIENCE = 3.0
"""Maximum seconds for the metrics API, which is an addition to a cluster: the status is shown without it."""

_FACTORS = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}


def usage(clusters: Clusters, app_id: str) -> AppUsage | None:
    """Returns the measurements of an application; None if no pod runs, or without a metrics API.

    Raises:
        StateError: the cluster does not respond.
    """
    # first the measurements: without them the pods, perhaps thousands, are not read again
    metrics = _metrics(clusters, app_id)
    facts = find(clusters, app_id) if metrics else None
    if facts is None or not any(live(pod) for pod in facts.pods):
        return None
    requests = requests_of(application.app_of(facts).roles)
    pods = by_replica(facts.pods)
    measured = []
    for member in members_of(facts):
        mine = pods.get(member.key, [])
        sample = None
        if mine and live(mine[-1]):
            sample = sample_of(metrics.get(mine[-1]["metadata"]["name"], {}))
        if sample is not None:
            attempt, requested = number_of(mine[-1], len(mine) - 1), requests.get(member.role, Requested())
            measured.append(
                ReplicaUsage(member.role, member.replica, attempt, sample, (sample,), True, requested)
            )
    if measured:
        return AppUsage(tuple(measured), "the metrics API", current=("cpu", "memory"))
    return None


def _metrics(clusters: Clusters, app_id: str) -> dict[str, Data]:
    """Returns the measurements of pods by their names; empty without a metrics API."""
    cluster = clusters.of(app_id)
    namespace, name = split_id(app_id, cluster.namespace)
    if is_sharing():
        query = selector("")
    else:
        query = pod_selector(name, split_run(name)[1])
    found: list[Any] = []
    for place in dict.fromkeys((namespace, *(() if ":" in app_id else ("default",)))):
        path = path_of("metrics.k8s.io/v1beta1", "pods", place)
        read = partial(_read, cluster, path)
        try:
            items = cluster.answers(path, read).about(query["labelSelector"])
        except ClusterError as error:
            if error.status in (403, 404, 503):  # not allowed, not installed, or not ready
                continue
            raise
        found += items if isinstance(items, list) else []
    return {str(item["metadata"].get("name")): item for item in filter(None, map(shaped, found))}


def _read(cluster: Cluster, path: str, selectors: Collection[str]) -> dict[str, Any]:
    return {
        each: cluster.call("GET", path, {"labelSelector": each}, timeout=PATIENCE).get("items")
        for each in selectors
    }


def sample_of(metrics: Data) -> Sample | None:
    """Returns the measurements of a pod, the sum of its containers; None if there are none."""
    containers = items_at(metrics, dict, "containers")
    known = [each["usage"] for each in containers if isinstance(each.get("usage"), dict)]
    cpu, memory = ([quantity(usage.get(name)) for usage in known] for name in ("cpu", "memory"))
    if not known or None in memory:
        return None
    at = time_of(metrics.get("timestamp"))
    window = quantity(text_at(metrics, "window").removesuffix("s"))
    return Sample(
        time.time() if at is None else at.timestamp(),
        window or 1.0,
        None if None in cpu else sum(value or 0.0 for value in cpu),
        int(sum(value or 0.0 for value in memory)),
    )


def quantity(text: object) -> float | None:
    """Returns the number of a quantity of Kubernetes, None if it is not valid.

    >>> quantity("250m"), quantity("12345678n"), quantity("64Mi"), quantity("x")
    (0.25, 0.012345678, 67108864.0, None)
    """
    number = str(text).rstrip("numkKMGTi")
    factor = _FACTORS.get(str(text)[len(number) :])
    try:
        value = float(number)
    except ValueError:
        return None
    if factor is None or not 0 <= value < 1e30:
        return None
    return value * factor
