"""Reading the words after a component's name: which word is whose value, nothing turned into values yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchx.discovery.errors import ArgumentError
from torchx.discovery.flags import Flags, Hit, is_switch, looks_like_flag
from torchx.discovery.model import Component, Parameter
from torchx.discovery.shapes import FALSE_WORDS, TRUE_WORDS


@dataclass
class Words:
    """The words of one call.

    Attributes:
        texts: the text given for each parameter, by name.
        rest: the words for ``*args``.
        notes: what a person should be told.
        wants_help: ``--help`` was among the words.
    """

    texts: dict[str, str] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wants_help: bool = False


def split_component(words: Sequence[str], default: str | None) -> tuple[str | None, list[str]]:
    """Splits what follows the options of ``torchx run`` into the component and its words.

    One ``--`` in front is dropped. Words that begin with a dash belong to the default component.

    Args:
        words: everything from the component on.
        default: the component that the configuration names, None when it names none.

    Returns:
        The component's name, None when neither names one, and the words for it.

    >>> split_component(["--", "-j", "1x2", "--", "--epochs", "3"], "dist.ddp")
    ('dist.ddp', ['-j', '1x2', '--', '--epochs', '3'])
    >>> split_component(["utils.echo", "--msg", "hi"], "dist.ddp")
    ('utils.echo', ['--msg', 'hi'])
    """
    given = list(words[1:] if words[:1] == ["--"] else words)
    if not given or given[0].startswith("-"):
        return default, given
    return given[0], given[1:]


def read_words(component: Component, argv: Sequence[str], *, last_wins: bool = False) -> Words:
    """Gives each word to the parameter that it belongs to.

    Flags come first; from the first word on that is none, everything is for ``*args``, and one ``--`` in
    front of it is dropped.

    Args:
        component: whose words they are.
        argv: the words.
        last_wins: of a flag given twice take the last, in place of refusing it.

    Raises:
        ArgumentError: a flag is unknown, given twice or without its value, or a word has no place.
    """
    flags = Flags(component)
    words = Words()
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--" or not looks_like_flag(word):
            words.rest = list(argv[at + 1 :] if word == "--" else argv[at:])
            break
        hit = flags.find(word, words.notes)
        at += 1
        if hit.parameter is None:
            words.wants_help = True
            return words
        text, used = _value(hit, hit.parameter, argv[at:], flags)
        at += used
        if hit.parameter.name in words.texts and not last_wins:
            raise ArgumentError(f"{hit.parameter.flags[0]} is given twice", flag=hit.parameter.flags[0])
        words.texts[hit.parameter.name] = text
    if words.rest and component.varargs is None:
        raise _no_place(component, words.rest[0])
    return words


def _value(hit: Hit, parameter: Parameter, following: Sequence[str], flags: Flags) -> tuple[str, int]:
    """Returns the text for a flag, and how many of the following words it took."""
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
            f"{hit.word} takes {parameter.shape.takes}, and `{text}` looks like a flag",
            flag=hit.word,
            hint=f"if it is the value: {hit.word}={text}",
        )
    return text, 1


def _switch(following: Sequence[str], flags: Flags) -> tuple[str, int]:
    """Returns the text for a bool: the next word if it is one for a bool, else ``true``."""
    if following and following[0].strip().lower() in TRUE_WORDS | FALSE_WORDS:
        return following[0], 1
    if (
        following
        and following[0] != "--"
        and not looks_like_flag(following[0])
        and not flags.component.varargs
    ):
        return following[0], 1  # no value of a bool, and there is nothing else that it can be: refused later
    return "true", 0


def _no_value(hit: Hit, parameter: Parameter) -> ArgumentError:
    return ArgumentError(f"{hit.word} takes {parameter.shape.takes}, and got nothing", flag=hit.word)


def _no_place(component: Component, word: str) -> ArgumentError:
    hint = f"all flags: torchx run {component.name} --help"
    first = next((p for top in component.parameters for p in top.leaves()), None)
    if first:
        hint = f"every argument has a flag, e.g. {first.flags[0]}   {hint}"
    return ArgumentError(f'{component.name} takes flags only, got "{word}"', hint=hint)
