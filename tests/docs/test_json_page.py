"""The tables of docs/json.md are those of the types of JSON output.

`python tests/docs/test_json_page.py` writes them again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from torchx_cli.schemas.outputs import ERROR, OUTPUTS

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
TABLE = re.compile(r"<!-- (\w+) -->\n(?:\|.*\n)*")
NAMES = {str: "string", bool: "true or false", int: "integer", float: "number", NoneType: "null", Any: "any"}


def name_of(kind: Any) -> str:
    """The type of a value, as readers of JSON know it."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return name_of(args[0])
    if origin in (Union, UnionType):
        return f"{name_of(args[0])} or null"
    if origin is Literal:
        return "string"
    if origin is list:
        return "list" if args[0] is Any else f"list: {name_of(args[0])}"
    if origin is dict:
        return "object" if args[1] is Any else f"object of {name_of(args[1])}"
    return f"[{kind.__name__}](#{kind.__name__.lower()})" if is_typeddict(kind) else NAMES[kind]


def meaning_of(hint: Any) -> str:
    """The description of a key."""
    return str(get_args(hint)[1]).replace("|", "\\|")


def table(kind: Any) -> str:
    """The table of an object."""
    hints = get_type_hints(kind, include_extras=True)
    rows = [
        f"| `{name}`{'' if name in kind.__required_keys__ else ' *'} | {name_of(hint)} | {meaning_of(hint)} |"
        for name, hint in hints.items()
    ]
    return "\n".join([f"<!-- {kind.__name__} -->", "| key | value | meaning |", "|---|---|---|", *rows, ""])


def objects() -> dict[str, Any]:
    """All objects of all outputs, by name."""
    found: dict[str, Any] = {}

    def add(kind: Any) -> None:
        if is_typeddict(kind):
            if kind.__name__ not in found:
                found[kind.__name__] = kind
                for hint in get_type_hints(kind, include_extras=True).values():
                    add(hint)
            return
        for part in get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind):
            add(part)

    for output in (*OUTPUTS.values(), ERROR):
        for kind in (output.kind, *output.variants.values()):
            add(kind)
    return found


def generated(page: str) -> str:
    """The page with the tables of today."""
    kinds = objects()
    return TABLE.sub(lambda found: table(kinds[found[1]]) if found[1] in kinds else found[0], page)


def test_each_object_has_its_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert sorted(TABLE.findall(page)) == sorted(objects()), "one `<!-- NAME -->` on the page for each object"
    assert generated(page) == page, "to write the tables again: python tests/docs/test_json_page.py"


def sections() -> Iterator[str]:
    yield from re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_each_command_has_a_section() -> None:
    named = {part for title in sections() for part in title.split(", ")}
    commands = {name.replace("tracker list ", "tracker ") for name in OUTPUTS}
    assert commands <= named, commands - named


if __name__ == "__main__":
    sys.exit(0 if PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8") else 1)
