"""The former place of functions that import modules by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def load_module(path: str) -> ModuleType | Callable[..., Any] | None:
    """Returns a module, or an attribute of one: ``package.module:name``; None if it cannot be imported."""
    module, _, attr = path.partition(":")
    try:
        loaded = import_module(module)
        return getattr(loaded, attr) if attr else loaded
    except Exception:
        return None


def import_attr(name: str, attr: str, default: T) -> T:
    """Returns an attribute of a module that may be missing.

    Args:
        name: the module.
        attr: the attribute.
        default: returned if the module does not exist.

    Raises:
        ModuleNotFoundError: the module exists, but imports one that is missing.
        AttributeError: the module exists, but has no such attribute.
    """
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return default
    value: T = getattr(module, attr)
    return value
