"""`torchx status`: how an application fares."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx_cli.flags import Handle, Json, Output, Watch, words
from torchx_cli.session import session_of
from torchx_cli.terminal.output import chosen_format, emit, is_terminal, say

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.status import AppStatus


def status_(
    ctx: typer.Context,
    handle: Handle,
    roles: Annotated[
        str,
        typer.Option("--roles", metavar="A,B", show_default=False, help="Tell of these roles alone."),
    ] = "",
    watched: Watch = False,
    output: Output = "",
    json: Json = False,
) -> None:
    """Tell how an application fares: its state, its replicas, and what failed first.

    The exit code is 0 whenever the application is known, however it fares.
    """
    from torchx.runner.status import status_of
    from torchx_cli.applications import find

    form = chosen_format(output, json)
    wanted = words(roles)
    with session_of(ctx).runner() as runner:
        full, described = find(runner, handle)
        status = status_of(described)
        check_roles(full, wanted, [role.role for role in status.roles])
        if watched:
            refuse_watching(form)
            from torchx_cli.terminal.watch import watch

            def lines_of(found: DescribeAppResponse) -> list[str]:
                return _lines(runner, full, status_of(found), wanted)

            last = watch(runner, full, described, lines_of, lambda: runner.description(full, brief=True))
            if last is not None and not is_terminal(sys.stdout):
                for line in failure_of(runner, full, status_of(last)):
                    say(line)
        elif form != "text":
            emit(as_data(full, described.name, status, wanted), form)
        else:
            say("\n".join(_lines(runner, full, status, wanted)))


def _lines(runner: Runner, handle: str, status: AppStatus, roles: list[str]) -> list[str]:
    from torchx_cli.terminal.masking import mask_text
    from torchx_cli.terminal.status_text import status_lines

    return [mask_text(line) for line in status_lines(handle, status, roles, sys.stdout)] + failure_of(
        runner, handle, status
    )


def failure_of(runner: Runner, handle: str, status: AppStatus) -> list[str]:
    """Returns the lines that tell what failed first; nothing when nothing did."""
    from torchx_cli.applications import short
    from torchx_cli.terminal.ending import failure_lines

    return failure_lines(runner, handle, status, sys.stdout, called=short(runner, handle))


def refuse_watching(form: str) -> None:
    """Refuses to watch in a form that is one whole.

    Raises:
        UsageError: it is one.
    """
    if form != "text":
        from torchx.errors import UsageError

        raise UsageError(
            f"--watch tells changes as text, so it goes without -o {form}",
            hint="the result as JSON, once there is one: torchx wait -o json",
        )


def as_data(handle: str, name: str, status: AppStatus, roles: list[str]) -> dict[str, Any]:
    """Returns the status as plain data, secrets masked."""
    from torchx.specs.handles import parse_app_handle
    from torchx_cli.terminal.masking import mask

    scheduler, session, app_id = parse_app_handle(handle)
    return {
        "handle": handle,
        "app_id": app_id,
        "name": name,
        "scheduler": scheduler,
        "session": session,
        **mask(status.to_json(roles or None)),
    }


def check_roles(handle: str, wanted: list[str], known: list[str]) -> None:
    """Refuses names of roles that an application does not have.

    Raises:
        StateError: there is no such role.
    """
    for role in wanted:
        if role not in known:
            from torchx.errors import StateError
            from torchx.suggestions import did_you_mean

            raise StateError(
                f"{handle} has no role `{role}`",
                hint=did_you_mean(role, known, "its roles: " + ", ".join(known)),
            )
