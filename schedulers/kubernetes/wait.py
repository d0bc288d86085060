"""Waits until an application on a cluster has ended."""

from __future__ import annotations

import threading
import time

from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.lookup import find
from torchx.schedulers.kubernetes.objects import Facts
from torchx.schedulers.kubernetes.reconcile import reconcile_objects
from torchx.schedulers.kubernetes.status import describe
from torchx.schedulers.kubernetes.verdict import note_outcome
from torchx.schedulers.kubernetes.watch import Watch
from torchx.specs.status import is_terminal

POLL_INTERVAL = 30.0
"""Seconds after which an application is checked even without an event."""
RETRY_AFTER = 2.0
"""Seconds after which a failed reconciliation is retried."""


def wait(clusters: Clusters, app_id: str, timeout: float | None) -> bool:
    """Blocks until an application has ended; returns False after ``timeout`` seconds."""
    facts = find(clusters, app_id)
    return facts is None or _wait(clusters.of(app_id), facts, timeout)


def _wait(cluster: Cluster, facts: Facts, timeout: float | None) -> bool:
    """Blocks until an application has ended or was deleted; returns False after ``timeout`` seconds.

    Raises:
        ClusterError: the watch has failed.
    """
    end = None if timeout is None else time.monotonic() + timeout
    if is_terminal(describe(facts, cluster.clock()).state):
        note_outcome(cluster, facts)
        return True
    changed = threading.Event()
    with Watch(cluster, facts, changed.set) as watch:
        while True:
            changed.clear()
            current = watch.facts()
            if current is None or is_terminal(describe(current, cluster.clock()).state):
                note_outcome(cluster, current or facts)
                return True
            pause = POLL_INTERVAL if reconcile_objects(cluster, current) else RETRY_AFTER
            left = pause if end is None else min(end - time.monotonic(), pause)
            if left <= 0:
                return False
            changed.wait(left)
