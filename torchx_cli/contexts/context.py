"""`torchx context`: machines behind ssh, by name."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Annotated

import typer

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx_cli.app import TYPER, Subcommands
from torchx_cli.command import TorchxCommand
from torchx_cli.contexts import connection
from torchx_cli.contexts.connection import Connection, Context, context_of, contexts
from torchx_cli.contexts.dispatch import LOCAL
from torchx_cli.flags import Output, argument, option
from torchx_cli.session import session_of
from torchx_cli.terminal.display import table
from torchx_cli.terminal.output import note, say

with lazy_imports:
    from torchx_cli.contexts import remote_run

app = typer.Typer(cls=Subcommands, **TYPER)

Name = Annotated[str, argument(metavar="NAME", help="The name of a context.")]


@app.callback()
def context() -> None:
    """Name machines behind ssh, on which `--context NAME` runs a command.

    Your ssh program connects, with its configuration, keys and agent.
    """


@app.command("add", cls=TorchxCommand)
def add(
    name: Annotated[str, argument(metavar="NAME", help="A name: letters, digits, dot, dash, underscore.")],
    address: Annotated[
        str, argument(metavar="ADDRESS", help="ssh://USER@HOST:PORT, or a host of ssh's configuration.")
    ],
    python: Annotated[
        str,
        option("--python", metavar="PATH", help="The Python there (default: the first of 3.10 or newer)."),
    ] = "",
    home: Annotated[
        str,
        option("--home", metavar="PATH", help="The state home there (default: $TORCHX_HOME or ~/.torchx)."),
    ] = "",
    replaces: Annotated[bool, typer.Option("--replace", help="Replace a context of this name.")] = False,
) -> int:
    """Name a machine; nothing is sent to it."""
    known = contexts()
    if not connection.NAME.fullmatch(name) or name == LOCAL:
        raise UsageError(
            f"`{name}` cannot be the name of a context", hint="letters, digits, `.`, `-` and `_`"
        )
    if name in known and not replaces:
        raise UsageError(
            f"there is a context `{name}` for {known[name].address}", hint="to replace it: --replace"
        )
    for flag, path in (("--python", python), ("--home", home)):
        if not connection.PATH.fullmatch(path):
            raise UsageError(f"{flag} takes a path of letters, digits and ./~+@%:-_, got `{path}`")
    added = Context(name, address, python, home)
    added.destination()
    connection.save({**known, name: added})
    note(f"added; to try it: torchx context check {name}")
    return 0


@app.command("list", cls=TorchxCommand)
def list_() -> int:
    """List the contexts."""
    rows = [[each.name, each.address, each.found.get("python", "")] for each in contexts().values()]
    if rows:
        say("\n".join(table(rows, ("CONTEXT", "ADDRESS", "PYTHON"), sys.stdout, [])))
    else:
        note("no contexts; to add one: torchx context add NAME ssh://USER@HOST")
    return 0


@app.command("show", cls=TorchxCommand)
def show(name: Name) -> int:
    """Show a context."""
    known = context_of(name)
    is_open = "open" if Connection(known).is_open() else "closed"
    there = known.found
    rows = {"name": name, "address": known.address, "python": known.python, "home": known.home}
    rows |= {"python found": there.get("python", ""), "torchx there": there.get("app", "")}
    say("\n".join(f"{key}: {value}" for key, value in {**rows, "connection": is_open}.items() if value))
    return 0


@app.command("remove", cls=TorchxCommand)
def remove(name: Name) -> int:
    """Remove a context; nothing is removed on its machine."""
    removed = context_of(name)
    Connection(removed).close()
    connection.save({key: each for key, each in contexts().items() if key != name})
    return 0


@app.command("check", cls=TorchxCommand)
def check(name: Name) -> int:
    """Connect to a machine, find or send torchx there, and measure the time of an answer."""
    way = Connection(replace(context_of(name), found={}))
    way.prepare(check=True)
    found = way.context.found
    say(f"python: {found['python']}\ntorchx: {found['version']}, {found['app'] or 'installed there'}")
    begun = time.monotonic()
    process, _ = way.start({"op": "info"})
    with process:
        process.kill()
    say(f"an answer takes {(time.monotonic() - begun) * 1000:.0f} ms")
    return 0


@app.command("submit", cls=TorchxCommand, hidden=True)
def submit(ctx: typer.Context, output: Output = "") -> int:
    """Submit applications that another machine has sent as JSON on stdin."""
    return remote_run.receive(session_of(ctx), output or "text")
