"""`torchx events`: show the events of applications."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.command_line import ArgumentError
from torchx.errors import UsageError
from torchx.printable import one_line
from torchx.specs.handles import parse_app_handle
from torchx_cli.flags import (
    Json,
    argument,
    count,
    lines_option,
    option,
    scheduler_option,
    since_option,
    until_option,
)
from torchx_cli.session import session_of
from torchx_cli.terminal.masking import mask
from torchx_cli.terminal.output import fit, note, output_format, say
from torchx_cli.terminal.times import iso, optional_time

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.scheduling.events import AppEvent

LIMIT = 100
"""Default number of recorded events of all applications; JSON contains all."""


def events_(
    ctx: typer.Context,
    handle: Annotated[
        str,
        argument(
            metavar="[HANDLE]",
            help="An application: handle, app id or a prefix of it, name, @last (default: all local ones).",
        ),
    ] = "",
    follow: Annotated[
        bool,
        typer.Option(
            "-f",
            "--follow",
            help="Keep printing new events until the application ends; without HANDLE, of all applications.",
        ),
    ] = False,
    lines: Annotated[
        str,
        lines_option(
            f"Only the last N recorded events (default: all; {LIMIT} without HANDLE, --since and -o)."
        ),
    ] = "",
    since: Annotated[str, since_option("events")] = "",
    until: Annotated[str, until_option("events")] = "",
    scheduler: Annotated[
        str, scheduler_option("Without HANDLE: applications of this scheduler instead of the local ones.")
    ] = "",
    output: Annotated[
        str, option("-o", "--output", metavar="FORMAT", help="json: one JSON object per line.")
    ] = "",
    json: Json = False,
) -> None:
    """Show the events of an application, or of all local ones: submitted, started, ready, retry, ended.

    Merges the events of several applications by time. Engines without an event log report the times
    they recorded; --follow adds the changes it observes.
    """
    form = output_format(output, json)
    if form == "yaml":
        raise ArgumentError("-o takes text or json, got `yaml`", flag="-o", given=form)
    if handle and scheduler:
        raise UsageError(
            "-s cannot be combined with a handle, which names its scheduler", code="conflicting_flags"
        )
    tail = count("-n", lines)
    begin = optional_time("--since", since)
    end = optional_time("--until", until)
    limited = tail is None and begin is None and not handle and form == "text"
    with session_of(ctx).runner() as runner:
        full = None
        if handle:
            full = runner.resolve_handle(handle)
        last = LIMIT if limited else tail
        shown = 0
        for event in runner.events(full, follow, scheduler=scheduler, since=begin, until=end, tail=last):
            shown += 1
            if form == "json":
                say(json_module.dumps(as_data(event)), flush=follow)
            else:
                say(_line(event, named=not handle), flush=follow, hide=True)
    if not shown:
        note("no events")
    elif limited and shown == LIMIT:
        note(f"only the last {LIMIT} are shown (to see more: torchx events -n 500)")


def as_data(event: AppEvent) -> Object:
    """Returns an event as plain data with secrets masked."""
    data: Object = mask(
        {
            "time": iso(event.time),
            "kind": event.kind,
            "handle": event.app_handle,
            "app_id": parse_app_handle(event.app_handle).app_id,
            "role": event.role or None,
            "replica": event.replica,
            "attempt": event.attempt,
            "message": event.message,
            "details": dict(event.details),
        }
    )
    return data


def _line(event: AppEvent, *, named: bool) -> str:
    app = []
    if named:
        app = [one_line(parse_app_handle(event.app_handle).app_id)]
    source = []
    if event.replica is not None:
        source = [f"{event.role}/{event.replica}"]
    attempt = []
    if event.attempt is not None and event.attempt > 1:
        attempt = [f"attempt {event.attempt}"]
    unsure = {"unknown": "(time unknown)", "observed": "(time observed)"}.get(
        str(event.details.get("time", "")), ""
    )
    parts = [
        event.time.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        *app,
        event.kind.ljust(9),
        *source,
        *attempt,
        event.message,
        unsure,
    ]
    return fit("  ".join(part for part in parts if part), None).rstrip()
