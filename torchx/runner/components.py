"""From the name of a component and its arguments to an application, for the runner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx.discovery.arguments import parse_arguments
from torchx.discovery.build import build_app
from torchx.discovery.finder import find_component
from torchx.errors import UsageError
from torchx.specs.app import AppDef


def build(name: str, args: list[str] | Mapping[str, Any], defaults: Mapping[str, str] | None) -> AppDef:
    """Finds a component and calls it.

    Args:
        name: the name of the component.
        args: its arguments, as words of a command line (of a flag that comes twice the last counts) or
            by name.
        defaults: arguments for those that are not given.

    Raises:
        UsageError: there is no such component, or the arguments cannot be right.
    """
    component = find_component(name)
    words, named = ([], args) if isinstance(args, Mapping) else (args, None)
    arguments = parse_arguments(
        component,
        words,
        config=named,
        section=defaults,
        config_origin="component_args",
        section_origin="component_defaults",
        last_wins=True,
    )
    if arguments.wants_help:
        raise UsageError(f"--help is no argument of {name}", hint=f"what it takes: torchx run {name} --help")
    return build_app(component, arguments)
