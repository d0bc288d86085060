"""The stacks of an application of any scheduler."""

from __future__ import annotations

import io
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from torchx.errors import StateError, UsageError
from torchx.scheduling.base import DescribeAppResponse, Executes, Scheduler, TakesStacks
from torchx.scheduling.stack_program import answer, arguments, command, program
from torchx.scheduling.stacks import AppStacks, combine
from torchx.scheduling.streams import Streams
from torchx.specs.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx.specs.status import ReplicaStatus

AT_A_TIME = 32
"""Replicas in which the program runs concurrently."""


def take(
    scheduler: Scheduler[Any],
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
        replica
        for role in described.roles_statuses
        for replica in role.replicas
        if replica.state is AppState.RUNNING
        and (replicas is None or {role.role, f"{role.role}/{replica.id}"} & set(replicas))
    ]
    argument = arguments("", None, ranks, native)

    def take_in(replica: ReplicaStatus) -> AppStacks:
        try:
            return _take_in(engine, described.app_id, replica, argument)
        except StateError as error:  # must not hide the others
            return AppStacks((), (f"{replica.role}/{replica.id}: {error.message}",))

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        parts = list(pool.map(take_in, running))
    return combine(parts, [role.role for role in described.roles_statuses])


def _take_in(engine: Executes, app_id: str, replica: ReplicaStatus, argument: str) -> AppStacks:
    """Runs the program that takes stacks in a replica."""
    out, err = io.BytesIO(), io.BytesIO()
    reader, writer = os.pipe()
    try:
        with open(writer, "wb") as pipe:
            pipe.write(program())  # fits the buffer of a pipe
        code = engine.execute(app_id, replica.role, replica.id, command(argument), Streams(out, err, reader))
    finally:
        os.close(reader)
    return answer(out.getvalue(), err.getvalue(), code, replica.role, replica.id)
