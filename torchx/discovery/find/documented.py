"""The documented functions of the finder and the linter."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchx.discovery.errors import ComponentNotFoundException, ComponentValidationException
from torchx.discovery.find.finder import all_components, find_component
from torchx.discovery.model import Component, LinterMessage
from torchx.discovery.source.component_source import read_source
from torchx.discovery.source.linter import named, problems
from torchx.discovery.source.printing import builtin_source
from torchx.discovery.source.validators import ComponentFunctionValidator

Validators = Sequence[ComponentFunctionValidator]


def get_components(validators: Validators | None = None) -> dict[str, Component]:
    """Returns every named component that can be run, by name; imports them all.

    Args:
        validators: further checks; components that fail one are omitted.
    """
    return {name: each for name, each in sorted(all_components().items()) if not objections(each, validators)}


def get_component(name: str, validators: Validators | None = None) -> Component:
    """Returns a component by name: ``utils.echo``, ``train.py:trainer``, ``pkg.module:trainer``.

    Args:
        name: its name.
        validators: further checks.

    Raises:
        ComponentNotFoundException: no component has this name.
        ComponentValidationException: it is not a valid component, or a check fails.
    """
    component = find_component(name)
    if messages := objections(component, validators):
        raise ComponentValidationException(name, messages)
    return component


def get_builtin_source(name: str, validators: Validators | None = None) -> str:
    """Returns the source of a named component, with the imports and helpers that it uses.

    Args:
        name: ``utils.echo``.
        validators: further checks.

    Raises:
        ComponentNotFoundException: no component has this name.
        ComponentValidationException: a check fails.
    """
    if validators:
        get_component(name, validators)
    return builtin_source(name)


def validate(path: str, component_function: str, validators: Validators | None = None) -> list[LinterMessage]:
    """Checks one function of a file from its source.

    Args:
        path: the file.
        component_function: name of the function.
        validators: the checks (default: all checks of the linter).

    Returns:
        The problems; empty for a valid component.

    Raises:
        OSError: the file cannot be read.
    """
    source = read_source(path)
    if isinstance(source, LinterMessage):
        return [source]
    try:
        found = named(source, component_function)
    except ComponentNotFoundException as error:
        return [LinterMessage(component_function, error.message, 1, 1, path=path)]
    if validators is None:
        return problems(found, source)
    if not isinstance(found.node, ast.FunctionDef):
        return []
    return [message for check in validators for message in check.validate(found.node)]


def objections(component: Component, validators: Validators | None) -> list[LinterMessage]:
    """Returns the problems that further checks find in a component."""
    if not validators or not component.path:
        return []
    return validate(component.path, component.fn_name, validators)
