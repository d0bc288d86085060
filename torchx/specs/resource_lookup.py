"""Resources by name: the built-in ones, those of plugins, and those of the user's own module."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any

from torchx import settings
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.plugins.tags import resource_tags
from torchx.specs.resources import NULL_RESOURCE, Resource
from torchx.suggestions import did_you_mean

with lazy_imports:
    import importlib

    from torchx.plugins import installed, registration
    from torchx.specs import named_resources_aws, named_resources_generic


class UnknownResourceError(UsageError, KeyError):
    """No resource has this name (a UsageError, also a KeyError)."""

    code = "unknown_resource"


class NamedResources:
    """All named resources; reads like a mapping of names to resources.

    A name is searched in the module named by ``$TORCHX_CUSTOM_NAMED_RESOURCES`` (its mapping
    ``NAMED_RESOURCES``), then among entry points of the group ``torchx.named_resources``, registered
    plugins, and the built-in ones; case is ignored if the result is unique.

    >>> named_resources["gpu.small"].gpu
    1
    >>> "gpu.tiny" in named_resources
    False
    """

    def __getitem__(self, name: str) -> Resource:
        factories = _factories()
        key = name if name in factories else {known.lower(): known for known in factories}.get(name.lower())
        if key is None:
            raise UnknownResourceError(f"unknown named resource `{name}`", hint=_hint(name, list(factories)))
        return _tagged(factories[key](), key)

    def __contains__(self, name: object) -> bool:
        return name in _factories()

    def __iter__(self) -> Iterator[str]:
        return iter(_factories())

    def __len__(self) -> int:
        return len(_factories())

    def get(self, name: str, default: Resource | None = None) -> Resource | None:
        """Returns a resource by its name, or ``default``."""
        try:
            return self[name]
        except UnknownResourceError:
            return default

    def keys(self) -> KeysView[str]:
        """Returns all names."""
        return _factories().keys()

    def values(self) -> ValuesView[Resource]:
        """Returns all resources."""
        return self._made().values()

    def items(self) -> ItemsView[str, Resource]:
        """Returns all names with their resources."""
        return self._made().items()

    def _made(self) -> dict[str, Resource]:
        """Returns all resources except those of broken plugins, which raise errors when used."""
        made = {}
        for name, factory in _factories().items():
            try:
                made[name] = _tagged(factory(), name)
            except Exception:  # noqa: S112 (plugin code runs here)
                continue
        return made

    def __repr__(self) -> str:
        return f"<{len(self)} named resources>"


named_resources = NamedResources()
"""All named resources."""


def resource(
    cpu: int | None = None, gpu: int | None = None, memMB: int | None = None, h: str | None = None
) -> Resource:
    """Returns a resource by its name or its numbers.

    Args:
        cpu: logical processors; 2 if None or 0.
        gpu: accelerators; 0 if None.
        memMB: memory in MiB; 1024 if None or 0.
        h: a name; if given, the numbers are ignored.

    Raises:
        UnknownResourceError: no resource has this name.

    >>> resource(cpu=4, gpu=1, memMB=8192)
    Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})
    """
    if h:
        return named_resources[h]
    return Resource(cpu=cpu or 2, gpu=gpu or 0, memMB=memMB or 1024)


def get_named_resources(res: str) -> Resource:
    """Returns a resource by its name; an old name of ``resource(h=...)``."""
    warnings.warn("get_named_resources(name) is now resource(h=name)", DeprecationWarning, stacklevel=2)
    return named_resources[res]


def _factories() -> dict[str, Callable[[], Any]]:
    """Returns the factory of each resource, in display order; later ones replace earlier ones."""
    null: dict[str, Callable[[], Any]] = dict.fromkeys(
        ("NULL", "MISSING"), lambda: Resource.copy(NULL_RESOURCE)
    )
    plugins = installed.registry().get(registration.PluginType.NAMED_RESOURCE)
    return {
        **named_resources_generic.NAMED_RESOURCES,
        **named_resources_aws.NAMED_RESOURCES,
        **plugins,
        **_custom(),
        **null,
    }


def _custom() -> dict[str, Callable[[], Any]]:
    module = os.environ.get(settings.TORCHX_CUSTOM_NAMED_RESOURCES)
    if not module:
        return {}
    try:
        found = importlib.import_module(module).NAMED_RESOURCES
    except Exception as e:
        raise UsageError(
            f"the named resources of `{module}` cannot be loaded: {type(e).__name__}: {e}",
            hint=f"${settings.TORCHX_CUSTOM_NAMED_RESOURCES} names a module with a mapping NAMED_RESOURCES",
        ) from e
    return {name: _factory(made) for name, made in found.items()}


def _factory(made: Any) -> Callable[[], Any]:
    """Returns a factory; users may also write the resource itself."""
    return made if callable(made) else lambda: made


def _tagged(made: Any, name: str) -> Resource:
    """Returns a copy with the name as a tag, unless it has one: an alias keeps its target's name."""
    if not isinstance(made, Resource):
        raise UsageError(f"named resource `{name}` has type {type(made).__name__}, not Resource")
    tagged = Resource.copy(made)
    if made != NULL_RESOURCE:
        tagged.tags.setdefault(resource_tags.RESOURCE_NAME, name)
    return tagged


def _hint(name: str, known: list[str]) -> str | None:
    """Returns the nearest name or all generic ones, and the broken plugins, which might define it."""
    starts = [k for k in known if name and k.lower().startswith(name.lower())]
    few = [k for k in known if not k.startswith("aws_") and k not in ("NULL", "MISSING")]
    hint = f"did you mean `{starts[0]}`?" if starts else did_you_mean(name, known)
    hint = hint or f"there are {', '.join(few)}, and {len(known) - len(few) - 2} of AWS (aws_...)"
    broken = [
        f"{e.module} ({e.error})"
        for e in installed.registry().load_errors(registration.PluginType.NAMED_RESOURCE)
    ]
    return hint + (f"   broken plugins: {'; '.join(broken)}" if broken else "")
