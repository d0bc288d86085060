"""Builds applications from component names and arguments, for the runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchx.discovery.call.arguments import parse_arguments
from torchx.discovery.call.build import build_app
from torchx.discovery.find.finder import find_component
from torchx.errors import UsageError
from torchx.json_limits import Data
from torchx.specs.app import AppDef


def build(name: str, args: Sequence[str] | Data, defaults: Mapping[str, str] | None) -> AppDef:
    """Finds a component and calls it.

    Args:
        name: the name of the component.
        args: its arguments, as command-line arguments (the last value of a repeated flag counts) or
            by name.
        defaults: default arguments.

    Raises:
        UsageError: the component is unknown, or the arguments are invalid.
    """
    if isinstance(args, str):  # a sequence of characters
        raise UsageError(
            f"the arguments of {name} are the string {args!r}, expected a list of strings",
            hint=f"e.g. {[args]!r}",
        )
    component = find_component(name)
    argv: Sequence[str] = []
    named: Data | None = None
    if isinstance(args, Mapping):
        named = args
    else:
        argv = args
    arguments = parse_arguments(
        component,
        argv,
        config=named,
        section=defaults,
        config_origin="component_args",
        section_origin="component_defaults",
        last_wins=True,
    )
    if arguments.wants_help:
        raise UsageError(
            f"--help is not an argument of {name}", hint=f"its arguments: torchx run {name} --help"
        )
    return build_app(component, arguments)
