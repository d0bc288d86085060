"""`torchx plugins`: what other packages add to torchx."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torchx.printable import one_line
from torchx_cli.app import COMMANDS
from torchx_cli.flags import Json, Output
from torchx_cli.terminal.output import chosen_format, emit, note, paint, say, table

if TYPE_CHECKING:
    from torchx.plugins.report import Installed


def plugins_(output: Output = "", json: Json = False) -> None:
    """Show the schedulers, components, resources, trackers and commands that other packages add.

    Each is loaded, to see whether it can be. A plugin that cannot is left out by all other commands.
    """
    from torchx.plugins.report import installed_plugins

    form = chosen_format(output, json)
    found = [_judged(one) for one in installed_plugins()]
    if form != "text":
        emit([_as_data(one) for one in found], form)
        return
    if not found:
        note("no plugins are installed")
        return
    rows = [[(one.kind, ""), (_names(one), ""), (one.module, ""), (one.origin, "dim")] for one in found]
    say("\n".join(table(rows, ("KIND", "NAME", "MODULE", "FROM"), sys.stdout)))
    for one in found:
        if one.error:
            what = f"{one.kind} {one.name}".strip()
            problem = f"{one_line(what)} of {one.module}: {one_line(one.error)}"
            say(f"{paint('problem:', 'bad', sys.stdout)} {problem}", hide=True)


def _judged(one: Installed) -> Installed:
    """Returns a plugin with what keeps the command line from using it."""
    from dataclasses import replace

    from torchx.schedulers import BUILT_IN

    taken = {"command": COMMANDS, "scheduler": BUILT_IN}.get(one.kind, {})
    if one.name in taken and not one.error:
        return replace(one, error=f"`{one.name}` is the name of a built-in {one.kind}, which stays")
    return one


def _names(one: Installed) -> str:
    return ", ".join([one.name or "-", *one.also])


def _as_data(one: Installed) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(one), "also": list(one.also), "error": one.error or None}
