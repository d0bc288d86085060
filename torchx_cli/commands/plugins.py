"""`torchx plugins`: list the installed plugins."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torchx.printable import one_line
from torchx_cli.app import COMMANDS
from torchx_cli.flags import Json, Output
from torchx_cli.terminal.output import emit, note, output_format, paint, say, table

if TYPE_CHECKING:
    from torchx.plugins.report import Installed


def plugins_(output: Output = "", json: Json = False) -> None:
    """List the schedulers, components, resources, trackers and commands added by other packages.

    Each plugin is loaded to check it. Other commands ignore plugins that fail to load.
    """
    from torchx.plugins.report import installed_plugins

    form = output_format(output, json)
    found = [_with_conflict(one) for one in installed_plugins()]
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
            plugin = f"{one.kind} {one.name}".strip()
            problem = f"{one_line(plugin)} of {one.module}: {one_line(one.error)}"
            say(f"{paint('problem:', 'bad', sys.stdout)} {problem}", hide=True)


def _with_conflict(one: Installed) -> Installed:
    """Returns the plugin, with an error if its name conflicts with a built-in one."""
    from dataclasses import replace

    from torchx.schedulers import BUILT_IN

    taken = {"command": COMMANDS, "scheduler": BUILT_IN}.get(one.kind, {})
    if one.name in taken and not one.error:
        return replace(
            one, error=f"`{one.name}` is the name of a built-in {one.kind}, which takes precedence"
        )
    return one


def _names(one: Installed) -> str:
    return ", ".join([one.name or "-", *one.also])


def _as_data(one: Installed) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(one), "also": list(one.also), "error": one.error or None}
