"""Reading untrusted YAML: plain data only, within limits.

A few lines of YAML can expand to billions of values, since an alias repeats its anchor. So the size, the
depth and the number of values with expanded aliases are checked before anything is built.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torchx.errors import UsageError
from torchx.lazy import lazy_imports

with lazy_imports:
    import yaml

LARGEST = 1 << 20
"""Maximum characters of a YAML text."""

DEEPEST = 100
"""Maximum levels of nested mappings and sequences."""

MOST = 100_000
"""Maximum number of values, counting expanded aliases."""


class YamlError(UsageError):
    """A YAML text is invalid or exceeds a limit; the message begins with its source."""

    code = "invalid_yaml"


def load_yaml(text: str, *, source: str, tuples: bool = False) -> object:
    """Returns the plain data of a YAML text with a single document.

    Args:
        text: the YAML.
        source: its source, for errors.
        tuples: accept the tag `!!python/tuple` for a sequence.

    Raises:
        YamlError: it is invalid, contains a tag that is not plain data, or exceeds a limit.
    """
    if len(text) > LARGEST:
        raise YamlError(f"{source}: more than {LARGEST:,} characters")
    loader = _loader(tuples)
    try:
        _check(text, loader, source)
        return yaml.load(text, Loader=loader)  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        raise YamlError(f"{source}: {_reason(error)}") from None
    except (ValueError, OverflowError, ArithmeticError, AttributeError, TypeError) as error:
        # invalid dates and numbers, and merges of values that are not mappings
        raise YamlError(f"{source}: not valid YAML: {error}") from None
    except RecursionError:
        raise YamlError(f"{source}: nested too deeply") from None


def _check(text: str, loader: Any, source: str) -> None:
    """Checks a text before anything is built."""
    sizes: dict[str, int] = {}  # by anchor
    begun: list[
        tuple[str | None, int]
    ] = []  # each open mapping or sequence: its anchor, and the values before it
    total = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            begun.append((event.anchor, total))
            total += 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            anchor, before = begun.pop()
            if anchor:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in begun):
                raise YamlError(f"{source}: `*{event.anchor}` refers to a collection that contains itself")
            total += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        if len(begun) > DEEPEST:
            raise YamlError(f"{source}: nested more than {DEEPEST} levels deep")
        if total > MOST:
            raise YamlError(f"{source}: more than {MOST:,} values, counting expanded aliases")


def dump(data: Any, *, unicode: bool = False, width: int = 80) -> str:
    """Returns plain data as YAML.

    Args:
        data: the data.
        unicode: write all printable characters; otherwise only those of ASCII.
        width: columns after which long texts are wrapped.

    >>> dump({"b": 1, "a": ["x"]})
    'b: 1\\na:\\n- x\\n'
    """
    text: str = yaml.dump(data, Dumper=_dumper(), sort_keys=False, allow_unicode=unicode, width=width)
    return text


@cache
def _dumper() -> Any:
    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the fast one, where it was built

    class Dumper(base):  # type: ignore[misc]
        """Plain data, in which bytes that are not UTF-8 are escaped."""

    def as_text(dumper: Any, text: str) -> Any:
        return dumper.represent_str(text.encode("utf-8", "backslashreplace").decode())

    Dumper.add_representer(str, as_text)
    Dumper.add_multi_representer(str, as_text)  # subclasses
    return Dumper


def _reason(error: Exception) -> str:
    """Returns the reason and the place of an error, one line."""
    mark = getattr(error, "problem_mark", None)
    where = ""
    if mark is not None:
        where = f"line {mark.line + 1}: "
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0] or "not valid YAML"
    if "maximum nesting depth" in problem:  # newer parsers have a limit of their own, and find it first
        problem = f"nested more than {DEEPEST} levels deep"
    return f"{where}{problem}"


@cache
def _loader(tuples: bool) -> Any:
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast one, where it was built

    class Loader(base):  # type: ignore[misc]
        """Plain data, and tuples."""

    def as_tuple(loader: Any, node: Any) -> tuple[Any, ...]:
        return tuple(loader.construct_sequence(node, deep=True))

    if tuples:
        Loader.add_constructor("tag:yaml.org,2002:python/tuple", as_tuple)
    return Loader
