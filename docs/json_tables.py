"""The tables of JSON output, from its types: for docs/json.md and for docs/outputs.md of the site.

`python docs/json_tables.py` writes the tables of docs/json.md again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from torchx_cli.schemas.errors import CODES
from torchx_cli.schemas.outputs import ERROR, OUTPUTS, Output

PAGE = Path(__file__).with_name("json.md")
ON_THE_PAGE = ("status", "list", "wait", "why")
"""The commands whose output docs/json.md describes."""

TABLE = re.compile(r"<!-- (\w+) -->\n(?:\|.*\n)*")
NAMES = {str: "string", bool: "true or false", int: "integer", float: "number", NoneType: "null", Any: "any"}


def name_of(kind: Any) -> str:
    """Returns the type of a value, as readers of JSON know it."""
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
    """Returns the description of a key."""
    return str(get_args(hint)[1]).replace("|", "\\|")


def table(kind: Any) -> str:
    """Returns the table of an object."""
    hints = get_type_hints(kind, include_extras=True)
    rows = [
        f"| `{name}`{'' if name in kind.__required_keys__ else ' *'} | {name_of(hint)} | {meaning_of(hint)} |"
        for name, hint in hints.items()
    ]
    return "\n".join([f"<!-- {kind.__name__} -->", "| key | value | meaning |", "|---|---|---|", *rows, ""])


def objects(outputs: Iterable[Output]) -> dict[str, Any]:
    """Returns all objects of some outputs, by name."""
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

    for output in outputs:
        for kind in (output.kind, *output.variants.values()):
            add(kind)
    return found


def updated(page: str) -> str:
    """Returns docs/json.md with the tables of today."""
    kinds = objects(OUTPUTS[name] for name in ON_THE_PAGE)
    return TABLE.sub(lambda found: table(kinds[found[1]]) if found[1] in kinds else found[0], page)


def form(kind: Any, command: str, owners: dict[str, str]) -> str:
    """Returns the form of an output: a sentence, or the table of its object.

    Args:
        kind: the type of the output.
        command: the command that prints it.
        owners: the command whose section has the table of an object, by object; an object of this
            output is added.
    """
    if is_typeddict(kind):
        owner = owners.setdefault(kind.__name__, command)
        return table(kind) if owner == command else f"The object of `{owner}`.\n"
    within = [part for part in get_args(kind) if is_typeddict(part)]
    if within:
        return f"A list of these objects:\n\n{form(within[0], command, owners)}"
    return f"Type: {name_of(kind)}.\n"


def section(names: Sequence[str], output: Output, owners: dict[str, str]) -> list[str]:
    """Returns the lines about an output, which several commands may have."""
    about = f"{output.about} Each line is such an object." if output.is_stream else output.about
    lines = [f"## {', '.join(names)}", about, "", form(output.kind, names[0], owners)]
    for flag, kind in output.variants.items():
        lines += [f"With `{flag}`:", "", form(kind, names[0], owners)]
    return lines


def generated() -> str:
    """Returns the tables of all commands, of the objects within their outputs, and of the codes of errors."""
    outputs = {id(output): output for output in OUTPUTS.values()}
    lines: list[str] = []
    owners: dict[str, str] = {}
    for number, output in outputs.items():
        lines += section([name for name, other in OUTPUTS.items() if id(other) == number], output, owners)
    lines += section(["Errors"], ERROR, owners)
    lines += [
        "| code | cause |",
        "|---|---|",
        *(f"| `{code}` | {cause} |" for code, cause in CODES.items()),
        "",
    ]
    lines += ["## Objects within these"]
    for name, kind in objects([*OUTPUTS.values(), ERROR]).items():
        if name not in owners:
            lines += [f"### {name}", (kind.__doc__ or "").strip(), "", table(kind)]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
