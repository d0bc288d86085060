"""How words become values of a type, and values words: the plain types."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torchx.words import nearest

TRUE_WORDS = frozenset({"true", "1", "yes", "on"})
FALSE_WORDS = frozenset({"false", "0", "no", "off"})


class BadValue(ValueError):
    """A word or a datum that a shape does not take.

    Args:
        detail: which part of it, and why, where that says more than the whole value; else empty.
        near: a word that was probably meant.
    """

    def __init__(self, detail: str = "", near: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.near = near


class Shape:
    """What a type takes on a command line.

    Attributes:
        label: the type for people: ``FLOAT``.
        takes: the same in a sentence: ``a float``.
        sample: a word that it takes, for examples.
    """

    label = "TEXT"
    takes = "a text"
    sample = "text"

    def read(self, text: str) -> Any:
        """Returns the value that a text stands for.

        Raises:
            BadValue: it stands for none.
        """
        raise NotImplementedError

    def accept(self, data: Any) -> Any:
        """Returns the value that a datum of JSON, or a value from Python, stands for.

        Raises:
            BadValue: it stands for none.
        """
        if isinstance(data, str):
            return self.read(data)
        raise BadValue()

    def write(self, value: Any) -> str:
        """Returns a text that :meth:`read` turns into the value."""
        return str(value)

    @property
    def is_plain(self) -> bool:
        """Whether its text is one word without structure, so that it may stand between commas."""
        return True


class Text(Shape):
    """``str``."""

    def read(self, text: str) -> str:
        """Returns the text as it is."""
        return text


class Anything(Shape):
    """``Any``: texts stay texts, data stay data."""

    label = "ANY"
    takes = "anything"

    def read(self, text: str) -> Any:
        """Returns the text as it is."""
        return text

    def accept(self, data: Any) -> Any:
        """Returns the datum as it is."""
        return data


class Whole(Shape):
    """``int``."""

    label = "INT"
    takes = "an int"
    sample = "1"

    def read(self, text: str) -> int:
        """Reads ``3``, ``-3``, ``1_000``."""
        try:
            return int(text)
        except ValueError:
            raise BadValue() from None

    def accept(self, data: Any) -> int:
        """Takes an int, or a text of one."""
        if isinstance(data, int) and not isinstance(data, bool):
            return data
        return int(super().accept(data))


class Real(Shape):
    """``float``."""

    label = "FLOAT"
    takes = "a float"
    sample = "0.1"

    def read(self, text: str) -> float:
        """Reads ``0.1``, ``1e-3``, ``inf``."""
        try:
            return float(text)
        except ValueError:
            raise BadValue() from None

    def accept(self, data: Any) -> float:
        """Takes a float or an int, or a text of one."""
        if isinstance(data, int | float) and not isinstance(data, bool):
            return float(data)
        return float(super().accept(data))


class Truth(Shape):
    """``bool``."""

    label = "BOOL"
    takes = "true or false (1/0, yes/no, on/off)"
    sample = "true"

    def read(self, text: str) -> bool:
        """Reads true/1/yes/on and false/0/no/off in any case."""
        word = text.strip().lower()
        if word not in TRUE_WORDS | FALSE_WORDS:
            raise BadValue()
        return word in TRUE_WORDS

    def accept(self, data: Any) -> bool:
        """Takes a bool, or a text of one."""
        return data if isinstance(data, bool) else bool(super().accept(data))

    def write(self, value: Any) -> str:
        """Returns ``true`` or ``false``."""
        return "true" if value else "false"


class Choice(Shape):
    """An enum or a ``Literal``: one of a few values.

    Args:
        words: each word and the value that it stands for, the shown ones first.
        shown: how many of them are shown: an enum takes both names and values.
    """

    def __init__(self, words: Mapping[str, Any], shown: int | None = None) -> None:
        self.words = dict(words)
        offered = list(self.words)[:shown]
        self.label = " | ".join(offered)
        self.takes = offered[0] if len(offered) == 1 else f"{', '.join(offered[:-1])} or {offered[-1]}"
        self.sample = offered[0]

    @classmethod
    def of_enum(cls, kind: type[enum.Enum]) -> Choice:
        """Returns the choice among the members of an enum, by name or by value."""
        by_value = {str(m.value): m for m in kind}
        by_name = dict(kind.__members__)
        # of a string enum people know the values, of any other the names
        texts = all(isinstance(m.value, str) for m in kind)
        first, second = (by_value, by_name) if texts else (by_name, by_value)
        return cls({**first, **{w: m for w, m in second.items() if w not in first}}, len(first))

    def read(self, text: str) -> Any:
        """Returns the value that the word stands for."""
        if text not in self.words:
            raise BadValue(near=nearest(text, self.words))
        return self.words[text]

    def accept(self, data: Any) -> Any:
        """Takes one of the values, or its word."""
        for value in self.words.values():
            raw = value.value if isinstance(value, enum.Enum) else value
            if (data is value) or (type(data) is type(raw) and data == raw):
                return value
        return super().accept(data)

    def write(self, value: Any) -> str:
        """Returns the word of a value."""
        found = (w for w, v in self.words.items() if v is value or (type(v) is type(value) and v == value))
        return next(found, str(value))


class Made(Shape):
    """A class that makes an object from one text: ``Path``, ``Decimal``, or a person's own.

    Args:
        make: what makes it: the class, or a function.
        kind: the class.
    """

    def __init__(self, make: Callable[[str], Any], kind: type | None = None) -> None:
        self.make = make
        self.kind = kind if kind is not None else make
        name = str(getattr(self.kind, "__name__", "value"))
        self.label = "PATH" if name.endswith("Path") else name.upper()
        self.takes = "a path" if name.endswith("Path") else f"a {name}"
        self.sample = "path" if name.endswith("Path") else name.lower()

    def read(self, text: str) -> Any:
        """Calls the class with the text."""
        try:
            return self.make(text)
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            raise BadValue(str(error)) from error

    def accept(self, data: Any) -> Any:
        """Takes an object of the class, or a text."""
        if isinstance(self.kind, type) and isinstance(data, self.kind):
            return data
        return super().accept(data)


def makes_from_text(kind: type) -> bool:
    """Tells whether a class can be called with one text and nothing else."""
    try:
        signature = inspect.signature(kind)
    except (ValueError, TypeError):  # written in C, with nothing to look at
        return True
    try:
        signature.bind("text")
    except TypeError:
        return False
    return True
