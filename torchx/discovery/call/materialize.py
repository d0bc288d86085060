"""Calls a component function with command-line arguments; documented API for Python programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torchx.discovery.call.arguments import parse_arguments
from torchx.discovery.call.build import call
from torchx.discovery.errors import ArgumentError
from torchx.discovery.find.finder import component_of
from torchx.discovery.model import Arguments, Component
from torchx.errors import UsageError
from torchx.json_limits import Data, Object
from torchx.lazy import lazy_imports
from torchx.specs.app import AppDef

with lazy_imports:
    import argparse


class ComponentArgs(NamedTuple):
    """The arguments of one call of a component.

    Attributes:
        positional_args: the positional arguments by name, in order.
        var_args: the arguments for ``*args``.
        kwargs: the keyword arguments.
    """

    positional_args: Object
    var_args: list[str]
    kwargs: Object


def materialize_appdef(
    cmpnt_fn: Callable[..., AppDef],
    cmpnt_args: Sequence[str],
    cmpnt_defaults: Data | None = None,
    config: Data | None = None,
) -> AppDef:
    """Calls a component with command-line arguments.

    Args:
        cmpnt_fn: the component.
        cmpnt_args: the arguments of a command line; the last value of a repeated flag counts.
        cmpnt_defaults: values that replace the defaults of the signature, by name; unknown names are
            ignored.
        config: values that override these; the arguments override them.

    Returns:
        The application.

    Raises:
        ArgumentError: an argument or value is invalid.
        UsageError: the function did not return an AppDef. Its own exceptions pass through.

    >>> from torchx.specs import AppDef, Role
    >>> def echo(msg: str, times: int = 1) -> AppDef:
    ...     return AppDef("echo", [Role("echo", "img", entrypoint="echo", args=[msg] * times)])
    >>> materialize_appdef(echo, ["--msg", "hi", "--times", "2"]).roles[0].args
    ['hi', 'hi']
    """
    component, arguments = _arguments(cmpnt_fn, cmpnt_args, cmpnt_defaults, config)
    app = call(component, arguments)
    if not isinstance(app, AppDef):
        raise UsageError(f"`{component.name}` returned {type(app).__name__}, expected an AppDef")
    return app


def component_args_from_str(
    cmpnt_fn: Callable[..., AppDef],
    cmpnt_args: Sequence[str],
    cmpnt_args_defaults: Data | None = None,
    config: Data | None = None,
) -> ComponentArgs:
    """Parses command-line arguments into the arguments of a component call.

    Args and errors: see :func:`materialize_appdef`.
    """
    component, arguments = _arguments(cmpnt_fn, cmpnt_args, cmpnt_args_defaults, config)
    before = {p.name for p in component.parameters if p.by_position}
    positional = {n: v for n, v in arguments.values.items() if n in before}
    kwargs = {n: v for n, v in arguments.values.items() if n not in before}
    return ComponentArgs(positional, arguments.varargs, kwargs)


def parse_args(
    cmpnt_fn: Callable[..., AppDef],
    cmpnt_args: Sequence[str],
    cmpnt_defaults: Data | None = None,
    config: Data | None = None,
) -> argparse.Namespace:
    """Parses command-line arguments into the attributes of one object.

    Args and errors: see :func:`materialize_appdef`.
    """
    component, arguments = _arguments(cmpnt_fn, cmpnt_args, cmpnt_defaults, config)
    values = dict(arguments.values)
    if component.varargs:
        values[component.varargs.name] = arguments.varargs
    return argparse.Namespace(**values)


def _arguments(
    fn: Callable[..., AppDef],
    words: Sequence[str],
    defaults: Data | None,
    config: Data | None,
) -> tuple[Component, Arguments]:
    component = component_of(fn)
    arguments = parse_arguments(
        component,
        words,
        config=config,
        section=defaults,
        config_origin="config",
        section_origin="the defaults",
        last_wins=True,
        strict=False,
    )
    if arguments.wants_help:
        raise ArgumentError("--help is available on the command line only", flag="--help")
    return component, arguments
