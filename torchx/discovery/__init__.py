"""Finds, checks and calls components: from a name and arguments to an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx.lazy import lazy_names

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
    "ArgumentError": "torchx.discovery.errors",
    "Arguments": "torchx.discovery.model",
    "Component": "torchx.discovery.model",
    "ComponentError": "torchx.discovery.errors",
    "ComponentInfo": "torchx.discovery.model",
    "ComponentNotFoundException": "torchx.discovery.errors",
    "ComponentValidationException": "torchx.discovery.errors",
    "LintReport": "torchx.discovery.model",
    "LinterMessage": "torchx.discovery.model",
    "Parameter": "torchx.discovery.model",
    "build_app": "torchx.discovery.call.build",
    "builtin_source": "torchx.discovery.source.printing",
    "component_of": "torchx.discovery.find.finder",
    "find_component": "torchx.discovery.find.finder",
    "lint": "torchx.discovery.find.lint",
    "list_components": "torchx.discovery.find.catalogue",
    "materialize_appdef": "torchx.discovery.call.materialize",
    "parse_arguments": "torchx.discovery.call.arguments",
    "split_component": "torchx.discovery.call.command_line",
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


__getattr__ = lazy_names(__name__, _HOMES)
