"""JSON Schemas (draft 2020-12) from the descriptions in objects.txt."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torchx_cli.schemas.errors import CODES
from torchx_cli.schemas.outputs import ERROR, OUTPUTS, Output

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_OBJECT = re.compile(r"(\w+)(?:\(([\w, ]+)\))?: ?(.*)")
_KEY = re.compile(r"    (\w+)(\??) \(([^)]+)\): (.+)")
_BASIC_TYPES = ("string", "boolean", "integer", "number", "object")


class Key(NamedTuple):
    """A key of an object.

    Attributes:
        type: the type of its value.
        meaning: one line about it.
        required: whether all outputs have it.
    """

    type: str
    meaning: str
    required: bool


class Object(NamedTuple):
    """An object in JSON output, with its keys by name."""

    about: str
    keys: dict[str, Key]


@cache
def descriptions() -> tuple[dict[str, Object], dict[str, str]]:
    """Returns the described objects by name, and the types that have a name."""
    objects: dict[str, Object] = {}
    types: dict[str, str] = {}
    keys: dict[str, Key] = {}
    for line in Path(__file__).with_name("objects.txt").read_text(encoding="utf-8").splitlines():
        name, is_type, kind = line.partition(" = ")
        if is_type and name.isidentifier():
            types[name] = kind
        elif row := _KEY.fullmatch(line):
            keys[row[1]] = Key(row[3], row[4], not row[2])
        elif head := _OBJECT.fullmatch(line):
            keys = {}
            for base in filter(None, (head[2] or "").split(", ")):
                keys.update(objects[base].keys)
            objects[head[1]] = Object(head[3], keys)
    return objects, types


def schemas() -> dict[str, Any]:
    """Returns the schema of the output of each command, and of errors."""
    return {**{name: schema_of(name, output) for name, output in OUTPUTS.items()}, "error": error_schema()}


def error_schema() -> dict[str, Any]:
    """Returns the schema of errors, with the known codes."""
    schema = schema_of("error", ERROR)
    schema["$defs"]["ErrorData"]["properties"]["code"]["examples"] = list(CODES)
    return schema


def schema_of(name: str, output: Output) -> dict[str, Any]:
    """Returns the schema of the output of a command.

    Args:
        name: the command, or ``error``.
        output: its output.
    """
    definitions: dict[str, Any] = {}
    shapes = [_schema(kind, definitions) for kind in (output.kind, *output.variants.values())]
    about = f"{output.about} Each line is such an object." if output.is_stream else output.about
    return {
        "$schema": DIALECT,
        "title": "the error of a command" if name == "error" else f"torchx {name} -o json",
        "description": about,
        **(shapes[0] if len(shapes) == 1 else {"anyOf": shapes}),
        **({"$defs": definitions} if definitions else {}),
    }


def _schema(kind: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a type, and adds those of the objects within it to the definitions."""
    objects, types = descriptions()
    kind = types.get(kind, kind)
    if kind.endswith(" or null"):
        return _nullable(_schema(kind.removesuffix(" or null"), definitions))
    form, _, inner = kind.partition(" of ")
    if form == "one":
        return {"type": "string", "enum": inner.split(", ")}
    if form == "list":
        return {"type": "array", "items": _schema(inner, definitions)}
    if inner:
        return {"type": "object", "additionalProperties": _schema(inner, definitions)}
    if kind == "any":
        return {}
    if kind in _BASIC_TYPES:
        return {"type": kind}
    if kind not in definitions:
        definitions[kind] = {}  # keeps its place before the objects within it
        definitions[kind].update(_object(objects[kind], definitions))
    return {"$ref": f"#/$defs/{kind}"}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "type" in schema and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _object(described: Object, definitions: dict[str, Any]) -> dict[str, Any]:
    properties = {
        name: {**_schema(key.type, definitions), "description": key.meaning}
        for name, key in described.keys.items()
    }
    return {
        "type": "object",
        "description": described.about,
        "properties": properties,
        "required": [name for name, key in described.keys.items() if key.required],
        "additionalProperties": True,
    }
