"""The flags of a component, read from its source without running it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx.command_line import Flag, FlagTable, looks_like_flag, same
from torchx.lazy import lazy_imports

with lazy_imports:
    import ast

    from torchx.discovery import model
    from torchx.discovery.find import locate
    from torchx.discovery.source import component_source
    from torchx.discovery.source import outline as source_outline

if TYPE_CHECKING:
    from torchx.discovery.source.outline import Argument, Outline


def outlines(path: str) -> list[Outline]:
    """Returns the outlines of the components in a file; none if it cannot be read."""
    source = component_source.read_source(os.path.expanduser(path))  # noqa: PTH111  # a string, not a Path
    if isinstance(source, model.LinterMessage):
        return []
    return list(source_outline.components(source))


def outline_of(name: str) -> Outline | None:
    """Returns the outline of a component by its name, or None."""
    path, function = locate.locate_source(name)
    return next((outline for outline in outlines(str(path)) if outline.name == function), None)


def flags_of(outline: Outline) -> FlagTable:
    """Returns the flags of a component, for a partial command line."""
    return FlagTable(map(_flag, outline.arguments), positional=outline.varargs is not None, lenient=True)


def _flag(argument: Argument) -> Flag:
    kind = ""
    if argument.annotation is not None:
        kind = ast.unparse(argument.annotation)
    is_bool = kind in ("bool", "bool | None", "Optional[bool]")
    return Flag(argument.name, (f"--{argument.name}",), is_bool=is_bool)


def misplaced_flag(component: str, args: Sequence[str]) -> str:
    """Returns a hint if a flag of a component follows its first positional argument, else an empty text.

    Args:
        component: the name of the component.
        args: its arguments.
    """
    outline = outline_of(component)
    if outline is None:
        return ""
    table = flags_of(outline)
    rest = table.split(args).rest
    if not rest or args[-len(rest) - 1 : -len(rest)] == ["--"]:  # separated on purpose
        return ""
    for arg in rest[1:]:
        if looks_like_flag(arg) and same(arg.partition("=")[0]) in table.exact:
            return (
                f"{arg} was passed to the program: flags of {component} go before its first other argument, "
                f"`{rest[0]}`"
            )
    return ""
