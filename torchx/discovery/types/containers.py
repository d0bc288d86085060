"""Converters between texts and values: containers, unions and dataclasses."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from torchx.discovery.types.converters import BadValue, Converter, shown_value
from torchx.json_limits import load_json
from torchx.pairs import PairsError, to_dict


def json_of(text: str, kind: type) -> Any:
    """Parses a JSON text of a type.

    Raises:
        BadValue: it is not JSON of that type.
    """
    try:
        data = load_json(text)
    except ValueError as error:
        raise BadValue(f"it is not JSON: {error}") from None
    if not isinstance(data, kind):
        raise BadValue()
    return data


def array_of(text: str) -> list[Any] | None:
    """Parses a JSON array; None for any other text."""
    if not text.lstrip().startswith("["):
        return None
    try:
        data = load_json(text)
    except ValueError:
        return None
    if isinstance(data, list):
        return data
    return None


def plain_data(value: Any) -> Any:
    """Converts a value to JSON data that :meth:`Converter.accept` accepts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_data(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else str(plain_data(k)): plain_data(v) for k, v in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, Iterable):
        return [plain_data(each) for each in value]
    return str(value)


class ListConverter(Converter):
    """A list, set or tuple of like elements: ``1,2,3``, or JSON; with nested elements, JSON.

    Args:
        item: the converter of the elements.
        make: builds the container from a list.
    """

    repeats = True
    is_plain = False

    def __init__(self, item: Converter, make: Callable[[list[Any]], Any] = list) -> None:
        self.item = item
        self.make = make
        if item.is_plain:
            self.label = f"{item.label},…"
            self.takes = f"a list such as {item.sample},{item.sample}"
            self.sample = item.sample
        else:
            self.label = "JSON"
            self.takes = f"a JSON array, each element {item.takes}"
            self.sample = f"[{item.sample}]"

    def read(self, text: str) -> Any:
        """Splits at commas and strips; keeps empty elements; an empty text is None (or an empty tuple)."""
        if not text:
            if self.make is tuple:
                return ()
            return None
        if not self.item.is_plain:
            return self.accept(json_of(text, list))
        data = array_of(text)
        if data is not None:
            with suppress(BadValue):  # brackets may be part of the elements
                return self.accept(data)
        return self.make([_element(self.item.read, word.strip(), self.item) for word in text.split(",")])

    def join(self, values: Sequence[Any]) -> Any:
        """Returns the elements of all values."""
        return self.make([each for value in values for each in value or ()])

    def accept(self, data: Any) -> Any:
        """Accepts an array, or a text of one."""
        if isinstance(data, str) or not isinstance(data, Sequence | set | frozenset):
            return super().accept(data)
        return self.make([_element(self.item.accept, each, self.item) for each in data])

    def write(self, value: Any) -> str:
        """Returns the elements with commas between them, or JSON."""
        if value is None:
            return ""
        text = ""
        if self.item.is_plain:
            text = ",".join(self.item.write(each) for each in value)
        with suppress(BadValue):  # an element has a comma in it
            if text and self.read(text) == value:
                return text
        return json.dumps(plain_data(value))


class TupleConverter(Converter):
    """A tuple of a given length: ``2,adam``, or JSON; with nested elements, JSON.

    Args:
        items: the converters of the elements.
    """

    is_plain = False

    def __init__(self, items: Sequence[Converter]) -> None:
        self.items = tuple(items)
        self.label = ",".join(i.label for i in items)
        self.takes = f"{len(items)} values ({', '.join(i.takes for i in items)})"
        self.sample = ",".join(i.sample for i in items)
        self._is_flat = all(i.is_plain for i in items)
        if not self._is_flat:
            self.label = "JSON"
            self.takes += " as JSON"
            self.sample = f"[{self.sample}]"

    def read(self, text: str) -> Any:
        """Splits at commas and strips; the number of elements must match."""
        if not self._is_flat:
            return self.accept(json_of(text, list))
        data = array_of(text)
        if data is not None:
            with suppress(BadValue):
                return self.accept(data)
        words = []
        if text or self.items:
            words = [w.strip() for w in text.split(",")]
        return self._each(words, [i.read for i in self.items])

    def accept(self, data: Any) -> Any:
        """Accepts an array, or a text of one."""
        if not isinstance(data, list | tuple):
            return super().accept(data)
        return self._each(data, [i.accept for i in self.items])

    def write(self, value: Any) -> str:
        """Returns the elements with commas between them, or JSON."""
        if not self._is_flat:
            return json.dumps(plain_data(value))
        return ",".join(i.write(each) for i, each in zip(self.items, value, strict=True))

    def _each(self, given: Sequence[Any], how: Sequence[Callable[[Any], Any]]) -> tuple[Any, ...]:
        if len(given) != len(self.items):
            raise BadValue(f"it has {len(given)}")
        return tuple(_element(h, each, i) for h, each, i in zip(how, given, self.items, strict=True))


