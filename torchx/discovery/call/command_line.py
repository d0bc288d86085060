"""Parses the arguments after a component's name: which text belongs to which parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchx.discovery.call.flags import Flags, Hit, is_switch, looks_like_flag
from torchx.discovery.errors import ArgumentError
from torchx.discovery.model import Component, Parameter
from torchx.discovery.types.converters import FALSE_TEXTS, TRUE_TEXTS


@dataclass
class CommandLine:
    """The parsed command line of one call.

    Attributes:
        texts: the text of each parameter, by name.
        rest: the arguments for ``*args``.
        notes: notes for the user.
        wants_help: whether ``--help`` was given.
    """

    texts: dict[str, str] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wants_help: bool = False


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


def parse_command_line(component: Component, argv: Sequence[str], *, last_wins: bool = False) -> CommandLine:
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
    flags = Flags(component)
    line = CommandLine()
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--" or not looks_like_flag(word):
            line.rest = list(argv[at + 1 :] if word == "--" else argv[at:])
            break
        hit = flags.find(word, line.notes)
        at += 1
        if hit.parameter is None:
            line.wants_help = True
            return line
        text, used = _value(hit, hit.parameter, argv[at:], flags)
        at += used
        if hit.parameter.name in line.texts and not last_wins:
            raise ArgumentError(f"{hit.parameter.flags[0]} is given twice", flag=hit.parameter.flags[0])
        line.texts[hit.parameter.name] = text
    if line.rest and component.varargs is None:
        raise _no_place(component, line.rest[0])
    return line


def _value(hit: Hit, parameter: Parameter, following: Sequence[str], flags: Flags) -> tuple[str, int]:
    """Returns the text of a flag, and the number of following arguments it used."""
    if hit.negated:
        if hit.value is not None:
            raise ArgumentError(f'{hit.word} takes no value, got "{hit.value}"', flag=hit.word)
        return "false", 0
    if hit.value is not None:
        return hit.value, 0
    if is_switch(parameter):
        return _switch(following, flags)
    if not following or following[0] == "--":
        raise _no_value(hit, parameter)
    text = following[0]
    if looks_like_flag(text):
        if flags.is_flag(text):
            raise _no_value(hit, parameter)
        raise ArgumentError(
            f"{hit.word} takes {parameter.converter.takes}, and `{text}` looks like a flag",
            flag=hit.word,
            hint=f"if it is the value: {hit.word}={text}",
        )
    return text, 1


def _switch(following: Sequence[str], flags: Flags) -> tuple[str, int]:
    """Returns the text of a bool: the next argument if it is a bool, else ``true``."""
    if following and following[0].strip().lower() in TRUE_TEXTS | FALSE_TEXTS:
        return following[0], 1
    if (
        following
        and following[0] != "--"
        and not looks_like_flag(following[0])
        and not flags.component.varargs
    ):
        return following[0], 1  # not a bool, and it can be nothing else: rejected later
    return "true", 0


def _no_value(hit: Hit, parameter: Parameter) -> ArgumentError:
    return ArgumentError(f"{hit.word} takes {parameter.converter.takes}, got nothing", flag=hit.word)


def _no_place(component: Component, word: str) -> ArgumentError:
    hint = f"all flags: torchx run {component.name} --help"
    first = next((p for top in component.parameters for p in top.leaves()), None)
    if first:
        hint = f"every argument has a flag, e.g. {first.flags[0]}   {hint}"
    return ArgumentError(f'{component.name} takes flags only, got "{word}"', hint=hint)
