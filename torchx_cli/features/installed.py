"""The installed features, found by their entry points; a command that uses none does not search for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from torchx.errors import PluginError
from torchx.features import GROUP, Feature
from torchx.plugins.foreign import foreign
from torchx.plugins.groups import entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

HINT = "see: torchx plugins"


def points() -> dict[str, EntryPoint]:
    """Returns the entry points of the features by name; the first one of a name counts."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(GROUP):
        found.setdefault(point.name, point)
    return found


def load(point: EntryPoint) -> Feature:
    """Imports a feature and returns it.

    Raises:
        PluginError: it cannot be imported or created, or is not a feature.
    """
    with foreign(f"the feature `{point.name}` cannot be loaded", HINT):
        made = point.load()()
        if not isinstance(made, Feature):
            raise PluginError(
                f"the feature `{point.name}` is not a class derived from {GROUP}.Feature", hint=HINT
            )
        return made


def all_features() -> Iterator[tuple[str, Feature]]:
    """Yields the name of each installed feature with the feature; skips those that cannot be loaded."""
    for name, point in points().items():
        with suppress(PluginError):  # `torchx plugins` shows them
            yield name, load(point)
