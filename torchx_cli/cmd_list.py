"""`torchx list`: applications, newest first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx.errors import TorchxError
from torchx_cli.flags import Cfg, Json, Output, count
from torchx_cli.output import STATE_MEANING, chosen_format, emit, is_terminal, note, paint, table
from torchx_cli.session import Session, session_of
from torchx_cli.times import ago, duration, iso, span

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduler import ListAppResponse

HEADS = ("APP", "SCHEDULER", "STATE", "STARTED", "TIME", "EXIT", "")


def list_(
    ctx: typer.Context,
    scheduler: Annotated[
        str,
        typer.Option(
            "-s",
            "--scheduler",
            metavar="NAME",
            show_default=False,
            help="Only this scheduler; all unless told.",
        ),
    ] = "",
    cfg: Cfg = [],  # noqa: B006  # typer makes a new one
    lines: Annotated[
        str, typer.Option("-n", "--lines", metavar="N", show_default=False, help="At most N applications.")
    ] = "",
    output: Output = "",
    json: Json = False,
) -> None:
    """List applications, newest first: running ones and ended ones that are on record."""
    form = chosen_format(output, json)
    most = count("-n", lines)
    session = session_of(ctx)
    with session.runner() as runner:
        apps = gather(runner, session, scheduler, cfg)
    apps.sort(key=lambda app: (app.submitted_at is not None, app.submitted_at, app.app_id), reverse=True)
    apps = apps if most is None else apps[:most]
    if form != "text":
        emit([as_data(app) for app in apps], form)
    elif apps:
        rows = [_row(app) for app in apps]
        print("\n".join(table(rows, HEADS, sys.stdout, spare=("TIME", "SCHEDULER", "STARTED"))))
    else:
        note("no applications")


def gather(runner: Runner, session: Session, scheduler: str, cfg: list[str]) -> list[ListAppResponse]:
    """Returns the applications of one scheduler, or of all that can be asked.

    Raises:
        UsageError: there is no such scheduler, or it does not take these options.
        TorchxError: the one scheduler that was asked for cannot be asked.
    """
    from torchx.config import scheduler_options
    from torchx.errors import UsageError
    from torchx_cli.run_request import typed_options

    if not scheduler:
        configured = session.config.get("cli:list", "scheduler")
        scheduler = configured.value if configured is not None else ""
    if cfg and not scheduler:
        raise UsageError("-cfg is for one scheduler: say which with -s")
    found: list[ListAppResponse] = []
    silent: list[str] = []
    for backend in [scheduler] if scheduler else runner.scheduler_backends():
        try:
            opts = runner.scheduler_run_opts(backend)
            options = {
                **_configured(scheduler_options(session.config, backend, opts)),
                **typed_options(cfg, backend, opts),
            }
            found += runner.list(backend, options or None)
        except (TorchxError, NotImplementedError, ImportError):
            if scheduler:
                raise
            silent.append(backend)
    if silent and is_terminal(sys.stderr):
        note(paint(f"not reached: {', '.join(silent)} (why: torchx list -s {silent[0]})", "dim", sys.stderr))
    return found


def _configured(options: Any) -> dict[str, Any]:
    return {key: option.value for key, option in options.items()}


def _row(app: ListAppResponse) -> list[tuple[str, str]]:
    from torchx.specs.handles import parse_app_handle

    started = app.started_at or app.submitted_at
    lasted = span(app.started_at, app.ended_at)
    return [
        (app.app_id, ""),
        (parse_app_handle(app.app_handle).scheduler_backend, ""),
        (app.state.name, STATE_MEANING.get(app.state.name, "dim")),
        ("" if started is None else ago(started), ""),
        ("" if lasted is None else duration(lasted), ""),
        ("" if app.state.name == "RUNNING" else "-" if app.exit_code is None else str(app.exit_code), ""),
        (app.msg, "dim"),
    ]


def as_data(app: ListAppResponse) -> dict[str, Any]:
    """Returns one application as plain data."""
    from torchx.specs.handles import parse_app_handle

    scheduler, session, _ = parse_app_handle(app.app_handle)
    lasted = None if app.ended_at is None else span(app.started_at, app.ended_at)
    return {
        "handle": app.app_handle,
        "app_id": app.app_id,
        "name": app.name,
        "scheduler": scheduler,
        "session": session,
        "state": app.state.name,
        "submitted_at": iso(app.submitted_at),
        "started_at": iso(app.started_at),
        "ended_at": iso(app.ended_at),
        "duration": lasted,
        "exit_code": app.exit_code,
        "msg": app.msg,
    }
