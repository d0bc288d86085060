"""`torchx runopts`: show the run options of the schedulers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import PluginError
from torchx.lazy import lazy_imports
from torchx.printable import one_line
from torchx.specs.run_options import get_type_name
from torchx_cli.flags import Json, OneScheduler, Output
from torchx_cli.session import session_of
from torchx_cli.terminal.output import emit, filled, is_terminal, note, output_format, paint, say

with lazy_imports:
    from torchx_cli.terminal import drawing

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.specs.run_options import runopts


WIDTH = 80
"""Columns of plain text."""


def runopts_(
    ctx: typer.Context,
    scheduler: OneScheduler = "",
    plain: Annotated[
        bool, typer.Option("--plain", help="Print plain text instead of a table, as a pipe gets it.")
    ] = False,
    output: Output = "",
    json: Json = False,
) -> None:
    """List the run options of the schedulers, for -cfg and .torchxconfig."""
    form = output_format(output, json)
    with session_of(ctx).runner() as runner:
        if scheduler:
            options = {scheduler: runner.scheduler_run_opts(scheduler)}
        else:
            options = _of_all(runner)
    if form != "text":
        emit({name: as_data(opts) for name, opts in options.items()}, form)
        return
    for name, opts in options.items():
        if is_terminal(sys.stdout) and not plain:
            say(paint(one_line(name), "bold", sys.stdout))
            drawing.print_options(_rows(opts))
        else:
            say(one_line(name))
            for key, kind, text in _rows(opts):
                line = f"{key} ({kind}): {' '.join(text.split())}"
                say("\n".join(filled(line, WIDTH, "  ", "      ")))
        say()


def _rows(opts: runopts) -> list[tuple[str, str, str]]:
    """Returns the name, the type with the default, and the description of each option."""
    rows = []
    for key, opt in opts:
        if opt.is_required:
            default = "required"
        else:
            default = f"default {opt.default}"
        kind = get_type_name(opt.opt_type)
        if opt.default is not None or opt.is_required:
            kind += f", {default}"
        rows.append((key, kind, opt.help))
    return rows


def _of_all(runner: Runner) -> dict[str, runopts]:
    """Returns the run options of all schedulers, with a note for plugins that fail to load."""
    options = {}
    for name in runner.scheduler_backends():
        try:
            options[name] = runner.scheduler_run_opts(name)
        except PluginError as error:
            note(error.message)
    return options


def as_data(opts: runopts) -> list[Object]:
    """Returns the options of a scheduler as plain data."""
    return [
        {
            "name": name,
            "type": get_type_name(opt.opt_type),
            "required": opt.is_required,
            "default": opt.default,
            "help": opt.help,
        }
        for name, opt in opts
    ]
