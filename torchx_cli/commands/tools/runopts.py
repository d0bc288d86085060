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
from torchx_cli.terminal.output import emit, filled, is_terminal, note, output_format, paint, say, width_of

with lazy_imports:
    from torchx_cli.terminal import drawing

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.specs.run_options import runopts


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
            _print_table(name, opts)
            continue
        say(f"{name}:")
        for line in repr(opts).replace("],[", "], [").splitlines():
            indent = " " * (4 + len(line) - len(line.lstrip()))
            say("\n".join(filled(line.strip(), width_of(sys.stdout) or 80, indent, indent)))
        say()


def _print_table(name: str, opts: runopts) -> None:
    """Prints the options of a scheduler, wrapped to the window."""
    say(paint(one_line(name), "bold", sys.stdout))
    rows = []
    for key, opt in opts:
        if opt.is_required:
            default = "required"
        else:
            default = f"default {opt.default}"
        kind = get_type_name(opt.opt_type)
        rows.append(
            (key, kind if opt.default is None and not opt.is_required else f"{kind}, {default}", opt.help)
        )
    drawing.print_options(rows)
    say()


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
