"""Overlays from a file or URI, in JSON or YAML."""

from __future__ import annotations

from typing import Any

from torchx.specs.overlays import OverlayError


def load(uri: str) -> dict[str, Any]:
    """Returns the mapping in a JSON or YAML file.

    Args:
        uri: a path, or a URL that fsspec reads.

    Raises:
        OverlayError: it cannot be read or is not a mapping.
    """
    from torchx.yaml_limits import LARGEST, YamlError, load_yaml

    try:
        text = _text(uri, LARGEST)
        data = load_yaml(text, source=f"overlay file `{uri}` cannot be read", tuples=True)
    except YamlError as e:
        raise OverlayError(e.message) from e
    except (OSError, ValueError, ImportError) as e:
        raise OverlayError(f"overlay file `{uri}` cannot be read: {e}") from e
    if not isinstance(data, dict):
        raise OverlayError(f"overlay file `{uri}` must contain a mapping, not a {type(data).__name__}")
    return data


def _text(uri: str, most: int) -> str:
    """Returns the text of a file, cut off slightly above a limit in bytes."""
    import fsspec

    fs, path = fsspec.core.url_to_fs(uri)
    if "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol):
        from torchx.machine.files import read_file

        return read_file(path, 4 * most, own=False, follow=True).decode("utf-8")
    with fs.open(path, "rb") as file:
        data: bytes = file.read(4 * most + 1)
    return data.decode("utf-8")
