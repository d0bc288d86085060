"""No engine says SUCCEEDED unless each replica ended with exit 0: the rule holds in the shared responses."""

from __future__ import annotations

import pytest

from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.responses import status_of
from torchx.specs.status import AppState, AttemptStatus, ReplicaStatus, RoleStatus


def replica(state: AppState, code: int | None = None, *, required: bool = True) -> ReplicaStatus:
    attempts = [AttemptStatus(1, state, exit_code=code)] if code is not None else []
    return ReplicaStatus(1, state, "r", "", attempts=attempts, required=required)


GOOD = ReplicaStatus(0, AppState.SUCCEEDED, "r", "", attempts=[AttemptStatus(1, AppState.SUCCEEDED, 0)])


@pytest.mark.parametrize(
    ("other", "state", "msg"),
    [
        (replica(AppState.SUCCEEDED, 0), AppState.SUCCEEDED, ""),
        (replica(AppState.SUCCEEDED), AppState.SUCCEEDED, ""),
        (replica(AppState.SUCCEEDED, 3), AppState.FAILED, "r/1 ended with 3"),
        (replica(AppState.FAILED, 3), AppState.FAILED, "r/1 ended with 3"),
        (replica(AppState.FAILED), AppState.FAILED, "r/1 failed"),
        (replica(AppState.CANCELLED), AppState.CANCELLED, "r/1 was cancelled"),
        (replica(AppState.CANCELLED, required=False), AppState.SUCCEEDED, ""),
        *(
            (replica(state), AppState.UNKNOWN, f"r/1 is not known to have ended with exit 0: it is {state}")
            for state in (AppState.RUNNING, AppState.PENDING, AppState.SUBMITTED, AppState.UNKNOWN)
        ),
    ],
)
def test_a_success_is_proven_by_each_replica(other: ReplicaStatus, state: AppState, msg: str) -> None:
    roles = [RoleStatus("r", [GOOD]), RoleStatus("s", [other])]
    result = DescribeAppResponse("a", AppState.SUCCEEDED, roles_statuses=roles)
    assert (result.state, result.msg) == (state, msg)
    assert status_of(result).state is state
    running = DescribeAppResponse("a", AppState.RUNNING, roles_statuses=roles)
    assert running.state is AppState.RUNNING, "only a success is doubted"


def test_line_of_listing_with_exit_code_is_no_success() -> None:
    assert ListAppResponse("a", AppState.SUCCEEDED, exit_code=3).state is AppState.FAILED
    assert ListAppResponse("a", AppState.SUCCEEDED, exit_code=0).state is AppState.SUCCEEDED
