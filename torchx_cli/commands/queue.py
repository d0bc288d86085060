"""`torchx queue`: show the GPUs of this machine and the waiting jobs, and change their places."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.printable import memory_size
from torchx.scheduling.responses import local_time
from torchx.suggestions import did_you_mean
from torchx.sweeps import requests
from torchx.sweeps.paths import paths_of
from torchx.sweeps.scheduler import SweepScheduler
from torchx_cli.applications import find
from torchx_cli.flags import Json, Output, argument
from torchx_cli.session import session_of
from torchx_cli.terminal.display import table
from torchx_cli.terminal.error_output import Failures
from torchx_cli.terminal.output import Row, counted, emit, note, output_format, say
from torchx_cli.terminal.times import duration, iso
from torchx_cli.terminal.units import percent

with lazy_imports:
    from torchx.runner import queue

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse

GPU_HEADS = ("GPU", "HELD BY", "SINCE", "USE", "MEMORY")
RESERVED_HEADS = ("CPUS", "MEMORY", "HELD BY", "SINCE")
HEADS = ("#", "APP", "OWNER", "NEEDS", "PRIORITY", "WAITING", "REASON")

DONE = {
    "first": "is ahead of your other applications with its priority",
    "hold": "is held",
    "release": "is released",
}
"""The results of actions."""

OTHERS = {"list": "it lists without an action: torchx queue", "cancel": "to cancel one: torchx cancel APP"}
"""Unknown actions, and their hints."""

EXAMPLES = """\b
Examples:
  torchx queue
  torchx run -d --priority 5 utils.sh --gpu 1 nvidia-smi
  torchx queue first @last
