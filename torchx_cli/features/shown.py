"""The output of features of other packages: rows of `status`, their JSON schemas, checks of `doctor`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from torchx.errors import PluginError
from torchx.features import values_of
from torchx.json_limits import Object
from torchx.plugins.foreign import foreign
from torchx.scheduling.findings import Finding, Verdict
from torchx.settings import FEATURE
from torchx_cli.features.installed import HINT, all_features, load, points
from torchx_cli.terminal.masking import mask

if TYPE_CHECKING:
    from torchx.features import Feature

TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}


def rows(metadata: Mapping[str, str]) -> dict[str, Object]:
    """Returns the rows of the features with which an application was submitted, by name.

    A feature that is not installed, or fails, has the row `{"error": ...}`.
    """
    found = points()
    names = [key.removeprefix(FEATURE) for key in metadata if key.startswith(FEATURE)]
    shown = {}
    for name in names:
        try:
            if name not in found:
                raise PluginError(f"the feature `{name}` is not installed here")
            feature = load(found[name])
            with foreign(f"the feature `{name}` failed", HINT):
                shown[name] = dict(feature.row(values_of(metadata, name)))
        except PluginError as error:
            shown[name] = {"error": error.message}
    return {name: mask(row) for name, row in shown.items() if row}


def labels(metadata: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the rows as text, by name."""
    return [
        (name, ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in row.items()))
        for name, row in rows(metadata).items()
    ]


def add_rows(schemas: Object) -> None:
    """Adds the schemas of the rows of all installed features to that of the output of `status`."""
    properties = schemas["status"]["$defs"]["Status"]["properties"]["features"]
    properties["properties"] = {
        name: row_schema(feature) for name, feature in all_features() if feature.row_type is not None
    }


def row_schema(feature: Feature) -> Object:
    """Returns the schema of the rows of a feature, from their type."""
    kind: Any = feature.row_type
    hints = get_type_hints(kind)
    return {
        "type": "object",
        "description": inspect.getdoc(kind) or "",
        "properties": {key: schema_of(value) for key, value in hints.items()},
        "required": sorted(kind.__required_keys__),
        "additionalProperties": True,
    }


def schema_of(kind: Any) -> Object:
    """Returns the schema of a type; that of other types than those of JSON allows anything."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in TYPES:
        return {"type": TYPES[kind]}
    if origin is list:
        return {"type": "array", "items": schema_of(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if inner:
        return {"anyOf": [schema_of(each) for each in inner]}
    return {}


def checks() -> dict[str, list[Finding]]:
    """Returns the results of the checks of the installed features, by feature; also the failures to load."""
    results: dict[str, list[Finding]] = {}
    for name, point in points().items():
        try:
            feature = load(point)
            with foreign(f"the feature `{name}` failed", HINT):
                findings = list(feature.checks())
        except PluginError as error:
            findings = [Finding("plugin", Verdict.WRONG, error.message, error.hint or "")]
        if findings:
            results[f"feature {name}"] = findings
    return results
