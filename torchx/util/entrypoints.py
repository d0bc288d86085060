"""The former place of functions that load entry points."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchx.plugins.groups import entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_MISSING = object()


def load(group: str, name: str, default: Any = _MISSING) -> Any:
    """Returns the object of an entry point, or a default.

    Raises:
        KeyError: the entry point does not exist, and no default is given.
    """
    for point in entry_points(group):
        if point.name == name:
            return point.load()
    if default is _MISSING:
        raise KeyError(f"no entry point {name} in the group {group}")
    return default


def load_group(group: str) -> dict[str, Callable[..., Any]]:
    """Returns the entry points of a group by name, as functions that load them.

    A function passes its arguments to the loaded object; of a module, it returns the module.
    """

    def deferred(point: EntryPoint) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            loaded = point.load()
            return loaded if isinstance(loaded, ModuleType) else loaded(*args, **kwargs)

        return call

    return {point.name: deferred(point) for point in entry_points(group)}
