"""`torchx configure`: write a starter configuration file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated

import typer

from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx_cli.flags import option, split_list
from torchx_cli.terminal.output import note, say

with lazy_imports:
    from torchx import config
    from torchx.config import api


STARTER = """\
# Defaults of torchx. Remove `# ` before a line to set it. To list all options: torchx runopts SCHEDULER
[cli:run]
# component = dist.torchrun
# scheduler = local_cwd
# workspace = .

"""

COMMON = (
    "log_dir", "grace_period", "time_limit", "retry_on", "partition", "account", "job_dir", "setup",
    "namespace", "queue", "service_account", "image_repo",
)  # fmt: skip
"""Run options that people set, on the schedulers that have them."""


def configure_(
    schedulers: Annotated[
        str, option("-s", "--schedulers", metavar="A,B", help="Only these schedulers (default: all).")
    ] = "",
    show: Annotated[
        bool, typer.Option("--print", help="Print the configuration instead of writing it.")
    ] = False,
    every: Annotated[
        bool,
        typer.Option("-a", "--all", help="Include all options, with their defaults."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a .torchxconfig to the working directory.

    Writes the options that people set most often as comments, with their meaning. Overwrites an
    existing file only with --force.
    """
    text = io.StringIO(STARTER)
    text.seek(0, io.SEEK_END)
    api.dump(text, split_list(schedulers) or None, required_only=not every, commented=COMMON)
    if show:
        say(text.getvalue(), end="")
        return
    path = Path(config.CONFIG_FILE)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text.getvalue())
    except FileExistsError:
        raise StateError(
            f"{config.CONFIG_FILE} already exists",
            hint="torchx configure --print shows the new content; --force overwrites the file",
            code="already_exists",
        ) from None
    except OSError as error:
        raise StateError(f"{config.CONFIG_FILE} cannot be written: {error.strerror}") from error
    note(f"wrote {config.CONFIG_FILE}; effective values: torchx config show")
