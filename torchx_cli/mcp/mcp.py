"""`torchx mcp`: serve the commands as tools for an agent."""

from __future__ import annotations

from typing import Annotated

import typer

from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx_cli.flags import option, split_list

with lazy_imports:
    from torchx_cli.mcp import server, tools

INSTALL = "pip install 'mcp>=2'"


def mcp_(
    ctx: typer.Context,
    allow: Annotated[
        str,
        option(
            "--allow",
            metavar="A,B",
            help="Allow tools that change something: run (also rerun), cancel, delete (default: none).",
        ),
    ] = "",
) -> None:
    """Serve the commands as tools for an agent, by the Model Context Protocol on stdin and stdout.

    The server is read-only unless --allow grants more. It ends when stdin is closed.
    """
    allowed = tools.check_allowed(split_list(allow))
    try:
        serve = server.serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("anyio", "mcp", "mcp_types"):
            raise
        raise StateError("`torchx mcp` requires the package `mcp`", hint=INSTALL) from error
    serve(allowed)
