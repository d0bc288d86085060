"""`torchx configure`: writes a configuration file to start from."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated

import typer

from torchx.errors import StateError
from torchx_cli.flags import words
from torchx_cli.terminal.output import note, say


def configure_(
    schedulers: Annotated[
        str,
        typer.Option(
            "-s",
            "--schedulers",
            metavar="A,B",
            show_default=False,
            help="For these schedulers; all unless told.",
        ),
    ] = "",
    show: Annotated[bool, typer.Option("--print", help="Print it on stdout and write no file.")] = False,
    every: Annotated[
        bool,
        typer.Option("-a", "--all", help="Also the options that need not be given, with their defaults."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a .torchxconfig with the run options of the schedulers into the working directory.

    A file that is there is never overwritten without --force.
    """
    from torchx.config import CONFIG_FILE
    from torchx.config.api import dump

    text = io.StringIO()
    dump(text, words(schedulers) or None, required_only=not every)
    if show:
        say(text.getvalue(), end="")
        return
    path = Path(CONFIG_FILE)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text.getvalue())
    except FileExistsError:
        raise StateError(
            f"{CONFIG_FILE} is there already, and stays as it is",
            hint="torchx configure --print shows what would be written; --force replaces the file",
        ) from None
    except OSError as error:
        raise StateError(f"{CONFIG_FILE} cannot be written: {error.strerror}") from error
    note(f"wrote {CONFIG_FILE}; what counts: torchx config show")
