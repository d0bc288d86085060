"""The flags of a component, read from its source without running it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

from torchx.command_line import ArgumentError, Flag, FlagTable, Split, looks_like_flag, same
from torchx.errors import TorchxError
from torchx.lazy import lazy_imports

with lazy_imports:
    import ast
    import shlex

    from torchx.discovery import model
    from torchx.discovery.find import locate
    from torchx.discovery.source import component_source
    from torchx.discovery.source import outline as source_outline

if TYPE_CHECKING:
    from torchx.discovery.source.outline import Argument, Outline


SHELL = "utils.sh"
"""The component of shell commands."""

_PROCESS_ID = re.compile(r"(?<!\$)\$\$(?![${])")
"""`$$` in a shell, but a dollar sign in an argument of a role."""


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
    rest = _unseparated(table.split(args))
    for arg in rest[1:]:
        if looks_like_flag(arg) and same(arg.partition("=")[0]) in table.exact:
            return (
                f"{arg} was passed to the program: flags of {component} go before its first other argument, "
                f"`{rest[0]}`"
            )
    return ""


def _unseparated(split: Split) -> list[str]:
    """Returns the positional arguments before `--`."""
    if split.separated:
        return []
    return [*takewhile("--".__ne__, split.rest)]


def notes_about(component: str, args: Sequence[str]) -> list[str]:
    """Returns notes about a shell command that the shell reads otherwise than it looks.

    Args:
        component: the name of the component.
        args: its arguments.

    Raises:
        ArgumentError: `--dryrun` would be passed to the program, and this would run.
    """
    flag = next((arg for arg in args if arg.partition("=")[0] == "--dryrun"), "")
    may_differ = component == SHELL and (len(args) > 1 or any(map(_PROCESS_ID.search, args)))
    if not may_differ and not flag:
        return []  # the usual case reads no source
    outline = None
    with suppress(TorchxError):  # reported when it is loaded
        outline = outline_of(component)
    if outline is None or outline.varargs is None:
        return []
    split = flags_of(outline).split(args)
    passed = _unseparated(split)
    if flag and flag in passed:
        raise _passed_dryrun(component, args, passed[0], flag)
    if component != SHELL or split.values().get("entrypoint"):
        return []
    return _notes_of_shell(split.rest)


def _passed_dryrun(component: str, args: Sequence[str], first: str, typed: str) -> ArgumentError:
    at = len(args) - 1 - args[::-1].index(typed)
    line = shlex.join([component, *args[:at], *args[at + 1 :]])
    return ArgumentError(
        f"{typed} follows `{first}`: it would be passed to the program, and the program would run",
        flag=typed,
        hint=f"to see the request: torchx run {typed} {line}   to pass it: put `--` before `{first}`",
        code="unexpected_argument",
    )


def _notes_of_shell(args: Sequence[str]) -> list[str]:
    notes = []
    if len(args) > 1 and any(map(str.isspace, args[0])):
        notes.append(
            f"several arguments are one command, whose program is `{args[0]}`; "
            "give a command line as one argument, flags of utils.sh before it, "
            "and flags of torchx run before utils.sh"
        )
    if any(map(_PROCESS_ID.search, args)):
        notes.append("the shell gets `$$` as `$`; for the process id: `$$$$`")
    return notes
