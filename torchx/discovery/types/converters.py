"""Converters between texts and values: the plain types."""

from __future__ import annotations

import enum
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchx.command_line import FALSE_TEXTS, TRUE_TEXTS
from torchx.printable import listed
from torchx.suggestions import nearest


class BadValue(ValueError):
    """A text or datum that a converter rejects.

    Args:
        detail: the rejected part and the reason, if more specific than the whole value; may be empty.
        near: the probably intended text.
    """

    def __init__(self, detail: str = "", near: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.near = near


def shown_value(given: Any) -> str:
    """Returns a text in quotation marks, and data as JSON, for messages."""
    if isinstance(given, str):
        return f'"{given}"'
    return json.dumps(given, default=str)


class Converter:
    """Converts between texts and values of a type.

    Attributes:
        label: the type as shown to users: ``FLOAT``.
        takes: the accepted values, in a sentence: ``a float``.
        sample: an accepted text, for examples.
        repeats: whether a flag of the type may be repeated, so that its values accumulate.
        is_plain: whether its texts have no structure, so that they can be elements of a comma-separated list.
    """

    label = "TEXT"
    takes = "a string"
    sample = "text"
    repeats = False
    is_plain = True

    def read_all(self, texts: Sequence[str]) -> Any:
        """Converts the texts of a repeated flag to one value.

        Raises:
            BadValue: one of them cannot be converted.
        """
        if len(texts) == 1:
            return self.read(texts[0])
        return self.join([self.read(text) for text in texts])

    def join(self, values: Sequence[Any]) -> Any:
        """Returns one value for those of a repeated flag; called only if :attr:`repeats`."""
        return values[-1]

    def read(self, text: str) -> Any:
        """Converts a text to a value.

        Raises:
            BadValue: it cannot be converted.
        """
        raise NotImplementedError

    def accept(self, data: Any) -> Any:
        """Converts JSON data or a Python value to a value of the type.

        Raises:
            BadValue: it cannot be converted.
        """
        if isinstance(data, str):
            return self.read(data)
        raise BadValue()

    def write(self, value: Any) -> str:
        """Returns a text that :meth:`read` converts to the value."""
        return str(value)


class TextConverter(Converter):
    """``str``."""

    def read(self, text: str) -> str:
        """Returns the text unchanged."""
        return text


class AnyConverter(Converter):
    """``Any``: keeps texts and data unchanged."""

    label = "ANY"
    takes = "anything"

    def read(self, text: str) -> Any:
        """Returns the text unchanged."""
        return text

    def accept(self, data: Any) -> Any:
        """Returns the data unchanged."""
        return data


class IntConverter(Converter):
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
        """Accepts an int, or a text of one."""
        if isinstance(data, int) and not isinstance(data, bool):
            return data
        return int(super().accept(data))


class FloatConverter(Converter):
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
        """Accepts a float or an int, or a text of one."""
        if isinstance(data, int | float) and not isinstance(data, bool):
            return float(data)
        return float(super().accept(data))


class BoolConverter(Converter):
    """``bool``."""

    label = "BOOL"
    takes = "true or false (1/0, yes/no, on/off)"
    sample = "true"

    def read(self, text: str) -> bool:
        """Reads true/1/yes/on and false/0/no/off in any case."""
        word = text.strip().lower()
        if word not in TRUE_TEXTS | FALSE_TEXTS:
            raise BadValue()
        return word in TRUE_TEXTS

    def accept(self, data: Any) -> bool:
        """Accepts a bool, or a text of one."""
        if isinstance(data, bool):
            return data
        return bool(super().accept(data))

    def write(self, value: Any) -> str:
        """Returns ``true`` or ``false``."""
        if value:
            return "true"
        return "false"


class ChoiceConverter(Converter):
    """An enum or a ``Literal``: one of a few values.

    Args:
        words: the accepted texts and their values, the shown ones first.
        shown: the number of shown texts: an enum accepts both names and values.
    """

    def __init__(self, words: Mapping[str, Any], shown: int | None = None) -> None:
        self.words = dict(words)
        offered = list(self.words)[:shown]
        self.label = " | ".join(offered)
        self.takes = listed(offered, "or")
        self.sample = offered[0]

    @classmethod
    def of_enum(cls, kind: type[enum.Enum]) -> ChoiceConverter:
        """Returns the choice among the members of an enum, by name or by value."""
        by_value = {str(m.value): m for m in kind}
        by_name = dict(kind.__members__)
        # users know the values of a string enum, and the names of any other
        first, second = by_name, by_value
        if all(isinstance(m.value, str) for m in kind):
            first, second = by_value, by_name
        return cls({**first, **{w: m for w, m in second.items() if w not in first}}, len(first))

    def read(self, text: str) -> Any:
        """Returns the value of a text."""
        if text not in self.words:
            raise BadValue(near=nearest(text, self.words))
        return self.words[text]

    def accept(self, data: Any) -> Any:
        """Accepts one of the values, or its text."""
        for value in self.words.values():
            if isinstance(value, enum.Enum):
                raw = value.value
            else:
                raw = value
            if (data is value) or (type(data) is type(raw) and data == raw):
                return value
        return super().accept(data)

    def write(self, value: Any) -> str:
        """Returns the text of a value."""
        found = (w for w, v in self.words.items() if v is value or (type(v) is type(value) and v == value))
        return next(found, str(value))


class ClassConverter(Converter):
    """A class whose constructor takes one text: ``Path``, ``Decimal``, or a user's class.

    Args:
        make: the class, or a function that returns an instance.
        kind: the class.
    """

    def __init__(self, make: Callable[[str], Any], kind: type | None = None) -> None:
        self.make = make
        self.kind = kind if kind is not None else make
        name = str(getattr(self.kind, "__name__", "value"))
        if name.endswith("Path"):
            name = "path"
        self.label = name.upper()
        self.takes = f"a {name}"
        self.sample = name.lower()

    def read(self, text: str) -> Any:
        """Calls the class with the text."""
        try:
            return self.make(text)
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            raise BadValue(str(error)) from error

    def accept(self, data: Any) -> Any:
        """Accepts an instance of the class, or a text."""
        if isinstance(self.kind, type) and isinstance(data, self.kind):
            return data
        return super().accept(data)


def makes_from_text(kind: type) -> bool:
    """Returns True if a class can be called with a single text."""
    try:
        signature = inspect.signature(kind)
    except (ValueError, TypeError):  # implemented in C, without a signature
        return True
    try:
        signature.bind("text")
    except TypeError:
        return False
    return True
