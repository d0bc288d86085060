"""`torchx top`: show running applications and their replicas live."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Annotated

import typer

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.scheduling.pace import pause_after
from torchx.scheduling.query import AppQuery
from torchx_cli.applications import ACTIVE, find
from torchx_cli.flags import Cfg, Json, Output, argument, scheduler_option
from torchx_cli.selection import configured, gather, newest
from torchx_cli.session import session_of
from torchx_cli.terminal.output import emit, is_terminal, output_format
from torchx_cli.top.snapshot import Collector

with lazy_imports:
    from torchx_cli.top import live, view

MOST_APPLICATIONS = 50
"""Maximum number of applications that are shown, the newest ones."""


def top_(
    ctx: typer.Context,
    handles: Annotated[
        list[str],
        argument(metavar="[HANDLE]...", help="Only these applications (default: all running ones)."),
    ] = [],  # noqa: B006  # typer makes a new one
    scheduler: Annotated[str, scheduler_option("Only this scheduler (default: all).")] = "",
    cfg: Cfg = [],  # noqa: B006
    output: Output = "",
    json: Json = False,
) -> None:
    """Show running applications and their replicas live: state, CPU, memory, GPU, output and last line.

    Keys: arrows or j and k select, enter shows details, l the log, c cancels after a confirmation, q quits.
    Without a terminal, one table is printed.
    """
    form = output_format(output, json)
    if handles and (scheduler or cfg):
        raise UsageError("HANDLE cannot be combined with -s or -cfg", code="conflicting_flags")
    session = session_of(ctx)
    with session.runner() as runner:
        chosen = [find(runner, handle, prefer=ACTIVE)[0] for handle in handles]
        if not chosen:
            scheduler = scheduler or configured(runner, session, quiet=False)
        begun = time.monotonic()
        due = 0.0

        def running() -> list[str]:
            nonlocal due
            if chosen:
                return chosen
            now, first, names = time.monotonic(), not due, [scheduler]
            if now >= due:
                due = now + pause_after(now - begun)
            else:  # no query over a network
                names = [name for name in runner.cheap_schedulers() if scheduler in ("", name)]
            query = AppQuery(states=ACTIVE)
            listings = [
                rows for name in names for rows in gather(runner, session, name, cfg, query, quiet=not first)
            ]
            return [app.app_handle for app in itertools.islice(newest(listings), MOST_APPLICATIONS)]

        collector = Collector(runner, running)
        if form != "text":
            emit([app.to_json() for app in collector.collect()], form)
        elif is_terminal(sys.stdout) and is_terminal(sys.stdin):
            collector.collect()
            collector.start()
            try:
                live.Top(runner, collector).run()
            finally:
                collector.stop()
        else:
            view.print_table(collector.collect())
