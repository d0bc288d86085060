"""Notes the outcome of an application in the cluster, once it is decided."""

from __future__ import annotations

from contextlib import suppress

from torchx.printable import ranges
from torchx.schedulers.kubernetes.api.client import Cluster, Object
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.names import OUTCOME
from torchx.schedulers.kubernetes.objects import Facts, gather
from torchx.schedulers.kubernetes.state.attempts import is_over, live
from torchx.schedulers.kubernetes.state.outcome import Outcome, outcome_of
from torchx.schedulers.kubernetes.status import describe
from torchx.schedulers.shared import owner
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.pace import alone
from torchx.specs.status import AppState, is_terminal

TRIES = 3
"""Maximum number of attempts to note an outcome while the object changes."""


def _is_settled(pod: Object) -> bool:
    """Returns False if a pod has ended and its node has not reported the reason yet."""
    return is_over(pod) or live(pod)


def _failed(found: DescribeAppResponse) -> dict[str, str]:
    """Returns the replicas that have failed, by role."""
    by_role = {
        role.role: ranges(replica.id for replica in role.replicas if replica.state is AppState.FAILED)
        for role in found.roles_statuses
    }
    return {role: numbers for role, numbers in by_role.items() if numbers}


def note_outcome(cluster: Cluster, facts: Facts, *, failed: bool = False) -> None:
    """Notes the end of an application and its first failure, unless they are noted.

    A run of a sweep has no object of its own. Without the right to change the objects, nothing is noted.

    Args:
        cluster: the cluster.
        facts: the application.
        failed: note the first failure before the end: no retry follows, and the others are about to be ended.
    """
    noted = outcome_of(facts.mains)
    is_noted = noted.state is not AppState.UNKNOWN or (failed and noted.failure is not None)
    if is_noted or facts.run is not None or owner.is_foreign(facts.owner):
        return
    with suppress(ClusterError), alone():
        for _ in range(TRIES):
            # read again: a copy of the pods may be older than that of the jobs
            current = gather(cluster, facts.namespace, facts.name, events=False)
            if current is None or current.damage or outcome_of(current.mains) != noted:
                return
            found = describe(current, cluster.clock.now(), failed=failed)
            outcome = Outcome(found.first_failure, found.state, found.msg, found.ended_at, _failed(found))
            if not is_terminal(found.state):
                if not (found.first_failure and all(map(_is_settled, current.pods))):
                    return
                # before the end, others may still fail
                outcome = outcome._replace(state=AppState.UNKNOWN, failed={})
            main = min(current.mains, key=lambda each: str(each["metadata"]["name"]))
            path = facts.path_of(main)
            change = {"metadata": {"annotations": {OUTCOME: outcome.text()}}}
            if cluster.patch_unchanged(path, main, change):
                return
