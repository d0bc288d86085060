"""`torchx prune`: removes ended applications, and what was left over."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx_cli.flags import Json, Output, States, count, states_of
from torchx_cli.session import session_of
from torchx_cli.terminal.output import STATE_MEANING, chosen_format, emit, note, say, table
from torchx_cli.terminal.times import ago, iso, seconds

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import ListAppResponse
    from torchx.scheduling.query import AppQuery, Pruned

OLD = "7d"
"""Of this age an ended application is removed unless something else is said."""


def prune_(
    ctx: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="AGE",
            show_default=False,
            help=f"Those that ended so long ago, as in 12h; {OLD} unless --keep is given. 0 for all.",
        ),
    ] = "",
    keep: Annotated[
        str,
        typer.Option("--keep", metavar="N", show_default=False, help="All but the N that ended last."),
    ] = "",
    state: States = "",
    scheduler: Annotated[
        str,
        typer.Option(
            "-s",
            "--scheduler",
            metavar="NAME",
            show_default=False,
            help="Only this scheduler; unless told, all but those that others share, such as local_docker.",
        ),
    ] = "",
    dryrun: Annotated[
        bool, typer.Option("--dryrun", help="Show what would be removed, and remove nothing.")
    ] = False,
    output: Output = "",
    json: Json = False,
) -> None:
    """Remove ended applications with their logs; and, whatever is said, what was left over.

    Left over are the remains of commands that were killed half-way, unpacked images that no
    application on record has, and images of workspaces that no container uses. What runs is never
    touched.
    """
    from torchx.scheduling.query import AppQuery

    form = chosen_format(output, json)
    age = seconds("--older-than", older_than or OLD) if older_than or not keep else 0.0
    most = count("--keep", keep) or 0
    query = AppQuery(states=states_of(state))
    with session_of(ctx).runner() as runner:
        sweep = Sweep(runner, dryrun)
        sweep.choose(_backends(runner, scheduler), query, age, most)
        sweep.go()
    if form != "text":
        emit(sweep.as_data(), form)
    else:
        sweep.tell()


def _backends(runner: Runner, scheduler: str) -> list[str]:
    from torchx.errors import PluginError
    from torchx.scheduling.base import Prunes, Shared

    if scheduler:
        return [scheduler]
    found = []
    for name in runner.scheduler_backends():
        try:
            if runner.has(name, Prunes) and not runner.has(name, Shared):
                found.append(name)
        except PluginError:  # one that does not load keeps nothing here
            continue
    return found


@dataclass
class Sweep:
    """What is removed, and what of it is told.

    Attributes:
        runner: who removes.
        dryrun: remove nothing.
        chosen: the applications to be removed, by scheduler.
        gone: those that are removed, with their room in bytes.
        leftovers: what else is removed.
    """

    runner: Runner
    dryrun: bool
    chosen: dict[str, list[ListAppResponse]] = field(default_factory=dict)
    gone: list[tuple[ListAppResponse, Pruned]] = field(default_factory=list)
    leftovers: dict[str, Pruned] = field(default_factory=dict)

    def choose(self, backends: list[str], query: AppQuery, age: float, keep: int) -> None:
        """Chooses the applications: those that ended so many seconds ago, but the last ones that ended.

        One whose end nobody knows stays.
        """
        import time

        from torchx.specs.status import AppState, is_terminal

        found = [
            (app.ended_at.timestamp(), backend, app)
            for backend in backends
            for app in self.runner.select(backend, query)
            if app.ended_at is not None and (is_terminal(app.state) or app.state is AppState.UNKNOWN)
        ]
        found.sort(key=lambda each: each[0], reverse=True)
        limit = time.time() - age
        self.chosen = {backend: [] for backend in backends}
        for ended_at, backend, app in found[keep:]:
            if not age or ended_at <= limit:  # whatever was done to the clock
                self.chosen[backend].append(app)

    def go(self) -> None:
        """Removes what was chosen, and what was left over."""
        for backend, apps in self.chosen.items():
            by_id = {app.app_id: app for app in apps}
            for pruned in self.runner.prune(backend, by_id, dryrun=self.dryrun):
                if pruned.app_id:
                    self.gone.append((by_id[pruned.app_id], pruned))
                else:
                    self.leftovers.setdefault(pruned.path, pruned)

    @property
    def freed(self) -> int:
        """The room that was freed, bytes."""
        return sum(pruned.bytes for _, pruned in self.gone) + sum(p.bytes for p in self.leftovers.values())

    def as_data(self) -> dict[str, Any]:
        """Returns what was removed as plain data."""
        from torchx.specs.handles import parse_app_handle

        return {
            "dryrun": self.dryrun,
            "applications": [
                {
                    "handle": app.app_handle,
                    "app_id": app.app_id,
                    "scheduler": parse_app_handle(app.app_handle).scheduler_backend,
                    "state": app.state.name,
                    "ended_at": iso(app.ended_at),
                    "bytes": pruned.bytes,
                }
                for app, pruned in self.gone
            ],
            "leftovers": [{"path": each.path, "bytes": each.bytes} for each in self.leftovers.values()],
            "freed": self.freed,
        }

    def tell(self) -> None:
        """Prints what was removed: one line, and at a dry-run all of it."""
        if not self.gone and not self.leftovers:
            note("nothing to remove")
            return
        if self.dryrun and self.gone:
            rows = [
                [
                    (app.app_id, ""),
                    (app.state.name, STATE_MEANING.get(app.state.name, "dim")),
                    ("" if app.ended_at is None else ago(app.ended_at), ""),
                    (size(pruned.bytes), ""),
                ]
                for app, pruned in self.gone
            ]
            say("\n".join(table(rows, ("APP", "STATE", "ENDED", "SIZE"), sys.stdout)))
        if self.dryrun:
            for each in self.leftovers.values():
                say(f"{each.path}  {size(each.bytes)}")
        parts = [_count(len(self.gone), "application")] if self.gone else []
        parts += [_count(len(self.leftovers), "leftover")] if self.leftovers else []
        what = " and ".join(parts)
        say(
            f"would remove {what}: {size(self.freed)}"
            if self.dryrun
            else f"removed {what}: {size(self.freed)} freed"
        )


def size(count: int) -> str:
    """Returns a number of bytes as people say it.

    >>> size(900), size(34_500_000), size(2_000_000_000)
    ('900 B', '34.5 MB', '2.0 GB')
    """
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
