"""Parses the arguments after a component's name: which text belongs to which parameter."""

from __future__ import annotations

from collections.abc import Sequence

from torchx.command_line import ArgumentError, Flag, FlagTable, Split, same
from torchx.discovery.model import Component, Parameter
from torchx.discovery.types.containers import UnionConverter
from torchx.discovery.types.converters import BoolConverter

HELP = Flag("", ("--help", "-h"), takes="", is_help=True)


def split_component(argv: Sequence[str], default: str | None) -> tuple[str | None, list[str]]:
    """Splits the arguments after the options of ``torchx run`` into the component and its arguments.

    Drops one leading ``--``. Arguments with a leading dash belong to the default component.

    Args:
        argv: the arguments from the component on.
        default: the configured component, or None.

    Returns:
        The component's name, or None, and its arguments.

    >>> split_component(["--", "-j", "1x2", "--", "--epochs", "3"], "dist.ddp")
    ('dist.ddp', ['-j', '1x2', '--', '--epochs', '3'])
    >>> split_component(["utils.echo", "--msg", "hi"], "dist.ddp")
    ('utils.echo', ['--msg', 'hi'])
    """
    given = list(argv[1:] if argv[:1] == ["--"] else argv)
    if not given or given[0].startswith("-"):
        return default, given
    return given[0], given[1:]


def parse_command_line(component: Component, argv: Sequence[str], *, last_wins: bool = False) -> Split:
    """Assigns each argument to its parameter.

    Flags come first; everything from the first other argument on belongs to ``*args``, except one
    leading ``--``.

    Args:
        component: the component.
        argv: its arguments.
        last_wins: use the last value of a repeated flag instead of rejecting it.

    Raises:
        ArgumentError: a flag is unknown, repeated or has no value, or an argument is unexpected.
    """
    table = flag_table(component, last_wins=last_wins)
    split = table.split(argv)
    if split.rest and component.varargs is None and not split.wants_help:
        hint = f"all flags: torchx run {component.name} --help"
        name, _, value = split.rest[0].partition("=")
        meant = table.exact.get(same(f"--{name}"))
        first = next(iter(component.leaves), None)
        if meant and value:
            hint = f"did you mean `{meant.spelling} {value}`?   {hint}"
        elif first:
            hint = f"every argument has a flag, e.g. {first.flags[0]}   {hint}"
        raise ArgumentError(
            f'{component.name} takes flags only, got "{split.rest[0]}"', hint=hint, code="unexpected_argument"
        )
    return split


def flag_table(component: Component, *, last_wins: bool = False, extra: str = "") -> FlagTable:
    """Returns the flags of a component.

    Args:
        component: the component.
        last_wins: use the last value of a repeated flag instead of rejecting it.
        extra: the hint about an unknown flag of a component that takes further arguments.
    """
    flags = [_flag(parameter) for top in component.parameters for parameter in (top, *top.leaves())]
    hints = [f"all flags: torchx run {component.name} --help"]
    if component.varargs:
        hints.insert(0, extra or f"to pass it to {component.varargs.name.upper()} put `--` before it")
    return FlagTable(
        [*flags, HELP],
        owner=f" for {component.name}",
        hints=hints,
        positional=component.varargs is not None,
        last_wins=last_wins,
    )


def _flag(parameter: Parameter) -> Flag:
    converter = parameter.converter
    return Flag(
        parameter.name, parameter.flags, converter.takes, is_switch(parameter), repeats=converter.repeats
    )


def is_switch(parameter: Parameter) -> bool:
    """Returns True if a parameter is a bool, whose flag needs no value."""
    converter = parameter.converter
    if isinstance(converter, UnionConverter) and len(converter.options) == 1:
        converter = converter.options[0]
    return isinstance(converter, BoolConverter)
