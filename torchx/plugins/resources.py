"""From one registration of a named resource to all the names it offers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.plugins.fractions import WHOLE, take_part
from torchx.plugins.registration import Registration
from torchx.plugins.tags import resource_tags

with lazy_imports:
    import inspect

Factory = Callable[[], Any]


def whole(fn: Callable[..., Any], registration: Registration) -> dict[str, Factory]:
    """Returns the registered resource under its name and its aliases."""
    make = _factory(fn, registration.name, WHOLE)
    return dict.fromkeys((registration.name, *registration.aliases), make)


def parts(fn: Callable[..., Any], registration: Registration) -> dict[str, Factory]:
    """Returns the parts that are offered too, by ``NAME_SUFFIX``.

    Raises:
        Exception: whatever the plugin's own function raises, when parts depend on the resource.
    """
    fractions = registration.fractionals or {}
    if callable(fractions):
        fractions = fractions(_make(fn, WHOLE))
    by_name = {f"{registration.name}_{suffix}": fraction for fraction, suffix in fractions.items()}
    return {name: _factory(fn, name, fraction) for name, fraction in sorted(by_name.items())}


def _factory(fn: Callable[..., Any], name: str, fraction: float) -> Factory:
    def make() -> Any:
        resource = _make(fn, fraction)
        if not dataclasses.is_dataclass(resource) or not hasattr(resource, "tags"):
            raise UsageError(f"named resource `{name}` has type {type(resource).__name__}, not Resource")
        tags = {resource_tags.RESOURCE_NAME: name, resource_tags.IS_FRACTIONAL: fraction != WHOLE}
        return dataclasses.replace(resource, tags={**resource.tags, **tags})  # type: ignore[type-var]

    make.__name__ = name
    make.__doc__ = fn.__doc__
    make.__module__ = fn.__module__
    return make


def _make(fn: Callable[..., Any], fraction: float) -> Any:
    kinds = {p.kind for p in inspect.signature(fn).parameters.values()}
    if kinds & {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        return fn(fraction)
    if fraction == WHOLE:
        return fn()
    return take_part(fn(), fraction)
