"""Docstrings of components: what they say of the function and of each argument, read when it is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

TIP = "TIP: a docstring with a summary and an `Args:` part is what this page and `torchx builtins` show"
"""Stands after the name of a function that has no docstring."""


class Docs:
    """A docstring, parsed on first use.

    Args:
        text: the docstring; empty for none.
        fields: the docstrings of dataclass parameters by parameter name: their fields are described there.
    """

    def __init__(self, text: str, fields: Mapping[str, Docs] | None = None) -> None:
        self.text = inspect.cleandoc(text)
        self.fields = fields or {}

    @cached_property
    def _parsed(self) -> tuple[str, dict[str, str]]:
        from docstring_parser import ParseError, parse  # on demand: takes as long as all of discovery

        try:
            parsed = parse(self.text)
        except ParseError:  # a docstring of no known style is still a text
            return self.text, {}
        parts = [parsed.short_description, parsed.long_description]
        between = "\n\n" if parsed.blank_after_short_description else "\n"
        told = {p.arg_name.lstrip("*"): " ".join((p.description or "").split()) for p in parsed.params}
        return between.join(p for p in parts if p), told

    @property
    def description(self) -> str:
        """The summary and the text below it; empty when there is none."""
        return self._parsed[0] if self.text else ""

    def of(self, argument: str) -> str:
        """Returns what is said of an argument, on one line; empty when that is nothing.

        >>> Docs("Trains.\\n\\nArgs:\\n    lr: learning rate\\n").of("lr")
        'learning rate'
        """
        name, _, field = argument.partition(".")
        if field and name in self.fields:
            return self.fields[name].of(field)
        told = self._parsed[1] if self.text else {}
        return told.get(argument, "")


def get_fn_docstring(fn: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Reads the docstring of a function.

    Returns:
        What it says of the function (without a docstring: the function's name and a tip), and of each
        argument; of one that it does not mention, its default or ``(required)``.
    """
    docs = Docs(fn.__doc__ or "")
    told = {name: docs.of(name) or _plainly(p) for name, p in inspect.signature(fn).parameters.items()}
    name = getattr(fn, "__name__", type(fn).__name__)
    return docs.description or f"{name} {TIP}", told


def summary(docstring: str) -> str:
    """Returns the first paragraph of a docstring on one line.

    >>> summary("Prints a message,\\nonce.\\n\\nMore.")
    'Prints a message, once.'
    """
    return " ".join(inspect.cleandoc(docstring).strip().split("\n\n", 1)[0].split())


def _plainly(parameter: inspect.Parameter) -> str:
    default: Any = parameter.default
    if default is not inspect.Parameter.empty:
        return f"(default: {default})"
    return "" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "(required)"
