"""The report on plugins: names, origins and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchx.plugins.groups import entry_points
from torchx.plugins.installed import ENTRY_POINTS, registry
from torchx.plugins.registration import PluginType

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FURTHER_GROUPS = {
    "component": "torchx.components",
    "command": "torchx.cli.cmds",
    "feature": "torchx.features",
}
"""Kinds of plugins without registrations -> the group of their entry points."""


@dataclass(frozen=True)
class Installed:
    """A plugin, valid or not.

    Attributes:
        kind: its kind: scheduler, named_resource, tracker, event_handler, component, command, feature.
        name: its name; empty for its whole module.
        module: the module it comes from.
        origin: the distribution of its entry point, or the namespace package.
        also: further names of it.
        error: its problem, one line; may be empty.
    """

    kind: str
    name: str
    module: str
    origin: str
    also: tuple[str, ...] = ()
    error: str = ""


def installed_plugins() -> list[Installed]:
    """Returns all plugins by kind and name; those of entry points are loaded, to see whether they can be."""
    plugins = registry()
    found: list[Installed] = []
    for plugin_type in PluginType:
        kind = str(plugin_type)
        entries = []
        if plugins._sources & ENTRY_POINTS:
            entries = entry_points(plugin_type.value)
        found += [_entry(kind, entry) for entry in entries]
        names = {(entry.name, entry.value.partition(":")[0]) for entry in entries}
        rows = plugins.to_dict()[kind]
        found += [
            Installed(
                kind,
                row["name"],
                row["module"],
                plugin_type.namespace,
                (*row.get("aliases", ()), *row.get("fractionals", ())),
                row.get("error", ""),
            )
            for row in rows
            if (row["name"], row["module"]) not in names or row.get("error")
        ]
        found += [
            Installed(kind, "", error.module, plugin_type.namespace, error=error.error)
            for error in plugins.load_errors(plugin_type)
            if error.name is None
        ]
    for kind, group in FURTHER_GROUPS.items():
        found += [_entry(kind, entry) for entry in entry_points(group)]
    return found


def _entry(kind: str, entry: EntryPoint) -> Installed:
    dist = entry.dist
    origin = "an entry point"
    if dist is not None:
        origin = f"{dist.name} {dist.version}"
    error = ""
    try:
        entry.load()
    except (Exception, SystemExit) as problem:  # whatever a stranger's module does when it is imported
        error = f"{type(problem).__name__}: {problem}"
    return Installed(kind, entry.name, entry.value, origin, error=" ".join(error.split()))
