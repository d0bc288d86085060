"""The door of features: the rest imports no module of their folders, so that each folder can be deleted."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def feature(module: str) -> Any:
    """Returns a module of a feature, such as ``contexts.dispatch``, when its flag or command is used."""
    return import_module(f"torchx_cli.{module}")