"""


def queue_(
    ctx: typer.Context,
    action: Annotated[
        str,
        argument(
            metavar="[first|hold|release]",
            help="Reorder waiting applications.",
        ),
    ] = "",
    handles: Annotated[list[str], argument(metavar="[HANDLE]...", help="The applications to change.")] = [],  # noqa: B006
    output: Output = "",
    json: Json = False,
) -> int:
    """Show this machine's GPUs, their users, and the jobs that wait.

    A job on this machine queues by itself if the GPUs it needs are not free; with -cfg reserve=true it
    waits for CPUs and memory too. The jobs of all users start by priority, then in the order of their
    submission. If one of several applications cannot be changed, the others still are.
    """
    form = output_format(output, json)
    if action:
        return _change(ctx, action, handles, form)
    now = time.time()
    gpus, waiting = queue.gpu_rows(os.environ), queue.waiting_rows()
    reserved = []
    if any(row.cpus or row.memory for row in waiting):
        reserved = queue.reserved_rows()
    if form != "text":
        emit(
            {
                "gpus": [{**_data(row), "free": row.is_free} for row in gpus],
                "reserved": [_data(row) for row in reserved],
                "waiting": [_data(row) for row in waiting],
            },
            form,
        )
        return 0
    if gpus:
        _print(_gpu_table(gpus, now), GPU_HEADS)
    if reserved:
        _print([_reserved_row(row, now) for row in reserved], RESERVED_HEADS)
    if waiting:
        _print([_waiting_row(number, row, now) for number, row in enumerate(waiting, 1)], HEADS)
    else:
        note("nothing is waiting" + ("" if gpus else " (this machine has no GPU)"))
    return 0


def _change(ctx: typer.Context, action: str, handles: Sequence[str], form: str) -> int:
    """Changes waiting applications, and returns the exit code: that of the first error."""
    if action not in queue.ACTIONS:
        raise UsageError(
            f"unknown action `{action}` of torchx queue",
            hint=OTHERS.get(action)
            or did_you_mean(action, queue.ACTIONS)
            or "known: first, hold, release, as in: torchx queue first APP",
        )
    if not handles:
        raise UsageError(f"torchx queue {action} needs an application", hint="list them: torchx queue")
    failures = Failures(handles, form)
    with session_of(ctx).runner() as runner:
        # the last one first, so that several keep their order
        applications = failures.find_each(
            reversed(handles) if action == queue.FIRST else handles,
            partial(find, runner, prefer=("SUBMITTED", "PENDING"), acts=True),
        )
        for handle, described in applications:
            with failures.of(handle):
                _change_one(runner, handle, described, action)
    if form != "text":
        emit(failures.rows("changed", applications), form, hide=True)
    return failures.exit_code


def _change_one(runner: Runner, handle: str, described: DescribeAppResponse, action: str) -> None:
    """Changes the order of a job, or of all waiting runs of a sweep, and prints that.

    Raises:
        StateError: it does not wait.
    """
    app_id, engine = described.app_id, runner.scheduler_of(handle)
    changed = ""
    if isinstance(engine, SweepScheduler):
        changed = _change_runs(engine, app_id, action)
    elif described.state.name == "SUBMITTED":
        queue.change(app_id, action)
        changed = app_id
    if not changed:
        raise StateError(f"{app_id} does not wait in the queue: it is {described.state.name}")
    note(f"{changed} {DONE[action]}")


def _change_runs(engine: SweepScheduler, app_id: str, action: str) -> str:
    """Changes the waiting runs of a sweep, submitted or not; returns the sweep and their number as text."""
    sweep = engine.sweep(app_id)
    waiting = sweep.progress.counts().get("PENDING", 0)
    if action == queue.FIRST:
        waiting = len(sweep.queued)
    if not waiting or sweep.header.native:
        return ""
    if action != queue.FIRST:
        requests.set_held(paths_of(app_id), action)
        sweep = engine.sweep(app_id)
    for run in reversed(sweep.queued) if action == queue.FIRST else sweep.queued:
        with contextlib.suppress(StateError):  # it has started
            queue.change(run, action)
    return f"{app_id} ({counted(waiting, 'waiting run')})"


def _print(rows: Sequence[Row], heads: Sequence[str]) -> None:
    say("\n".join(table(rows, heads, sys.stdout, ("PRIORITY", "OWNER", "MEMORY"))), hide=True)


def _gpu_table(gpus: Sequence[queue.GpuRow], now: float) -> list[Row]:
    """Returns the rows of GPUs; neighbours of one holder share a row."""
    groups: list[list[queue.GpuRow]] = []
    for row in gpus:
        if groups and _holder(groups[-1][0]) == _holder(row):
            groups[-1].append(row)
        else:
            groups.append([row])
    return [_gpu_row(group, now) for group in groups]


def _holder(row: queue.GpuRow) -> tuple[object, ...]:
    return row.user, row.app, row.pid


def _known(group: Sequence[queue.GpuRow], field: str) -> list[Any]:
    """Returns a measurement of the GPUs that report it."""
    values = [getattr(row, field) for row in group]
    return [value for value in values if value is not None]


def _gpu_row(group: Sequence[queue.GpuRow], now: float) -> Row:
    first = group[0]
    name = first.gpu
    if len(group) > 1:
        name += f"-{group[-1].gpu}"
    if first.is_free:
        return [name, ("free", "green"), "", "", ""]
    process = first.program or "a process"
    if first.pid:
        process += f" (pid {first.pid})"
    holder = f"{first.user}  {first.app or process}"
    if first.program:
        holder += "  not started by torchx"
    uses, used, total = (_known(group, field) for field in ("use", "memory", "total"))
    return [
        name,
        holder,
        _time(first.since, now),
        percent(sum(uses) / len(uses)) if uses else "",
        f"{memory_size(sum(used))} of {memory_size(sum(total))}" if used and total else "",
    ]


def _time(since: float | None, now: float) -> str:
    if since is None:
        return ""
    return duration(max(0.0, now - since))


def _reserved_row(row: queue.ReservedRow, now: float) -> Row:
    return [
        str(row.cpus or ""),
        memory_size(row.memory) if row.memory else "",
        f"{row.user}  {row.app}".rstrip(),
        _time(row.since, now),
    ]


def _waiting_row(number: int, row: queue.WaitingRow, now: float) -> Row:
    needs = [counted(count, noun) for count, noun in ((row.gpus, "GPU"), (row.cpus, "CPU")) if count]
    needs += ["memory"] if row.memory else []
    return [
        str(number),
        row.app_id,
        row.user,
        ", ".join(needs),
        str(row.priority),
        _time(row.since, now),
        (row.reason, "yellow"),
    ]


def _data(row: queue.GpuRow | queue.ReservedRow | queue.WaitingRow) -> dict[str, Any]:
    return {**row._asdict(), "since": iso(local_time(row.since))}
