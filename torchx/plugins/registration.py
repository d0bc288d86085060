"""The decorators that register plugins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# in a plugin module: its decorated functions, some of which may share a name such as `_`
_NOTED = "__torchx_registrations__"


class PluginType(str, Enum):
    """The types of plugins; the value is the group of their entry points."""

    SCHEDULER = "torchx.schedulers"
    NAMED_RESOURCE = "torchx.named_resources"
    TRACKER = "torchx.tracker"
    EVENT_HANDLER = "torchx.event_handlers"

    @property
    def namespace(self) -> str:
        """The namespace package that is searched for plugin modules."""
        return "torchx_plugins." + self.value.removeprefix("torchx.")

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Registration:
    """The registration of a decorated function.

    Attributes:
        plugin_type: the type of its result.
        name: the name of the plugin.
        aliases: further names, of named resources.
        fractionals: parts that are offered too, of named resources: a mapping of size to suffix, or a
            function from the resource to such a mapping.
    """

    plugin_type: PluginType
    name: str
    aliases: tuple[str, ...] = ()
    fractionals: Callable[[Any], dict[float, str]] | Mapping[float, str] | None = None


class register:
    """Registers the decorated function as a plugin; does not change the function.

    The module must be in one of the namespace packages ``torchx_plugins.schedulers``,
    ``.named_resources``, ``.tracker``, ``.event_handlers``. Use the names below or
    ``@register(PluginType.SCHEDULER)``.

    Args:
        type: the type of its result.
        name: the name of the plugin (default: the function's name).
    """

    def __init__(self, type: PluginType, name: str | None = None) -> None:
        self._type = type
        self._name = name
        self._more: dict[str, Any] = {}

    def __call__(self, fn: F) -> F:
        """Stores the registration in the function's module and returns the function."""
        noted = Registration(self._type, self._name or fn.__name__, **self._more)
        vars(sys.modules[fn.__module__]).setdefault(_NOTED, []).append((fn, noted))
        return fn

    @staticmethod
    def scheduler(name: str | None = None) -> register:
        """Registers a scheduler: a factory with the session's name and keyword arguments."""
        return register(PluginType.SCHEDULER, name)

    @staticmethod
    def tracker(name: str | None = None) -> register:
        """Registers a tracker: a factory with its configuration."""
        return register(PluginType.TRACKER, name)

    @staticmethod
    def event_handler(name: str | None = None) -> register:
        """Registers a handler of launcher events: a factory of a ``logging.Handler``."""
        return register(PluginType.EVENT_HANDLER, name)

    @staticmethod
    def named_resource(
        name: str | None = None,
        aliases: Sequence[str] | None = None,
        fractionals: Callable[[Any], dict[float, str]] | Mapping[float, str] | None = None,
    ) -> register:
        """Registers a named resource: a function that returns a ``Resource``.

        Args:
            name: the name of the plugin (default: the function's name).
            aliases: further names of it.
            fractionals: parts that are offered as ``NAME_SUFFIX``: sizes (of 1) with their suffixes, or
                a function from the resource to such, e.g. ``powers_of_two_gpus``. A function that takes
                an argument is given the size and returns the part; of any other's result the part is
                taken of everything alike.
        """
        registering = register(PluginType.NAMED_RESOURCE, name)
        registering._more = {"aliases": tuple(aliases or ()), "fractionals": fractionals}
        return registering


def registrations(module: ModuleType) -> list[tuple[Callable[..., Any], Registration]]:
    """Returns the registrations of a module's functions, in source order; without imported functions."""
    return list(vars(module).get(_NOTED, ()))
