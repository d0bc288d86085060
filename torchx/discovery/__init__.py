"""Finds, checks and calls components: from a name and arguments to an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx.discovery.arguments import parse_arguments
    from torchx.discovery.build import build_app
    from torchx.discovery.catalogue import list_components
    from torchx.discovery.errors import (
        ArgumentError,
        ComponentError,
        ComponentNotFoundException,
        ComponentValidationException,
    )
    from torchx.discovery.finder import component_of, find_component
    from torchx.discovery.linter import lint
    from torchx.discovery.materialize import materialize_appdef
    from torchx.discovery.model import (
        Arguments,
        Component,
        ComponentInfo,
        LinterMessage,
        LintReport,
        Parameter,
    )
    from torchx.discovery.printing import builtin_source
    from torchx.discovery.words import split_component

# a command pays for the part it uses
_HOMES = {
    "ArgumentError": "errors",
    "Arguments": "model",
    "Component": "model",
    "ComponentError": "errors",
    "ComponentInfo": "model",
    "ComponentNotFoundException": "errors",
    "ComponentValidationException": "errors",
    "LintReport": "model",
    "LinterMessage": "model",
    "Parameter": "model",
    "build_app": "build",
    "builtin_source": "printing",
    "component_of": "finder",
    "find_component": "finder",
    "lint": "linter",
    "list_components": "catalogue",
    "materialize_appdef": "materialize",
    "parse_arguments": "arguments",
    "split_component": "words",
}

__all__ = [
    "ArgumentError",
    "Arguments",
    "Component",
    "ComponentError",
    "ComponentInfo",
    "ComponentNotFoundException",
    "ComponentValidationException",
    "LintReport",
    "LinterMessage",
    "Parameter",
    "build_app",
    "builtin_source",
    "component_of",
    "find_component",
    "lint",
    "list_components",
    "materialize_appdef",
    "parse_arguments",
    "split_component",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"torchx.discovery.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
