"""Overlays: changes of a scheduler's request for which an application has no field."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.errors import UsageError
from torchx.json_limits import Data, Object
from torchx.lazy import lazy_imports
from torchx.machine.files import read_file
from torchx.specs.app import AppDef, Role
from torchx.specs.overlay_merge import (
    DEL,
    JOIN,
    PUT,
    Overlay,
    OverlayTypeError,
    add_overlay,
    apply_overlay,
    operator_of,
)

with lazy_imports:
    import fsspec

    from torchx import yaml_limits

__all__ = [
    "DEL",
    "JOIN",
    "PUT",
    "Overlay",
    "OverlayError",
    "OverlaySpec",
    "OverlayTypeError",
    "apply_overlay",
    "get_overlay",
    "set_overlay",
    "validate_overlay",
]

# marks a namespace of the metadata that contains overlays by kind, not a single overlay
_BY_KIND = "__torchx_overlays__"


class OverlayError(UsageError, ValueError):
    """An overlay has forbidden content (a UsageError, also a ValueError)."""

    code = "invalid_overlay"


def set_overlay(target: AppDef | Role, namespace: str, kind: str, overlay: Any) -> None:
    """Adds an overlay to the metadata of an application or a role; keeps earlier ones.

    Mappings are merged and lists appended as by :func:`apply_overlay`; operators take effect
    when the scheduler applies the whole. The last of different operations on one key counts.

    Args:
        target: the application or role; changed.
        namespace: the scheduler.
        kind: which part of its request, e.g. ``V1Pod``.
        overlay: a mapping or a dataclass.

    Raises:
        OverlayError: the namespace contains the path of a file, which cannot be extended.
    """
    metadata: Object = target.metadata
    noted = metadata.get(namespace, {})
    if not isinstance(noted, dict):
        raise OverlayError(
            f"the metadata `{namespace}` of `{target.name}` is `{noted}`, not a mapping to add an overlay to",
            hint="write this overlay into that file, or set all overlays in code",
        )
    merged = copy.deepcopy(noted.get(kind, {}))
    add_overlay(merged, _as_mapping(overlay))
    metadata[namespace] = {**noted, _BY_KIND: True, kind: merged}


def get_overlay(target: AppDef | Role, namespace: str, kind: str, *, flat_fallback: bool = True) -> Overlay:
    """Returns a copy of the overlay; may be empty.

    A text in the namespace is the path or URI of a JSON or YAML file with the overlays by kind (YAML may
    use ``!!python/tuple``).

    Args:
        target: an application or a role.
        namespace: the scheduler.
        kind: which part of its request.
        flat_fallback: whether a namespace that was not written by :func:`set_overlay` and does not have the
            kind is itself the overlay, as in older files.

    Raises:
        OverlayError: the file cannot be read or does not contain a mapping.
    """
    metadata: Data = target.metadata
    noted = metadata.get(namespace, {})
    if isinstance(noted, str):
        noted = load_overlay_file(noted)
    if not isinstance(noted, dict):
        raise OverlayError(f"the metadata `{namespace}` of `{target.name}` is {noted!r}, not a mapping")
    found = noted.get(kind)
    if found is None:
        found = {}
        if flat_fallback and _BY_KIND not in noted:
            found = noted
    return copy.deepcopy(dict(found))


def validate_overlay(
    overlay: Data,
    *,
    blocklist: Collection[str] | None = None,
    forbidden_keys: Collection[str] | None = None,
    overlay_name: str = "overlay",
    suggestion: str = "",
) -> None:
    """Rejects an overlay with forbidden keys; handles operators.

    Args:
        overlay: the overlay.
        blocklist: keys that fields of the application or role set.
        forbidden_keys: keys that belong to another kind of overlay.
        overlay_name: its name in errors.
        suggestion: hint of the error about forbidden keys.

    Raises:
        OverlayError: it contains one of them.
    """
    keys = [operator_of(written)[1] for written in overlay]
    blocked = [f"`{overlay_name}.{key}`" for key in keys if key in (blocklist or ())]
    if blocked:
        raise OverlayError(
            f"{', '.join(blocked)} cannot be set by an overlay",
            hint="set the field of the role or application",
        )
    misplaced = [f"`{key}`" for key in keys if key in (forbidden_keys or ())]
    if misplaced:
        raise OverlayError(f"{', '.join(misplaced)} has no place in {overlay_name}", hint=suggestion or None)


@dataclass(frozen=True)
class OverlaySpec:
    """One kind of overlay that a scheduler takes.

    Attributes:
        namespace: the scheduler.
        kind: which part of its request.
        blocklist: keys that fields of the application or role set.
    """

    namespace: str
    kind: str
    blocklist: Sequence[str] = ()

    def set(self, target: AppDef | Role, overlay: Any) -> None:
        """Checks an overlay and notes it, see :func:`set_overlay`."""
        validate_overlay(_as_mapping(overlay), blocklist=self.blocklist, overlay_name=self.kind)
        set_overlay(target, self.namespace, self.kind, overlay)

    def get(self, target: AppDef | Role) -> Overlay:
        """Returns the overlay, checked, since it may come from a file; see :func:`get_overlay`."""
        overlay = get_overlay(target, self.namespace, self.kind)
        validate_overlay(overlay, blocklist=self.blocklist, overlay_name=self.kind)
        return overlay


def _as_mapping(overlay: Any) -> Data:
    """Returns a mapping; for a dataclass, of the fields that are not None."""
    if isinstance(overlay, Mapping):
        return overlay
    if dataclasses.is_dataclass(overlay) and not isinstance(overlay, type):
        return dataclasses.asdict(
            overlay, dict_factory=lambda pairs: {k: v for k, v in pairs if v is not None}
        )
    raise OverlayError(f"an overlay is a mapping or a dataclass, got {overlay!r}")


def load_overlay_file(uri: str) -> Object:
    """Returns the mapping in a JSON or YAML file.

    Args:
        uri: a path, or a URL that fsspec reads.

    Raises:
        OverlayError: it cannot be read or is not a mapping.
    """
    try:
        text = _text(uri, yaml_limits.LARGEST)
        data = yaml_limits.load_yaml(text, source=f"overlay file `{uri}` cannot be read", tuples=True)
    except yaml_limits.YamlError as e:
        raise OverlayError(e.message) from e
    except (OSError, ValueError, ImportError) as e:
        raise OverlayError(f"overlay file `{uri}` cannot be read: {e}") from e
    if not isinstance(data, dict):
        raise OverlayError(f"overlay file `{uri}` must contain a mapping, not a {type(data).__name__}")
    return data


def _text(uri: str, most: int) -> str:
    """Returns the text of a file, cut off slightly above a limit in bytes."""
    fs, path = fsspec.core.url_to_fs(uri)
    if "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol):
        return read_file(path, 4 * most, own=False, follow=True).decode("utf-8")
    with fs.open(path, "rb") as file:
        data = bytearray()  # a read may return less than requested
        while len(data) <= 4 * most and (piece := file.read(4 * most + 1 - len(data))):
            data += piece
    return data.decode("utf-8")
