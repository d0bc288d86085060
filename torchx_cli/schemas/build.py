"""JSON Schemas (draft 2020-12) of the outputs, from the table of their objects.

The table is objects.txt, with a line ``KEY TYPE: MEANING`` for each key of an object; a key with ``*`` may
be absent. An object ``NAME < OTHER`` begins with the keys of another one. ``NAME = TYPE: MEANING`` names a
type. A type is one of JSON, a name, ``[TYPE]`` for a list, ``{TYPE}`` for an object with any keys, ``A|B``
for one of several strings, or ``any``; with ``?`` it may be null.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from torchx.json_limits import Object
from torchx_cli.schemas.errors import CODES
from torchx_cli.schemas.outputs import ERROR, OUTPUTS, Output

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Key(NamedTuple):
    """A key of an object, or a named type.

    Attributes:
        kind: its type.
        meaning: one sentence about it; empty for that of the type.
        is_required: whether it is always present.
    """

    kind: str
    meaning: str
    is_required: bool = True


class Table(NamedTuple):
    """The table of the objects.

    Attributes:
        about: one sentence about each object.
        keys: its keys by name.
        types: the named types.
    """

    about: dict[str, str]
    keys: dict[str, dict[str, Key]]
    types: dict[str, Key]


def schemas() -> Object:
    """Returns the schema of the output of each command, and of errors."""
    return {**{name: schema_of(name, output) for name, output in OUTPUTS.items()}, "error": error_schema()}


def error_schema() -> Object:
    """Returns the schema of errors, with the known codes."""
    schema = schema_of("error", ERROR)
    schema["$defs"]["ErrorData"]["properties"]["code"]["examples"] = list(CODES)
    return schema


def schema_of(name: str, output: Output) -> Object:
    """Returns the schema of the output of a command.

    Args:
        name: the command, or ``error``.
        output: its output.
    """
    definitions: Object = {}
    shapes = [_schema(kind, definitions) for kind in (output.kind, *output.variants.values())]
    if output.is_stream:
        about = f"{output.about} Each line is such an object."
    else:
        about = output.about
    return {
        "$schema": DIALECT,
        "title": "the error of a command" if name == "error" else f"torchx {name} -o json",
        "description": about,
        **(shapes[0] if len(shapes) == 1 else {"anyOf": shapes}),
        **({"$defs": definitions} if definitions else {}),
    }


def _schema(kind: str, definitions: Object) -> Object:
    """Returns the schema of a type, and adds those of the objects within it to the definitions."""
    table = _table()
    if kind.endswith("?"):
        return _nullable(_schema(kind[:-1], definitions))
    if kind.startswith("["):
        return {"type": "array", "items": _schema(kind[1:-1], definitions)}
    if kind.startswith("{"):
        values = _schema(kind[1:-1], definitions)
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if "|" in kind:
        return {"type": "string", "enum": kind.split("|")}
    if kind in table.types:
        return _described(table.types[kind], definitions)
    if kind in table.keys:
        if kind not in definitions:
            definitions[kind] = {}  # keeps its place before the objects within it
            definitions[kind].update(_object(kind, definitions))
        return {"$ref": f"#/$defs/{kind}"}
    if kind == "any":
        return {}
    return {"type": kind}


def _nullable(schema: Object) -> Object:
    if "type" in schema and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _described(key: Key, definitions: Object) -> Object:
    schema = _schema(key.kind, definitions)
    if key.meaning:
        schema["description"] = key.meaning
    return schema


def _object(name: str, definitions: Object) -> Object:
    table = _table()
    keys = table.keys[name]
    return {
        "type": "object",
        "description": table.about[name],
        "properties": {key: _described(facts, definitions) for key, facts in keys.items()},
        "required": [key for key, facts in keys.items() if facts.is_required],
        "additionalProperties": True,
    }


@cache
def _table() -> Table:
    table, keys = Table({}, {}, {}), dict[str, Key]()
    text = Path(__file__).with_name("objects.txt").read_text(encoding="utf-8")
    for line in filter(None, text.splitlines()):
        head, _, meaning = line.partition(":")
        name, *more = head.split()
        if line.startswith(" "):
            keys[name.rstrip("*")] = Key(more[0], meaning.strip(), not name.endswith("*"))
        elif more[:1] == ["="]:
            table.types[name] = Key(more[1], meaning.strip())
        else:
            keys = table.keys[name] = {}
            table.about[name] = meaning.strip()
            for other in more[1:]:
                for key, facts in table.keys[other.rstrip("*")].items():
                    keys[key] = facts._replace(is_required=facts.is_required and not other.endswith("*"))
    return table
