"""The plugins that are installed: found by namespace package and by entry point, loaded on demand."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchx import settings
from torchx.errors import UsageError
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.plugins import resources
from torchx.plugins.foreign import BROKEN, foreign, one_line
from torchx.plugins.groups import entry_points
from torchx.plugins.registration import PluginType, Registration, registrations

with lazy_imports:
    import importlib
    import pkgutil

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NAMESPACE_PACKAGES = 1
ENTRY_POINTS = 2

Plugins = dict[str, Callable[..., Any]]


@dataclass(frozen=True)
class RegistrationError:
    """The reason why a plugin is not available, or another one of its name is.

    Attributes:
        module: the module it comes from.
        error: the problem, one line.
        name: its name; None for its whole module.
        plugin_type: its type, e.g. ``scheduler``.
    """

    module: str
    error: str
    name: str | None = None
    plugin_type: str | None = None


@dataclass
class _Found:
    """The plugins found of one type."""

    plugins: Plugins = field(default_factory=dict)
    rows: list[Object] = field(default_factory=list)
    errors: list[RegistrationError] = field(default_factory=list)

    def add(self, names: Plugins, module: str, plugin_type: PluginType) -> None:
        """Adds names; the first plugin of a name wins."""
        for name, make in names.items():
            if name in self.plugins:
                error = "another plugin with this name was found first; ignored"
                self.errors.append(RegistrationError(module, error, name, str(plugin_type)))
            else:
                self.plugins[name] = make


class PluginRegistry:
    """The plugins that are installed, by type and name.

    A type is searched on its first use. A plugin that cannot be loaded is recorded in :attr:`errors` and
    omitted. If two have the same name, an entry point takes precedence over a module of a namespace
    package, and the first one found over later ones.

    Args:
        plugin_sources: the sources to search, a sum of 1 (namespace packages) and 2 (entry points).
    """

    def __init__(self, *, plugin_sources: int = NAMESPACE_PACKAGES | ENTRY_POINTS) -> None:
        self._sources = plugin_sources
        self._found: dict[PluginType, _Found] = {}

    def get(self, plugin_type: PluginType) -> Plugins:
        """Returns the plugins of one type by name; one from an entry point is imported when called."""
        return dict(self._of(plugin_type).plugins)

    def info(self, plugin_type: PluginType | None = None) -> dict[PluginType, Plugins] | Plugins:
        """Returns the plugins of one type by name, or of all types by type."""
        if plugin_type is None:
            return {t: self.get(t) for t in PluginType}
        return self.get(plugin_type)

    @property
    def errors(self) -> list[RegistrationError]:
        """The errors of the plugins of all types."""
        return [error for t in PluginType for error in self._of(t).errors]

    def load_errors(self, plugin_type: PluginType | None = None) -> list[RegistrationError]:
        """Returns the errors of the plugins of one type, or of all types."""
        if plugin_type is None:
            return self.errors
        return list(self._of(plugin_type).errors)

    def to_dict(self) -> dict[str, list[Object]]:
        """Returns the report as plain data: for each type its plugins, and the errors of modules."""
        report: dict[str, list[Object]] = {}
        for plugin_type in PluginType:
            found = self._of(plugin_type)
            named = [{"name": e.name, "module": e.module, "error": e.error} for e in found.errors if e.name]
            report[str(plugin_type)] = found.rows + named
        report["errors"] = [{"module": e.module, "error": e.error} for e in self.errors if not e.name]
        return report

    def clear(self) -> None:
        """Discards the results; the next query searches again."""
        importlib.invalidate_caches()  # folders may have changed since Python looked into them
        self._found.clear()

    def __str__(self) -> str:
        """Returns the report as text."""
        return "\n".join(_section(title, rows) for title, rows in self.to_dict().items())

    def _of(self, plugin_type: PluginType) -> _Found:
        if plugin_type not in self._found:
            found = _Found()
            if self._sources & ENTRY_POINTS:
                _from_entry_points(plugin_type, found)
            if self._sources & NAMESPACE_PACKAGES:
                _from_namespace(plugin_type, found)
            self._found[plugin_type] = found
        return self._found[plugin_type]


@functools.lru_cache(maxsize=1)
def registry() -> PluginRegistry:
    """Returns the plugins of this process, from where ``$TORCHX_PLUGINS_SOURCE`` says.

    Raises:
        UsageError: the variable is not a sum of 1 (namespace packages) and 2 (entry points).
    """
    text = os.environ.get(settings.TORCHX_PLUGINS_SOURCE) or "3"
    if text not in ("0", "1", "2", "3"):
        raise UsageError(
            f"${settings.TORCHX_PLUGINS_SOURCE} is `{text}`",
            hint="it is a sum of 1 (namespace packages) and 2 (entry points): 0, 1, 2 or 3",
        )
    return PluginRegistry(plugin_sources=int(text))


def _from_entry_points(plugin_type: PluginType, found: _Found) -> None:
    def on_call(entry: EntryPoint) -> Callable[..., Any]:
        def load_and_call(*args: Any, **kwargs: Any) -> Any:
            hint = f"it is the entry point {entry.value} of the group {plugin_type.value}"
            with foreign(f"plugin `{entry.name}` cannot be loaded", hint):
                plugin = entry.load()
            return plugin(*args, **kwargs)

        return load_and_call

    for entry in entry_points(plugin_type.value):
        module = entry.value.partition(":")[0]
        if entry.name not in found.plugins:
            found.rows.append({"name": entry.name, "module": module})
        found.add({entry.name: on_call(entry)}, module, plugin_type)


def _from_namespace(plugin_type: PluginType, found: _Found) -> None:
    for module in _modules(plugin_type, found):
        for fn, registration in registrations(module):
            _offer(fn, registration, module.__name__, plugin_type, found)


def _modules(plugin_type: PluginType, found: _Found) -> Iterator[ModuleType]:
    try:
        package = importlib.import_module(plugin_type.namespace)
    except ModuleNotFoundError as e:
        if not plugin_type.namespace.startswith(str(e.name)):
            found.errors.append(RegistrationError(plugin_type.namespace, one_line(e)))
        return
    except BROKEN as e:
        found.errors.append(RegistrationError(plugin_type.namespace, one_line(e)))
        return
    for info in pkgutil.iter_modules(getattr(package, "__path__", ()), package.__name__ + "."):
        try:
            yield importlib.import_module(info.name)
        except BROKEN as e:  # a broken plugin must not keep the others from working
            found.errors.append(RegistrationError(info.name, one_line(e)))


def _offer(fn: Any, registration: Registration, module: str, plugin_type: PluginType, found: _Found) -> None:
    if registration.plugin_type is not plugin_type:
        error = f"makes a {registration.plugin_type} but is in {plugin_type.namespace}; move it to " + (
            registration.plugin_type.namespace
        )
        found.errors.append(
            RegistrationError(module, error, registration.name, str(registration.plugin_type))
        )
        return
    row: Object = {"name": registration.name, "module": module}
    names: Plugins = {registration.name: fn}
    if plugin_type is PluginType.NAMED_RESOURCE:
        names = dict(resources.whole(fn, registration))
        try:
            parts = resources.parts(fn, registration)
        except BROKEN as e:
            error = f"its parts are not offered: {one_line(e)}"
            found.errors.append(RegistrationError(module, error, registration.name, str(plugin_type)))
            parts = {}
        names.update(parts)
        row.update({"aliases": list(registration.aliases)} if registration.aliases else {})
        row.update({"fractionals": list(parts)} if parts else {})
    if registration.name not in found.plugins:
        found.rows.append(row)
    found.add(names, module, plugin_type)


def _section(title: str, rows: list[Object]) -> str:
    if not rows:
        return f"{title}: []"
    lines = [f"{title}:"]
    for row in rows:
        for i, (key, value) in enumerate(row.items()):
            if isinstance(value, list):
                text = f"[{', '.join(value)}]"
            else:
                text = value
            lines.append(f"  {'-' if i == 0 else ' '} {key}: {text}")
    return "\n".join(lines)
