"""`torchx prune`: remove old ended applications and leftover files."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import PluginError
from torchx.scheduling import stalls
from torchx.scheduling.base import Prunes, Shared
from torchx.scheduling.query import AppQuery
from torchx.specs.status import AppState, is_terminal
from torchx_cli.applications import identity
from torchx_cli.flags import Json, Output, States, count, option, scheduler_option, states_of
from torchx_cli.selection import Everywhere, Yes, confirm, from_here
from torchx_cli.session import session_of
from torchx_cli.terminal.display import show_table
from torchx_cli.terminal.output import Row, counted, emit, note, output_format, say, state_cell
from torchx_cli.terminal.times import ago, iso
from torchx_cli.terminal.units import size, written

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.scheduling.base import ListAppResponse
    from torchx.scheduling.query import Pruned

DEFAULT_AGE = "7d"
"""Default minimum age of ended applications to remove."""


def prune_(
    ctx: typer.Context,
    older_than: Annotated[
        str,
        option(
            "--older-than",
            metavar="AGE",
            help=f"Only applications that ended at least this long ago: 12h (default: {DEFAULT_AGE}, or 0 "
            "with --keep).",
        ),
    ] = "",
    keep: Annotated[
        str,
        option("--keep", metavar="N", help="Keep the N applications that ended last, of any age."),
    ] = "",
    state: States = "",
    scheduler: Annotated[
        str, scheduler_option("Only this scheduler (default: all except shared ones, such as local_docker).")
    ] = "",
    everywhere: Everywhere = False,
    dryrun: Annotated[
        bool, typer.Option("--dryrun", help="List the applications and files, and remove nothing.")
    ] = False,
    yes: Yes = False,
    output: Output = "",
    json: Json = False,
) -> int:
    """Remove old ended applications with their logs, and leftover files, after a confirmation.

    Leftovers are files of interrupted commands, unpacked images that no recorded application uses, and
    workspace images that no container uses. Running applications are never touched.
    """
    form = output_format(output, json)
    age = 0.0
    if older_than or not keep:
        age = stalls.seconds("--older-than", older_than or DEFAULT_AGE)
    kept = count("--keep", keep) or 0
    query = AppQuery(states=states_of(state))
    with session_of(ctx).runner() as runner:
        pruning = Pruning(runner, dryrun)
        pruning.select(_backends(runner, scheduler), query, age, kept, everywhere=everywhere)
        if dryrun or not yes:
            pruning.run(dryrun=True)
        if not dryrun and not yes and not pruning.is_confirmed():
            return 1
        if not dryrun:
            pruning.run(dryrun=False)
    if form != "text":
        emit(pruning.as_data(), form)
    else:
        pruning.print_summary()
    return 0


def _backends(runner: Runner, scheduler: str) -> list[str]:
    if scheduler:
        return [scheduler]
    names = []
    for name in runner.listed_backends():
        try:
            if runner.has(name, Prunes) and not runner.has(name, Shared):
                names.append(name)
        except PluginError:  # it cannot have any applications
            continue
    return names


@dataclass
class Pruning:
    """Selects and removes applications, and reports them.

    Attributes:
        runner: used to list and remove applications.
        dryrun: remove nothing.
        selected: the applications to remove, by scheduler.
        removed: the removed applications, with their size.
        leftovers: the removed leftovers, by path.
    """

    runner: Runner
    dryrun: bool
    selected: dict[str, list[ListAppResponse]] = field(default_factory=dict)
    removed: list[tuple[ListAppResponse, Pruned]] = field(default_factory=list)
    leftovers: dict[str, Pruned] = field(default_factory=dict)

    def select(
        self, backends: list[str], query: AppQuery, age: float, keep: int, *, everywhere: bool
    ) -> None:
        """Selects applications that ended at least `age` seconds ago, except the `keep` newest.

        Applications without a known end are kept, and those of shared engines that were not submitted from
        this state home, unless `everywhere` is set.
        """
        candidates = [
            (app.ended_at.timestamp(), backend, app)
            for backend in backends
            for app in self.runner.select(backend, query)
            if app.ended_at is not None and (is_terminal(app.state) or app.state is AppState.UNKNOWN)
        ]
        candidates.sort(key=lambda item: item[0], reverse=True)
        limit = time.time() - age
        # an age of 0 selects all, even after a clock change
        chosen = [each for each in candidates[keep:] if not age or each[0] <= limit]
        here = [app for _, _, app in chosen]
        if not everywhere:
            here = from_here(self.runner, here)
        handles = {app.app_handle for app in here}
        self.selected = {backend: [] for backend in backends}
        for _, backend, app in chosen:
            if app.app_handle in handles:
                self.selected[backend].append(app)

    def is_confirmed(self) -> bool:
        """Returns True if the user confirms the removal, or there is nothing to remove.

        Raises:
            UsageError: without a terminal.
        """
        apps = [app for app, _ in self.removed]
        return not (apps or self.leftovers) or confirm(apps, "prune", list(self.leftovers))

    def run(self, *, dryrun: bool) -> None:
        """Removes the selected applications and all leftovers; a dry-run only finds them."""
        self.removed, self.leftovers = [], {}
        for backend, apps in self.selected.items():
            by_id = {app.app_id: app for app in apps}
            for pruned in self.runner.prune(backend, by_id, dryrun=dryrun):
                if pruned.app_id:
                    self.removed.append((by_id[pruned.app_id], pruned))
                else:
                    self.leftovers.setdefault(pruned.path, pruned)

    @property
    def freed(self) -> int:
        """The freed space in bytes."""
        return sum(pruned.bytes for _, pruned in self.removed) + sum(p.bytes for p in self.leftovers.values())

    def as_data(self) -> Object:
        """Returns the removed applications and leftovers as plain data."""
        return {
            "dryrun": self.dryrun,
            "applications": [
                {
                    **identity(app.app_handle),
                    "state": app.state.name,
                    "ended_at": iso(app.ended_at),
                    "bytes": pruned.bytes,
                }
                for app, pruned in self.removed
            ],
            "leftovers": [{"path": item.path, "bytes": item.bytes} for item in self.leftovers.values()],
            "freed": self.freed,
        }

    def print_summary(self) -> None:
        """Prints a summary line, and for a dry-run each application and leftover."""
        if not self.removed and not self.leftovers:
            note("nothing to remove")
            return
        if self.dryrun and self.removed:
            rows: list[Row] = [
                [
                    app.app_id,
                    state_cell(app.state.name),
                    written(app.ended_at, ago),
                    size(pruned.bytes),
                ]
                for app, pruned in self.removed
            ]
            show_table(rows, ("APP", "STATE", "ENDED", "SIZE"))
        if self.dryrun:
            for item in self.leftovers.values():
                say(f"{item.path}  {size(item.bytes)}")
        parts = []
        if self.removed:
            parts = [counted(len(self.removed), "application")]
        if self.leftovers:
            parts += [counted(len(self.leftovers), "leftover")]
        total = " and ".join(parts)
        say(
            f"would remove {total}: {size(self.freed)}"
            if self.dryrun
            else f"removed {total}: {size(self.freed)} freed"
        )
