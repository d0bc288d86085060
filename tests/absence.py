"""Absence is not evidence: the check of an answer from which a part was removed, or has a new string."""

from __future__ import annotations

from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import AppState, is_terminal


def check_application(then: DescribeAppResponse, now: DescribeAppResponse, mutation: str) -> None:
    """Checks that a mutation makes no end, no success and no other first failure of an application.

    Args:
        then: the description by the recorded answer.
        now: that by the mutated one.
        mutation: the mutation, for a failed check.
    """
    assert not is_terminal(now.state) or is_terminal(then.state), mutation
    assert now.state is not AppState.SUCCEEDED or then.state is AppState.SUCCEEDED, mutation
    first, known = now.first_failure, then.first_failure
    if first is not None:
        assert known is not None, mutation
        assert first.name == known.name, mutation
        assert None in (first.result, known.result) or first.result == known.result, mutation


def check(then: DescribeAppResponse, now: DescribeAppResponse, mutation: str) -> None:
    """Checks an application like :func:`check_application`, and the states of its replicas."""
    check_application(then, now, mutation)
    states = {(replica.role, replica.id): replica.state for replica in then.replicas}
    for replica in now.replicas:
        state = states.get((replica.role, replica.id), AppState.UNKNOWN)
        assert replica.state is not AppState.SUCCEEDED or state is AppState.SUCCEEDED, mutation
        assert replica.state is not AppState.FAILED or is_terminal(state), mutation
