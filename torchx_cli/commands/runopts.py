"""`torchx runopts`: show the run options of the schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx_cli.flags import Json, Output
from torchx_cli.session import session_of
from torchx_cli.terminal.output import emit, note, output_format, say

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.specs.run_options import runopts


def runopts_(
    ctx: typer.Context,
    scheduler: Annotated[
        str,
        typer.Argument(metavar="[SCHEDULER]", show_default=False, help="Only this scheduler (default: all)."),
    ] = "",
    output: Output = "",
    json: Json = False,
) -> None:
    """Show the run options of the schedulers, for -cfg and .torchxconfig."""
    form = output_format(output, json)
    with session_of(ctx).runner() as runner:
        options = {scheduler: runner.scheduler_run_opts(scheduler)} if scheduler else _of_all(runner)
    if form != "text":
        emit({name: as_data(opts) for name, opts in options.items()}, form)
        return
    for name, opts in options.items():
        text = "\n".join(f"    {line}" if line.strip() else "" for line in repr(opts).splitlines())
        say(f"{name}:\n{text}\n")


def _of_all(runner: Runner) -> dict[str, runopts]:
    """Returns the run options of all schedulers, with a note for plugins that fail to load."""
    from torchx.errors import PluginError

    options = {}
    for name in runner.scheduler_backends():
        try:
            options[name] = runner.scheduler_run_opts(name)
        except PluginError as error:
            note(error.message)
    return options


def as_data(opts: runopts) -> list[dict[str, Any]]:
    """Returns the options of a scheduler as plain data."""
    from torchx.specs.run_options import get_type_name

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
