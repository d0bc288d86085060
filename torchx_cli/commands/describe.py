"""`torchx describe`: show the roles, replicas and options of an application."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchx import settings
from torchx.errors import UsageError
from torchx.json_limits import without_none
from torchx.lazy import lazy_imports
from torchx.printable import one_line, printable
from torchx.scheduling.responses import status_of
from torchx_cli.applications import find
from torchx_cli.flags import Handle, Json, Output, Watch, tags_text
from torchx_cli.session import session_of
from torchx_cli.terminal.app_data import as_data, shown
from torchx_cli.terminal.ending import failure_of
from torchx_cli.terminal.measurement_text import usage_of
from torchx_cli.terminal.output import (
    columns,
    counted,
    emit,
    is_terminal,
    output_format,
    paint,
    say,
    value_text,
    wrap_command,
    wrap_value,
)
from torchx_cli.terminal.status_text import replica_lines, title_lines
from torchx_cli.terminal.times import ago, duration, span
from torchx_cli.terminal.units import written

with lazy_imports:
    from torchx.runner import first_failure
    from torchx.specs import app_metadata, macro
    from torchx_cli.terminal import measurement_text, source_text, watch

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.scheduling.measurement import AppUsage


def describe_(
    ctx: typer.Context,
    handle: Handle,
    source: Annotated[
        bool, typer.Option("--source", help="Show the source, Python and machine that it was submitted with.")
    ] = False,
    watched: Watch = False,
    output: Output = "",
    json: Json = False,
) -> None:
    """Show the details of an application.

    Shows its roles with program, environment and resources; its replicas with attempts, times and exit
    codes or signals; where the logs are; and the first failure.
    """
    form = output_format(output, json)
    with session_of(ctx).runner() as runner:
        full, described = find(runner, handle, full=True)
        if source:
            if watched:
                raise UsageError("--source cannot be combined with --watch", code="conflicting_flags")
            show_source(runner, full, form)
            return
        roles = described.roles

        def lines_of(current: DescribeAppResponse) -> list[str]:
            current.roles = current.roles or roles  # a brief description omits them, and they do not change
            current.metadata = described.metadata
            usage = usage_of(runner, full, watched=watched)
            lines = _lines(shown(runner, full, current), current, usage)
            return [*lines, *failure_of(runner, full, status_of(current))]

        if not watched and form != "text":
            first = first_failure.failure_data(runner, full, status_of(described))
            emit(as_data(full, described, first) | measurement_text.usage_data(runner, full), form)
        elif not watched:
            say("\n".join(lines_of(described)))
        else:
            watch.check_watch_format(form)

            if not is_terminal(sys.stdout):  # there, watch prints only changes
                say("\n".join(_lines(shown(runner, full, described), described)))
            watch.show_changes(runner, full, described, lines_of)


def show_source(runner: Runner, handle: str, form: str) -> None:
    """Prints the source, the Python and the machine of an application's submission.

    Raises:
        StateError: they were not recorded, or the record cannot be read.
    """
    found = runner.provenance(handle)
    if found is None:
        raise source_text.not_recorded(handle)
    if form != "text":
        emit(source_text.source_data(handle, found), form)
    else:
        say("\n".join(_aligned(source_text.source_rows(found), "")))


def _lines(data: Object, described: DescribeAppResponse, usage: AppUsage | None = None) -> list[str]:
    out = sys.stdout
    lines = title_lines(data, out)
    lines += _aligned(_rows(data, described, usage), "")
    replicas = {role.role: role for role in described.roles_statuses}
    notable = measurement_text.notable(usage)
    for role in data["app"]["roles"]:
        name = paint(one_line(role["name"]), "bold", out)
        lines += ["", f"{name}  {counted(role['num_replicas'], 'replica')}"]
        lines += _aligned(_role_rows(role, data["app_id"]), "  ")
        if role["name"] in replicas:
            lines += replica_lines(replicas[role["name"]], out, notable=notable)
    return lines


def _rows(data: Object, described: DescribeAppResponse, usage: AppUsage | None) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = [("handle", data["handle"])]
    if described.submitted_at is not None:
        local = described.submitted_at.astimezone()
        rows.append(("submitted", f"{local:%Y-%m-%d %H:%M:%S} ({ago(described.submitted_at)})"))
    for label, when in (("started", described.started_at), ("ended", described.ended_at)):
        if when is not None:
            rows.append((label, f"{when.astimezone():%Y-%m-%d %H:%M:%S}"))
    lasted = span(described.started_at, described.ended_at, over=True)
    if lasted is not None:
        rows[-1] = ("ended", f"{rows[-1][1]} (after {duration(lasted)})")
    options = without_none(data["cfg"])
    rows.append((_COMMANDS[0], value_text(data["command_line"] or "")))
    rows.append(("options", ", ".join(f"{key}={value_text(value)}" for key, value in options.items())))
    rows.append(("usage", measurement_text.usage_line(usage)))
    rows += [("runs in", folder) for folder in dict.fromkeys(data["workspaces"].values())]
    rows += [("logs", data["log_dir"] or ""), ("see", data["ui_url"] or ""), ("reason", data["msg"])]
    rows += [("tags", tags_text(data["tags"])), ("note", data["note"])]
    own = app_metadata.own_entries(data["app"]["metadata"])
    return rows + [
        (f"metadata {key}", value_text(v)) for key, v in data["app"]["metadata"].items() if key not in own
    ]


def _role_rows(role: Object, app_id: str) -> list[tuple[str, str]]:
    resource = role["resource"]
    retries = ""
    if role["max_retries"]:
        retries = f"{role['max_retries']} ({role['retry_policy']})"
    requested = ", ".join(f"{key} {resource[key]}" for key in ("cpu", "gpu", "memMB") if resource[key] > 0)
    rows = [
        ("command", shlex.join([role["entrypoint"], *role["args"]])),
        ("image", role["image"]),
        ("resource", requested),
        ("at least", written(role["min_replicas"], str)),
        ("retries", retries),
        ("ports", ", ".join(f"{name} {port}" for name, port in role["port_map"].items())),
        *(("mount", ", ".join(f"{k}={value_text(v)}" for k, v in mount.items())) for mount in role["mounts"]),
        *(("env", f"{one_line(k)}={value}") for k, value in role["env"].items() if k not in _OF_TORCHX),
    ]
    rows += [(f"metadata {key}", value_text(value)) for key, value in role["metadata"].items()]
    return [(name, value.replace(macro.macros.app_id, app_id)) for name, value in rows]


def _aligned(rows: list[tuple[str, str]], indent: str) -> list[str]:
    rows = [(one_line(name), value) for name, value in rows if value]
    width = max((columns(name) for name, _ in rows), default=0)
    lines = []
    for name, value in rows:
        label, space = indent + paint(name, "dim", sys.stdout), " " * (width - columns(name) + 2)
        if name in _COMMANDS:
            lines.append(wrap_command(label + space, printable(value), sys.stdout))
            continue
        wrapped = wrap_value(value, len(indent) + width + 2, sys.stdout)
        # continuation lines must not look like rows
        lines.append(label + wrapped if wrapped.startswith("\n") else label + space + wrapped)
    return lines


_COMMANDS = ("submitted by", "command")
"""The rows whose text can be pasted into a shell."""

_OF_TORCHX = (settings.TORCHX_JOB_ID, settings.TORCHX_INTERNAL_SESSION_ID)
"""Variables that repeat the handle, or identify the session of a program."""
