"""The tables of JSON output, from its schemas: for docs/outputs.md of the site."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchx_cli.schemas.build import schemas
from torchx_cli.schemas.errors import CODES
from torchx_cli.schemas.outputs import OUTPUTS

NAMES = {"boolean": "true or false"}


def name_of(schema: dict[str, Any]) -> str:
    """Returns the type of a value, as readers of JSON know it.

    >>> name_of({"type": ["integer", "null"]}), name_of({"type": "array", "items": {"$ref": "#/$defs/Rank"}})
    ('integer or null', 'list: [Rank](#rank)')
    """
    if "$ref" in schema:
        name = object_of(schema)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(name_of(each) for each in schema["anyOf"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(name_of({**schema, "type": each}) for each in kind)
    if kind == "array":
        return f"list: {name_of(schema['items'])}" if schema["items"] else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {name_of(schema['additionalProperties'])}"
    return str(NAMES.get(kind, kind))


def object_of(schema: dict[str, Any]) -> str:
    """Returns the name of the object of an output or of the items of a list, or an empty string."""
    reference = str(schema.get("items", schema).get("$ref", ""))
    return reference.rpartition("/")[2]


def table(name: str, schema: dict[str, Any]) -> str:
    """Returns the table of an object."""
    rows = []
    for key, value in schema["properties"].items():
        mark = "" if key in schema["required"] else " *"
        meaning = value.get("description", "").replace("|", "\\|")
        rows.append(f"| `{key}`{mark} | {name_of(value)} | {meaning} |")
    return "\n".join([f"<!-- {name} -->", "| key | value | meaning |", "|---|---|---|", *rows, ""])


def objects(names: Iterable[str]) -> dict[str, Any]:
    """Returns the schemas of all objects in the outputs of some commands, by name."""
    every = schemas()
    return {name: kind for command in names for name, kind in every[command].get("$defs", {}).items()}


def section(title: str, schema: dict[str, Any], flags: Iterable[str], present: dict[str, str]) -> list[str]:
    """Returns the lines about an output: its description, and the tables of its forms.

    Args:
        title: the commands.
        schema: the schema of the output.
        flags: the flags that change its form, as the schema has their forms after the first one.
        present: the sections that have the table of an object, by object; those of this one are added.
    """
    lines = [f"## {title}", schema["description"], ""]
    forms = schema.get("anyOf", [schema])
    for form, flag in zip(forms, ["", *flags], strict=True):
        if flag:
            lines += [f"With `{flag}`:", ""]
        name, here = object_of(form), f"{title} {flag}".strip()
        if "items" in form and name:
            lines += ["A list of these objects:", ""]
        if not name:
            lines.append(f"Type: {name_of(form)}.\n")
        elif present.setdefault(name, here) == here:
            lines.append(table(name, schema["$defs"][name]))
        else:
            lines.append(f"The object of `{present[name]}`.\n")
    return lines


def generated() -> str:
    """Returns the tables of all commands, of the objects within their outputs, and of the codes of errors."""
    every = schemas()
    commands: dict[int, list[str]] = {}
    for name, output in OUTPUTS.items():
        commands.setdefault(id(output), []).append(name)
    lines: list[str] = []
    present: dict[str, str] = {}
    for names in commands.values():
        lines += section(", ".join(names), every[names[0]], OUTPUTS[names[0]].variants, present)
    lines += section("Errors", every["error"], (), present)
    lines += [
        "| code | cause |",
        "|---|---|",
        *(f"| `{code}` | {cause} |" for code, cause in CODES.items()),
        "",
    ]
    lines += ["## Objects within these"]
    for name, kind in objects(every).items():
        if name not in present:
            lines += [f"### {name}", kind["description"], "", table(name, kind)]
    return "\n".join(lines)
