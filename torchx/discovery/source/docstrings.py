"""Docstrings of components: descriptions of the function and its arguments, parsed on demand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from torchx.lazy import lazy_imports

with lazy_imports:
    import docstring_parser

TIP = "TIP: add a docstring with a summary and an `Args:` section; this page and `torchx builtins` show it"
"""The description of a function without a docstring, after its name."""


class Docs:
    """A docstring, parsed on first use.

    Args:
        text: the docstring; empty for none.
        fields: the docstrings of dataclass parameters, by parameter name; they describe the fields.
    """

    def __init__(self, text: str, fields: Mapping[str, Docs] | None = None) -> None:
        self.text = inspect.cleandoc(text)
        self.fields = fields or {}

    @cached_property
    def _parsed(self) -> tuple[str, dict[str, str]]:
        try:
            parsed = docstring_parser.parse(self.text)
        except docstring_parser.ParseError:  # a docstring of an unknown style is still a text
            return self.text, {}
        parts = [parsed.short_description, parsed.long_description]
        between = "\n"
        if parsed.blank_after_short_description:
            between = "\n\n"
        arguments = {p.arg_name.lstrip("*"): " ".join((p.description or "").split()) for p in parsed.params}
        return between.join(p for p in parts if p), arguments

    @property
    def description(self) -> str:
        """The summary and the text below it; may be empty."""
        if self.text:
            return self._parsed[0]
        return ""

    def of(self, argument: str) -> str:
        """Returns the description of an argument on one line; may be empty.

        >>> Docs("Trains.\\n\\nArgs:\\n    lr: learning rate\\n").of("lr")
        'learning rate'
        """
        name, _, field = argument.partition(".")
        if field and name in self.fields:
            return self.fields[name].of(field)
        arguments = self._parsed[1] if self.text else {}
        return arguments.get(argument, "")


def get_fn_docstring(fn: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Reads the docstring of a function.

    Returns:
        The description of the function (its name and a tip if it has no docstring), and of each
        argument (its default or ``(required)`` if the docstring does not mention it).
    """
    docs = Docs(fn.__doc__ or "")
    arguments = {
        name: docs.of(name) or _default_text(p) for name, p in inspect.signature(fn).parameters.items()
    }
    name = getattr(fn, "__name__", type(fn).__name__)
    return docs.description or f"{name} {TIP}", arguments


def summary(docstring: str) -> str:
    """Returns the first paragraph of a docstring on one line.

    >>> summary("Prints a message,\\nonce.\\n\\nMore.")
    'Prints a message, once.'
    """
    return " ".join(inspect.cleandoc(docstring).strip().split("\n\n", 1)[0].split())


def _default_text(parameter: inspect.Parameter) -> str:
    default: Any = parameter.default
    if default is not inspect.Parameter.empty:
        return f"(default: {default})"
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return ""
    return "(required)"
