"""`torchx status`: show the status of an application."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.scheduling.responses import status_of
from torchx.specs.status import AppState, EndCause
from torchx_cli.applications import find, named_identity, short_name
from torchx_cli.door import feature
from torchx_cli.flags import Handle, Json, Output, Watch, option, split_list, tags_text
from torchx_cli.session import session_of
from torchx_cli.terminal.ending import failure_of
from torchx_cli.terminal.masking import mask, mask_text
from torchx_cli.terminal.measurement_text import usage_of
from torchx_cli.terminal.output import emit, output_format, say, wrap_value
from torchx_cli.terminal.status_text import notification_line, stall_lines, status_lines

with lazy_imports:
    import dataclasses

    from torchx.runner import first_failure, notifications, ranks
    from torchx.scheduling import checks
    from torchx.specs import app_metadata
    from torchx.stragglers import record as steps_record
    from torchx.stragglers import text as steps_text
    from torchx_cli.commands import describe
    from torchx_cli.sweep import status as sweeping_status
    from torchx_cli.terminal import measurement_text, rank_text, times, watch

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.notifications.store import Delivery
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.status import AppStatus


def status_(
    ctx: typer.Context,
    handle: Handle,
    roles: Annotated[str, option("--roles", metavar="A,B", help="Show only these roles.")] = "",
    with_ranks: Annotated[
        bool, typer.Option("--ranks", help="Show torchrun's ranks, with the last line of each.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show all details, as torchx describe does; text only.")
    ] = False,
    watched: Watch = False,
    output: Output = "",
    json: Json = False,
) -> None:
    """Show the status of an application: state, replicas and first failure.

    The exit code is 0 if the application exists, in any state.
    """
    form = output_format(output, json)
    if verbose:
        if roles or with_ranks:
            raise UsageError("--verbose cannot be combined with --roles or --ranks", code="conflicting_flags")
        if form == "text":
            describe.describe_(ctx, handle, watched=watched)
            return
    requested = split_list(roles)
    with session_of(ctx).runner() as runner:
        counts_suffice = form == "text" and not any((requested, watched, with_ranks))
        full, described = find(runner, handle, replicas=not counts_suffice)
        status, deliveries = status_of(described), runner.notifications(full)
        known = [role.role for role in status.roles]
        for name in requested:
            checks.require_role(full, known, name)
        if watched and with_ranks:
            raise UsageError("--watch cannot be combined with --ranks", code="conflicting_flags")
        if watched:
            watch.check_watch_format(form)

            def lines_of(current: DescribeAppResponse) -> list[str]:
                return _lines(runner, full, current, requested, watched=True)

            watch.show_changes(runner, full, described, lines_of)
        elif form != "text":
            emit(_data(runner, full, described, requested, deliveries, with_ranks=with_ranks), form)
        else:
            lines = [mask_text(notification_line(each)) for each in deliveries]
            say("\n".join(_lines(runner, full, described, requested) + lines))
            if with_ranks:
                found = ranks.ranks_of(runner, full, status)
                say("\n".join(rank_text.rank_lines(found, status.state, sys.stdout)), hide=True)
        _resume(runner, full, status, deliveries)


def _resume(runner: Runner, handle: str, status: AppStatus, deliveries: list[Delivery]) -> None:
    """Continues the notifications of an application, unless all are sent."""
    if not (status.is_terminal() and all(each.is_final for each in deliveries)):
        notifications.resume(runner, handle, status.state)


def _data(
    runner: Runner,
    handle: str,
    described: DescribeAppResponse,
    roles: list[str],
    deliveries: list[Delivery],
    *,
    with_ranks: bool,
) -> Object:
    status, metadata = status_of(described), described.metadata
    notes = {"tags": app_metadata.tags_of(metadata), "note": app_metadata.note_of(metadata)}
    data = {
        **as_data(handle, described.name, status, roles),
        "first_failure": mask(first_failure.failure_data(runner, handle, status)),
        **mask(notes),
        **measurement_text.usage_data(runner, handle),
        "steps": mask(steps_record.to_json(described.steps_dir)),
        "notifications": mask([delivery_data(each) for each in deliveries]),
    }
    if app_metadata.has_features(metadata):
        data["features"] = feature("features.shown").rows(metadata)
    if with_ranks:
        data["ranks"] = mask([rank_text.rank_data(each) for each in ranks.ranks_of(runner, handle, status)])
    return data


def _lines(
    runner: Runner, handle: str, described: DescribeAppResponse, roles: list[str], *, watched: bool = False
) -> list[str]:
    status, engine = status_of(described), runner.scheduler_of(handle)
    if engine.has_runs:
        lines = sweeping_status.sweep_lines(handle, status, sys.stdout)
        return _masked(lines) + failure_of(runner, handle, status)
    nodes = not engine.on_this_machine
    usage = None
    lasted = times.span(status.started_at, status.ended_at, over=status.is_terminal())
    if lasted is None or lasted >= measurement_text.MEANINGFUL:
        usage = usage_of(runner, handle, watched=watched)
    line, notable = measurement_text.usage_line(usage), measurement_text.notable(usage)
    lines = status_lines(handle, status, roles, sys.stdout, nodes=nodes, usage=line, notable=notable)
    metadata = described.metadata
    labels = [
        ("tags", tags_text(app_metadata.tags_of(metadata))),
        ("note", app_metadata.note_of(metadata)),
    ]
    if described.steps_dir:
        labels += [("steps", line) for line in steps_text.lines_of(described.steps_dir)]
    if app_metadata.has_features(metadata):
        labels += feature("features.shown").labels(metadata)
    lines += [f"{name}  {wrap_value(text, 6, sys.stdout)}" for name, text in labels if text]
    if status.report_dir and status.state is AppState.RUNNING and status.cause is EndCause.STALLED:
        lines += stall_lines(status.report_dir, short_name(runner, handle))
    return _masked(lines) + failure_of(runner, handle, status)


def _masked(lines: list[str]) -> list[str]:
    return mask_text("\n".join(lines)).split("\n")


def delivery_data(each: Delivery) -> Object:
    """Returns the state of a notification as plain data."""
    return {**dataclasses.asdict(each), "at": times.iso(each.at)}


def as_data(handle: str, name: str, status: AppStatus, roles: list[str]) -> Object:
    """Returns the status as plain data with secrets masked."""
    return {**named_identity(handle, name), **mask(status.to_json(roles or None))}
