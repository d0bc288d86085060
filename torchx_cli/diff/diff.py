"""`torchx diff`: compare two applications."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.lazy import lazy_imports
from torchx_cli.diff.sections import Side, compare, summary
from torchx_cli.diff.view import lines_of, source_lines
from torchx_cli.flags import Json, Output, argument
from torchx_cli.session import session_of
from torchx_cli.terminal.output import emit, output_format, say

with lazy_imports:
    from torchx_cli.diff import trees

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx_cli.diff.trees import TreeDiff

_NAMES = "handle, app id or a prefix of it, name, @last, or @last~1 and NAME~1 for the one before"

First = Annotated[str, argument(metavar="A", help=f"The first application: {_NAMES}.")]
Second = Annotated[str, argument(metavar="B", help="The second application.")]


def diff_(
    ctx: typer.Context,
    first: First,
    second: Second,
    source: Annotated[bool, typer.Option("--source", help="Compare the source files line by line.")] = False,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Exit with 1 if the applications differ, apart from measurements."),
    ] = False,
    output: Output = "",
    json: Json = False,
) -> int:
    """Compare two applications: arguments, options, environment, source, packages, machine and results.

    They may run on different engines. Secrets are compared, but not shown. The exit code is 0; with
    --exit-code it is 1 if they differ.
    """
    form = output_format(output, json)
    session = session_of(ctx)
    with session.runner() as runner:
        a, b = Side.of(runner, first), Side.of(runner, second)
        sections = compare((a, b), runner, session.valid_config)
        found = None
        if source:
            found = _source_diff(a, b, runner)
    equal = all(section.is_equal is not False for section in sections)
    if form != "text":
        data = {"a": summary(a), "b": summary(b), "equal": equal}
        data["sections"] = [section.as_data() for section in sections]
        if found is None:
            data["source_diff"] = None
        else:
            data["source_diff"] = found._asdict()
        emit(data, form, hide=True)
    else:
        say("\n".join(lines_of(a, b, sections, sys.stdout)), hide=True)
        if found is not None and (lines := list(source_lines(found, sys.stdout))):
            say("\n".join(["", *lines]), hide=True)
    return int(exit_code and not equal)


def _source_diff(a: Side, b: Side, runner: Runner) -> TreeDiff:
    """Returns the differences of the recorded trees."""
    sources = [side.source for side in (a, b)]
    if sources[0] is None or sources[1] is None:
        which = [side.handle for side, known in zip((a, b), sources, strict=True) if known is None]
        return trees.TreeDiff("", [f"the source of {' and '.join(which)} is not on record"])
    return trees.tree_diff(trees.Tree(runner, a.handle, sources[0]), trees.Tree(runner, b.handle, sources[1]))
