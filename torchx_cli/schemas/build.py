"""JSON Schemas (draft 2020-12) from the types of outputs."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from torchx.json_limits import Object
from torchx_cli.schemas.errors import CODES, ErrorData
from torchx_cli.schemas.outputs import ERROR, OUTPUTS, Output

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TYPES: dict[Any, Object] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    Any: {},
}


def schemas() -> Object:
    """Returns the schema of the output of each command, and of errors."""
    return {**{name: schema_of(name, output) for name, output in OUTPUTS.items()}, "error": error_schema()}


def error_schema() -> Object:
    """Returns the schema of errors, with the known codes."""
    schema = schema_of("error", ERROR)
    schema["$defs"][ErrorData.__name__]["properties"]["code"]["examples"] = list(CODES)
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


def _schema(kind: Any, definitions: Object) -> Object:
    """Returns the schema of a type, and adds those of the objects within it to the definitions."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**_schema(args[0], definitions), "description": args[1]}
    if origin is Literal:
        return {"type": "string", "enum": list(args)}
    if origin is list:
        return {"type": "array", "items": _schema(args[0], definitions)}
    if origin is dict:
        values = _schema(args[1], definitions)
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if origin in (Union, UnionType):
        return _nullable(_schema(args[0], definitions))
    if is_typeddict(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # keeps its place before the objects within it
            definitions[kind.__name__].update(_object(kind, definitions))
        return {"$ref": f"#/$defs/{kind.__name__}"}
    return dict(_TYPES[kind])


def _nullable(schema: Object) -> Object:
    if "type" in schema and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _object(kind: Any, definitions: Object) -> Object:
    hints = get_type_hints(kind, include_extras=True)
    meanings = _meanings(kind.__module__)[kind.__name__]
    properties = {name: _schema(hint, definitions) for name, hint in hints.items()}
    for name, meaning in meanings.items():
        properties[name]["description"] = meaning
    return {
        "type": "object",
        "description": (kind.__doc__ or "").strip(),
        "properties": properties,
        "required": [name for name in hints if name in kind.__required_keys__],
        "additionalProperties": True,
    }


@cache
def _meanings(module: str) -> dict[str, dict[str, str]]:
    """Returns the meanings of the keys of each type of a module, which its source has below them."""
    meanings: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        name, others, body = "", list[ast.AST](), list[ast.stmt]()
        if isinstance(node, ast.ClassDef):
            name, others, body = node.name, [*node.bases], node.body
        elif isinstance(node, ast.Assign):  # a type with the keys of another one
            name, others = ast.unparse(node.targets[0]), [*ast.walk(node.value)]
        keys = meanings[name] = {}
        for other in others:
            keys.update(meanings.get(ast.unparse(other), {}))
        for declared, text in pairwise(body):
            if isinstance(declared, ast.AnnAssign) and isinstance(text, ast.Expr):
                keys[ast.unparse(declared.target)] = ast.literal_eval(text.value)
    return meanings
