"""`torchx plugins`: list the installed plugins."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from torchx.lazy import lazy_imports
from torchx.plugins.report import installed_plugins
from torchx.printable import one_line
from torchx_cli.app import COMMANDS
from torchx_cli.flags import Json, Output
from torchx_cli.terminal.display import show_table
from torchx_cli.terminal.output import Row, emit, note, output_format, paint, say

with lazy_imports:
    from torchx import schedulers

if TYPE_CHECKING:
    from torchx.plugins.report import Installed


def plugins_(output: Output = "", json: Json = False) -> None:
    """List the schedulers, components, resources, trackers and commands added by other packages.

    Each plugin is loaded to check it. Other commands ignore plugins that fail to load.
    """
    form = output_format(output, json)
    plugins = [_with_conflict(plugin) for plugin in installed_plugins()]
    if form != "text":
        emit([_as_data(plugin) for plugin in plugins], form)
        return
    if not plugins:
        note("no plugins are installed")
        return
    rows: list[Row] = [
        [plugin.kind, _names(plugin), plugin.module, (plugin.origin, "dim")] for plugin in plugins
    ]
    show_table(rows, ("KIND", "NAME", "MODULE", "FROM"))
    for plugin in plugins:
        if plugin.error:
            label = f"{plugin.kind} {plugin.name}".strip()
            problem = f"{one_line(label)} of {plugin.module}: {one_line(plugin.error)}"
            say(f"{paint('problem:', 'bad', sys.stdout)} {problem}", hide=True)


def _with_conflict(plugin: Installed) -> Installed:
    """Returns the plugin, with an error if its name conflicts with a built-in one."""
    taken = {"command": COMMANDS, "scheduler": schedulers.BUILT_IN}.get(plugin.kind, {})
    if plugin.name in taken and not plugin.error:
        return dataclasses.replace(
            plugin, error=f"`{plugin.name}` is the name of a built-in {plugin.kind}, which takes precedence"
        )
    return plugin


def _names(plugin: Installed) -> str:
    return ", ".join([plugin.name or "-", *plugin.also])


def _as_data(plugin: Installed) -> dict[str, object]:
    return {**dataclasses.asdict(plugin), "also": list(plugin.also), "error": plugin.error or None}
