"""The tables of docs/json.md are those of the types of JSON output.

`python tests/docs/test_json_page.py` writes them again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from torchx_cli.schemas.build import Object, descriptions, schemas
from torchx_cli.schemas.outputs import OUTPUTS

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
TABLE = re.compile(r"<!-- (\w+) -->\n(?:\|.*\n)*")


def name_of(kind: str) -> str:
    """The type of a value, as the page shows it."""
    described, types = descriptions()
    kind = types.get(kind, kind)
    value, nullable, _ = kind.partition(" or null")
    if nullable:
        return f"{name_of(value)} or null"
    form, _, inner = kind.partition(" of ")
    if form == "one":
        return "string"
    if form == "list":
        return "list" if inner == "any" else f"list: {name_of(inner)}"
    if inner:
        return f"object of {name_of(inner)}"
    if kind in described:
        return f"[{kind}](#{kind.lower()})"
    return "true or false" if kind == "boolean" else kind


def table(name: str, described: Object) -> str:
    """The table of an object."""
    rows = []
    for key, value in described.keys.items():
        meaning = value.meaning.replace("|", "\\|")
        rows.append(f"| `{key}`{'' if value.required else ' *'} | {name_of(value.type)} | {meaning} |")
    return "\n".join([f"<!-- {name} -->", "| key | value | meaning |", "|---|---|---|", *rows, ""])


def objects() -> dict[str, Object]:
    """All objects of all outputs, by name."""
    names = {name for schema in schemas().values() for name in schema.get("$defs", {})}
    return {name: each for name, each in descriptions()[0].items() if name in names}


def generated(page: str) -> str:
    """The page with the tables of today."""
    kinds = objects()
    return TABLE.sub(lambda found: table(found[1], kinds[found[1]]) if found[1] in kinds else found[0], page)


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
