"""Overlays from a file or URI, in JSON or YAML."""

from __future__ import annotations

from typing import Any

from torchx.specs.overlays import OverlayError


def load(uri: str) -> dict[str, Any]:
    """Returns the mapping that a JSON or YAML file holds.

    Args:
        uri: a path, or any address that fsspec reads.

    Raises:
        OverlayError: it cannot be read or holds no mapping.
    """
    import fsspec
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data, and the one tag that says that a list replaces."""

    def as_tuple(loader: Loader, node: Any) -> tuple[Any, ...]:
        return tuple(loader.construct_sequence(node, deep=True))

    Loader.add_constructor("tag:yaml.org,2002:python/tuple", as_tuple)
    try:
        with fsspec.open(uri, "r", encoding="utf-8") as file:
            data = yaml.load(file.read(), Loader=Loader)  # noqa: S506 (a SafeLoader)
    except (OSError, ValueError, ImportError, yaml.YAMLError) as e:
        raise OverlayError(f"overlay file `{uri}` cannot be read: {e}") from e
    if not isinstance(data, dict):
        raise OverlayError(f"overlay file `{uri}` must hold a mapping, not a {type(data).__name__}")
    return data
