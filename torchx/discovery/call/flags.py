"""The flags of a component: long, short and negated forms, abbreviations, suggestions."""

from __future__ import annotations

import re
from typing import NamedTuple

from torchx.discovery.errors import ArgumentError
from torchx.discovery.model import Component, Parameter
from torchx.discovery.types.containers import UnionConverter
from torchx.discovery.types.converters import BoolConverter
from torchx.suggestions import nearest

HELP = "--help"
_NUMBER = re.compile(r"-(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?$|-inf$|-nan$")


class Hit(NamedTuple):
    """The flag that an argument refers to.

    Attributes:
        parameter: the parameter; None for ``--help``.
        word: the full flag.
        negated: whether it is the ``--no-`` form of a bool.
        value: the value in the same argument (``--lr=0.1``), None if there is none.
    """

    parameter: Parameter | None
    word: str
    negated: bool = False
    value: str | None = None


class Flags:
    """The flags that a component takes.

    Args:
        component: the component.
    """

    def __init__(self, component: Component) -> None:
        self.component = component
        self.exact: dict[str, Hit] = {}
        for top in component.parameters:
            for parameter in (top, *top.leaves()):
                for word in parameter.flags:
                    self.exact.setdefault(word, Hit(parameter, word))
        for hit in list(self.exact.values()):
            if hit.parameter and is_switch(hit.parameter) and hit.word.startswith("--"):
                negative = "--no-" + hit.word[2:]
                self.exact.setdefault(same(negative), Hit(hit.parameter, negative, negated=True))
        self.exact.setdefault(HELP, Hit(None, HELP))
        self.exact.setdefault("-h", Hit(None, "-h"))

    def find(self, word: str, notes: list[str]) -> Hit:
        """Finds the flag that an argument with a leading dash refers to.

        Args:
            word: the argument, possibly with ``=VALUE``.
            notes: receives a note if the argument is an abbreviation.

        Raises:
            ArgumentError: it matches no flag, or more than one.
        """
        name, equals, value = word.partition("=")
        given = value if equals else None
        hit = self.exact.get(same(name))
        if hit is None and not name.startswith("--") and len(word) > 2 and word[:2] in self.exact:
            short = self.exact[word[:2]]  # -j2x2
            if short.parameter is not None and not is_switch(short.parameter):
                return Hit(short.parameter, short.word, value=word[2:].removeprefix("="))
        hit = hit or self._abbreviated(name, notes)
        return Hit(hit.parameter, hit.word, hit.negated, given)

    def is_flag(self, word: str) -> bool:
        """Returns True if an argument is a flag in full."""
        return same(word.partition("=")[0]) in self.exact

    def _abbreviated(self, name: str, notes: list[str]) -> Hit:
        start = same(name)
        begin = [
            w for w in self.exact if w.startswith(start) and w.startswith("--") == start.startswith("--")
        ]
        if not start.startswith("--no_"):  # `--n` may be `--name` in spite of `--no-...` flags
            begin = [w for w in begin if not self.exact[w].negated] or begin
        if len(begin) == 1 and len(name.lstrip("-")) > 0:
            hit = self.exact[begin[0]]
            notes.append(f"`{name}` was read as `{hit.word}`")
            return hit
        if begin and name.lstrip("-"):
            meant = ", ".join(self.exact[w].word for w in begin)
            raise ArgumentError(f"`{name}` is ambiguous: {meant}", flag=name, hint="write it in full")
        raise self._unknown(name)

    def _unknown(self, name: str) -> ArgumentError:
        hints = []
        if "--" + same(name).lstrip("-") in self.exact:
            hints.append(f"did you mean `--{name.lstrip('-')}`?")
        elif close := nearest(same(name), [w for w in self.exact if w.startswith("--")]):
            hints.append(f"did you mean `{self.exact[close].word}`?")
        if self.component.varargs:
            hints.append(f"to pass it to `*{self.component.varargs.name}` put `--` before it")
        hints.append(f"all flags: torchx run {self.component.name} --help")
        return ArgumentError(
            f"unknown flag `{name}` for {self.component.name}", flag=name, hint="   ".join(hints)
        )


def same(word: str) -> str:
    """Normalizes a flag: ``-`` and ``_`` within its name are the same.

    >>> same("--my-arg"), same("-cn")
    ('--my_arg', '-cn')
    """
    return "--" + word[2:].replace("-", "_") if word.startswith("--") else word


def looks_like_flag(word: str) -> bool:
    """Returns True if an argument can only be a flag: a dash, and neither a number nor a sentence."""
    name = word.partition("=")[0]
    return len(word) > 1 and word[0] == "-" and " " not in name and not _NUMBER.match(word)


def is_switch(parameter: Parameter) -> bool:
    """Returns True if a parameter is a bool, whose flag needs no value."""
    converter = parameter.converter
    if isinstance(converter, UnionConverter) and len(converter.options) == 1:
        converter = converter.options[0]
    return isinstance(converter, BoolConverter)
