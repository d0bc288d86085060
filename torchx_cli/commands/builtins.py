"""`torchx builtins`: the components that can be run by name."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from torchx_cli.flags import Json, Output
from torchx_cli.terminal.output import chosen_format, emit, say, table


def builtins_(
    show: Annotated[
        str,
        typer.Option("--print", metavar="NAME", show_default=False, help="Print the source of a component."),
    ] = "",
    output: Output = "",
    json: Json = False,
) -> None:
    """List the components that can be run by name: the built-in ones and those of other packages."""
    from torchx.discovery.find.catalogue import list_components

    form = chosen_format(output, json)
    if show:
        from torchx.discovery import builtin_source

        say(builtin_source(show).rstrip())
        return
    found = list_components()
    if form != "text":
        data: list[dict[str, Any]] = [
            {
                "name": each.name,
                "description": each.description,
                "origin": each.origin,
                "path": each.path,
                "line": each.line,
                "problems": [str(problem) for problem in each.problems],
            }
            for each in found
        ]
        emit(data, form)
        return
    rows = [
        [(each.name, ""), (each.origin, "dim"), _about(each.description, [str(p) for p in each.problems])]
        for each in found
    ]
    say("\n".join(table(rows, ("COMPONENT", "FROM", ""), sys.stdout)))


def _about(description: str, problems: list[str]) -> tuple[str, str]:
    return (f"cannot be run: {problems[0]}", "bad") if problems else (description, "")
