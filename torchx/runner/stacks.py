"""The stacks of an application of any scheduler."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from torchx.errors import StateError, UsageError
from torchx.scheduling.base import AnyScheduler, DescribeAppResponse, Executes, TakesStacks
from torchx.scheduling.stack_program import arguments, take_in_replicas
from torchx.scheduling.stacks import AppStacks
from torchx.specs.status import AppState, is_terminal


def take(
    scheduler: AnyScheduler,
    described: DescribeAppResponse,
    replicas: Collection[str] | None,
    ranks: Collection[int] | None,
    native: bool,
) -> AppStacks:
    """Returns the stacks of an application; see :meth:`torchx.runner.Runner.stacks`."""
    if is_terminal(described.state):
        raise StateError(f"{described.app_id} has ended", hint=f"its logs: torchx log {described.app_id}")
    if isinstance(scheduler, TakesStacks):
        return scheduler.stacks(described.app_id, replicas, ranks, native)
    if not isinstance(scheduler, Executes):
        raise UsageError(f"{scheduler.backend} cannot run programs in its replicas, which stacks need")
    engine: Executes = scheduler
    running = [
        (replica.role, replica.id)
        for role in described.roles_statuses
        for replica in role.replicas
        if replica.state is AppState.RUNNING
        and (replicas is None or {role.role, f"{role.role}/{replica.id}"} & set(replicas))
    ]
    run = partial(engine.execute, described.app_id)
    roles = [role.role for role in described.roles_statuses]
    return take_in_replicas(run, running, roles, arguments("", None, ranks, native))
