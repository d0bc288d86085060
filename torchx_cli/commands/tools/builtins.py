"""`torchx builtins`: list the named components."""

from __future__ import annotations

from typing import Annotated, Any

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx_cli.flags import Json, Output, option
from torchx_cli.terminal.display import show_table
from torchx_cli.terminal.output import Row, emit, output_format, say

with lazy_imports:
    from torchx import discovery
    from torchx.discovery.find import catalogue


def builtins_(
    show: Annotated[str, option("--print", metavar="NAME", help="Print the source of this component.")] = "",
    output: Output = "",
    json: Json = False,
) -> None:
    """List the components that you can run by name: built-in ones, and those of plugins."""
    form = output_format(output, json)
    if show and form != "text":
        raise UsageError(
            f"--print cannot be combined with -o {form}: it prints Python", code="conflicting_flags"
        )
    if show:
        say(discovery.builtin_source(show).rstrip())
        return
    components = catalogue.list_components()
    if form != "text":
        data: list[dict[str, Any]] = [
            {
                "name": component.name,
                "description": component.description,
                "origin": component.origin,
                "path": component.path,
                "line": component.line,
                "problems": [str(problem) for problem in component.problems],
            }
            for component in components
        ]
        emit(data, form)
        return
    rows: list[Row] = [
        [
            component.name,
            (component.origin, "dim"),
            _about(component.description, [str(p) for p in component.problems]),
        ]
        for component in components
    ]
    show_table(rows, ("COMPONENT", "FROM", ""))


def _about(description: str, problems: list[str]) -> tuple[str, str]:
    if problems:
        return (f"cannot be run: {problems[0]}", "bad")
    return (description, "")
