"""`torchx report`: write a page about an application."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from torchx.errors import StateError, TorchxError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx_cli.applications import find
from torchx_cli.flags import Handle, option
from torchx_cli.report.collect import collect
from torchx_cli.report.page import page
from torchx_cli.session import session_of
from torchx_cli.terminal.output import data_text, note, say

with lazy_imports:
    from torchx.runner import sweeps
    from torchx.specs import handles


def report_(
    ctx: typer.Context,
    handle: Handle,
    output: Annotated[
        str,
        option("-o", "--output", metavar="FILE", help="The file (default: APP_ID.html); - for stdout."),
    ] = "",
    json: Annotated[
        bool, typer.Option("--json", help="Write the data as JSON (default: to stdout).")
    ] = False,
) -> None:
    """Write a page about an application: timeline, measurements, first failure and source.

    The page is one file that loads nothing and runs no script. Secrets are masked as in other output.
    """
    if output in ("json", "yaml", "text"):
        raise UsageError(
            f"-o takes a file, got `{output}`",
            hint="for the data as JSON: --json"
            if output == "json"
            else f"for a file of this name: ./{output}",
        )
    session = session_of(ctx)
    with session.runner() as runner:
        full, described = find(runner, handle, full=True)
        try:
            trackers = sweeps.trackers_of(session.config)
        except TorchxError as error:
            note(f"note: no metrics: {error.message}")
            trackers = []
        data = collect(runner, full, described, trackers)
        images = runner.scheduler_of(full).uses_images(described)
    if json:
        text = data_text(data, "json")
    else:
        text = page(data, images=images)
    path = Path(output or f"{handles.parse_app_handle(full).app_id}.html")
    if output == "-" or (json and not output):
        say(text, end="")
        return
    content = text.encode("utf-8", "backslashreplace")
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(content)  # a device or a pipe, such as /dev/stdout, is not replaced
        else:
            files.write_file(path, content)
    except OSError as error:
        raise StateError(f"cannot write `{path}`: {error.strerror}") from error
    say(str(path))
