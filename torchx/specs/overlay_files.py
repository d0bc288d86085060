"""Overlays from a file or URI, in JSON or YAML."""

from __future__ import annotations

from typing import Any

from torchx.errors import UsageError
from torchx.specs.overlays import OverlayError
from torchx.specs.yaml_check import LONGEST, load_checked


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
            text = file.read(LONGEST + 1)
        data = _load(text, Loader, source=f"overlay file `{uri}`")
    except OverlayError:
        raise
    except RecursionError:
        raise OverlayError(f"overlay file `{uri}` cannot be read: it is nested too deeply") from None
    except (OSError, ValueError, ImportError, yaml.YAMLError) as e:
        raise OverlayError(f"overlay file `{uri}` cannot be read: {e}") from e
    if not isinstance(data, dict):
        raise OverlayError(f"overlay file `{uri}` must hold a mapping, not a {type(data).__name__}")
    return data


def _load(text: str, loader: Any, *, source: str) -> Any:
    """The one place in which overlays are parsed; the limits are those of all YAML that others wrote."""
    try:
        return load_checked(text, loader, source=source)
    except UsageError as error:
        raise OverlayError(error.message, hint=error.hint) from None