class MappingConverter(Converter):
    """A dict: ``k=v,k2=v2`` or ``k=v;k2=v2``, or JSON; JSON only with nested values.

    Args:
        key: the converter of the keys.
        value: the converter of the values.
    """

    repeats = True
    is_plain = False

    def __init__(self, key: Converter, value: Converter) -> None:
        self.key = key
        self.value = value
        self._is_flat = key.is_plain and value.is_plain
        if self._is_flat:
            self.label = f"KEY={value.label},…"
            self.takes = "pairs such as key=value,key2=value2"
            self.sample = f"key={value.sample}"
        else:
            self.label = "JSON"
            self.takes = "a JSON object"
            self.sample = "{}"

    def read(self, text: str) -> Any:
        """Reads pairs, or a JSON object; an empty text is None."""
        if not text:
            return None
        if not self._is_flat:
            return self.accept(json_of(text, dict))
        if text.lstrip().startswith("{"):
            with suppress(BadValue):
                return self.accept(json_of(text, dict))
        try:
            pairs = to_dict(text)
        except PairsError:
            raise BadValue() from None
        return self._each(pairs, self.key.read, self.value.read)

    def join(self, values: Sequence[Any]) -> Any:
        """Returns the pairs of all values; the last value of a repeated key counts."""
        return {key: item for value in values for key, item in (value or {}).items()}

    def accept(self, data: Any) -> Any:
        """Accepts an object, or a text of one."""
        if not isinstance(data, Mapping):
            return super().accept(data)
        return self._each(data, self.key.accept, self.value.accept)

    def write(self, value: Any) -> str:
        """Returns ``k=v,k2=v2`` if reading that gives the same value, else JSON."""
        if value is None:
            return ""
        if self._is_flat:
            text = ",".join(f"{self.key.write(k)}={self.value.write(v)}" for k, v in value.items())
            with suppress(BadValue):
                if self.read(text) == value:
                    return text
        return json.dumps(plain_data(value))

    def _each(
        self, pairs: Mapping[Any, Any], key: Callable[[Any], Any], value: Callable[[Any], Any]
    ) -> dict[Any, Any]:
        return {_element(key, k, self.key): _element(value, v, self.value) for k, v in pairs.items()}


class UnionConverter(Converter):
    """A union: the first of its types that accepts the text; ``None`` only from data.

    Args:
        options: the converters, those that accept the fewest texts first.
        optional: whether None is one of them.
    """

    def __init__(self, options: Sequence[Converter], optional: bool) -> None:
        self.options = tuple(options)
        self.optional = optional
        self.label = " | ".join(o.label for o in options)
        self.takes = " or ".join(o.takes for o in options)
        self.sample = options[0].sample
        self.repeats = len(options) == 1 and options[0].repeats
        self.is_plain = all(o.is_plain for o in options)

    def read(self, text: str) -> Any:
        """Returns the value of the first type that accepts the text."""
        return self._first(lambda option: option.read(text))

    def read_all(self, texts: Sequence[str]) -> Any:
        """Returns the value of the first type that accepts the texts."""
        return self._first(lambda option: option.read_all(texts))

    def accept(self, data: Any) -> Any:
        """Returns the value of the first type that accepts the data."""
        if data is None and self.optional:
            return None
        return self._first(lambda option: option.accept(data))

    def write(self, value: Any) -> str:
        """Returns a text that reads as the value, if one exists."""
        if value is None:
            return ""
        for option in self.options:
            try:
                text = option.write(value)
                if self.read(text) == value:
                    return text
            except (BadValue, TypeError, AttributeError, ValueError):
                continue
        return str(value)

    def _first(self, take: Callable[[Converter], Any]) -> Any:
        refusals = []
        for option in self.options:
            try:
                return take(option)
            except BadValue as error:
                refusals.append(error)
        if len(refusals) == 1:
            raise refusals[0]
        near = next((r.near for r in refusals if r.near), None)
        raise BadValue(near=near)


class Field(NamedTuple):
    """A field of a dataclass.

    Attributes:
        name: its name.
        converter: the converter of its type.
        annotation: its type, resolved.
        default: a function that returns its default, None if it is required.
    """

    name: str
    converter: Converter
    annotation: Any
    default: Callable[[], Any] | None


class DataclassConverter(Converter):
    """A dataclass: one flag for each field on a command line, a JSON object within other types.

    Args:
        kind: the class.
        fields: its fields.
    """

    sample = "{}"
    is_plain = False

    def __init__(self, kind: type, fields: Sequence[Field]) -> None:
        self.kind = kind
        self.fields = tuple(fields)
        self.label = "JSON"
        self.takes = f"the fields of {kind.__name__} as a JSON object"

    def read(self, text: str) -> Any:
        """Reads a JSON object."""
        return self.accept(json_of(text, dict))

    def accept(self, data: Any) -> Any:
        """Accepts an object with the fields of the class, or an instance."""
        if isinstance(data, self.kind):
            return data
        if not isinstance(data, Mapping):
            return super().accept(data)
        known = {f.name: f for f in self.fields}
        for name in data:
            if name not in known:
                raise BadValue(f"{self.kind.__name__} has no field `{name}`")
        missing = [f.name for f in self.fields if f.default is None and f.name not in data]
        if missing:
            raise BadValue(f"it lacks {', '.join(missing)}")
        values = {n: _element(known[n].converter.accept, v, known[n].converter) for n, v in data.items()}
        return self.kind(**values)

    def write(self, value: Any) -> str:
        """Returns a JSON object."""
        return json.dumps(plain_data(value))


def _element(take: Callable[[Any], Any], given: Any, converter: Converter) -> Any:
    try:
        return take(given)
    except BadValue as error:
        detail = error.detail or f"{shown_value(given)} is not {converter.takes}"
        raise BadValue(detail, error.near) from None
