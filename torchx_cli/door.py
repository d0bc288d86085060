"""The door of features: the rest imports no module of their folders, so that each folder can be deleted."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torchx.lazy import lazy_imports

with lazy_imports:
    from torchx.plugins import groups


def has_others() -> bool:
    """Returns True if other packages have features; it searches all installed distributions."""
    return bool(groups.entry_points("torchx.features"))


def feature(module: str) -> Any:
    """Returns a module of a feature, such as ``contexts.dispatch``, when its flag or command is used."""
    return import_module(f"torchx_cli.{module}")
