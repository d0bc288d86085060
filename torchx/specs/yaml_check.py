"""Limits on YAML that others wrote: its size, its depth, and the aliases that repeat parts of it."""

from __future__ import annotations

from typing import Any

from torchx.errors import UsageError

LONGEST = 1_000_000
"""Characters of a document, at most."""
DEEPEST = 100
"""Levels of nesting, at most."""
MOST_NODES = 100_000
"""Values of a document, at most, when its aliases are written out."""


def check_yaml(text: str, *, source: str) -> None:
    """Refuses YAML that would take much time or memory to read; whether it is valid is not checked.

    An alias counts as all values of the part it repeats: a few lines of nested aliases make billions.

    Args:
        text: the document.
        source: its name in the error.

    Raises:
        UsageError: it is too long, too deep, or too large with its aliases written out.

    >>> check_yaml("a: &x [1, 2]\\nb: *x", source="it")
    """
    if len(text) > LONGEST:
        raise UsageError(f"{source} has {len(text):,} characters, more than the {LONGEST:,} that are read")
    import yaml

    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    total = 0
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent):
                if event.anchor in [anchor for anchor, _ in opened]:
                    raise UsageError(f"{source} has a part that holds itself: `*{event.anchor}`")
                total += sizes.get(str(event.anchor), 1)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                opened.append((event.anchor, total))
                total += 1
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                anchor, before = opened.pop()
                if anchor is not None:
                    sizes[anchor] = total - before
            elif isinstance(event, yaml.ScalarEvent):
                total += 1
                if event.anchor is not None:
                    sizes[event.anchor] = 1
            if len(opened) > DEEPEST:
                raise UsageError(f"{source} is nested more than {DEEPEST} levels deep")
            if total > MOST_NODES:
                raise UsageError(f"{source} has more than {MOST_NODES:,} values, its aliases written out")
    except (yaml.YAMLError, ValueError, RecursionError):
        return  # not valid YAML: the reader has its own error for that


def load_checked(text: str, loader: Any, *, source: str) -> Any:
    """Returns the value of a YAML document within the limits of :func:`check_yaml`.

    Args:
        text: the document.
        loader: a subclass of ``yaml.SafeLoader``.
        source: its name in errors.

    Raises:
        UsageError: it is beyond the limits.
        YAMLError: it is not valid.
    """
    import yaml

    check_yaml(text, source=source)
    return yaml.load(text, Loader=loader)  # noqa: S506 (a SafeLoader)
