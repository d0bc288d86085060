"""Finds, checks and calls components: from a name and arguments to an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx.discovery.call.arguments import parse_arguments
    from torchx.discovery.call.build import build_app
    from torchx.discovery.call.command_line import split_component
    from torchx.discovery.call.materialize import materialize_appdef
    from torchx.discovery.errors import (
        ArgumentError,
        ComponentError,
        ComponentNotFoundException,
        ComponentValidationException,
    )
    from torchx.discovery.find.catalogue import list_components
    from torchx.discovery.find.finder import component_of, find_component
    from torchx.discovery.find.lint import lint
    from torchx.discovery.model import (
        Arguments,
        Component,
        ComponentInfo,
        LinterMessage,
        LintReport,
        Parameter,
    )
    from torchx.discovery.source.printing import builtin_source

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
    "build_app": "call.build",
    "builtin_source": "source.printing",
    "component_of": "find.finder",
    "find_component": "find.finder",
    "lint": "find.lint",
    "list_components": "find.catalogue",
    "materialize_appdef": "call.materialize",
    "parse_arguments": "call.arguments",
    "split_component": "call.command_line",
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
