"""YAML from outside of the program: plain data only, read within limits.

A few lines of YAML can stand for billions of values, since an alias repeats its anchor. Before
anything is made of a text, its size and depth are checked, and how many values it holds when all aliases are
written out.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torchx.errors import UsageError

LARGEST = 1 << 20
"""Characters of a YAML text that are read."""

DEEPEST = 100
"""Levels of mappings and sequences within one another."""

MOST = 100_000
"""Values that a text may hold, with all aliases written out."""


class YamlError(UsageError):
    """A YAML text is not valid, or passes a limit; the message begins with where it came from."""


def load_yaml(text: str, *, source: str, tuples: bool = False) -> object:
    """Returns the plain data that a YAML text holds: the first document of it, and there may be no other.

    Args:
        text: the YAML.
        source: where it came from, for the error.
        tuples: the tag `!!python/tuple` makes a tuple of a sequence; an error otherwise.

    Raises:
        YamlError: it is not valid, names a tag that is not plain data, or passes a limit.
    """
    import yaml  # on demand: it takes long to import

    if len(text) > LARGEST:
        raise YamlError(f"{source}: more than {LARGEST:,} characters")
    loader = _loader(tuples)
    try:
        _check(text, loader, source)
        return yaml.load(text, Loader=loader)  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        raise YamlError(f"{source}: {_reason(error)}") from None
    except (ValueError, OverflowError, ArithmeticError, AttributeError, TypeError) as error:
        # values that have the look of a date or a number and are none, and merges of what is no mapping
        raise YamlError(f"{source}: not valid YAML: {error}") from None
    except RecursionError:
        raise YamlError(f"{source}: nested too deeply") from None


def _check(text: str, loader: Any, source: str) -> None:
    """Looks through a text before anything is made of it."""
    import yaml

    sizes: dict[str, int] = {}  # by anchor
    begun: list[tuple[str | None, int]] = []  # each mapping or sequence: its anchor, and what came before it
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


def _reason(error: Exception) -> str:
    """Returns why a text is not valid, in one line with its place."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0] or "not valid YAML"
    return f"{where}{problem}"


@cache
def _loader(tuples: bool) -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast one, where it was built

    class Loader(base):  # type: ignore[misc]
        """Plain data, and the one tag that says that a list replaces."""

    def as_tuple(loader: Any, node: Any) -> tuple[Any, ...]:
        return tuple(loader.construct_sequence(node, deep=True))

    if tuples:
        Loader.add_constructor("tag:yaml.org,2002:python/tuple", as_tuple)
    return Loader
