"""`torchx tracker`: what runs have told their trackers."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx_cli.app import TYPER
from torchx_cli.command import TorchxCommand
from torchx_cli.flags import Json, Output
from torchx_cli.session import session_of
from torchx_cli.terminal.output import chosen_format, emit, note, say, speaks_unicode, table

if TYPE_CHECKING:
    from torchx.tracker.api import Lineage, TrackerArtifact, TrackerBase

app = typer.Typer(**TYPER)
list_app = typer.Typer(**TYPER)
app.add_typer(list_app, name="list", help="The same by longer names: list jobs, list metadata, and so on.")

RunId = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        show_default=False,
        help="A run: its id, or any name of an application (app id, the start of it, its name, @last).",
    ),
]


@app.callback()
def tracker() -> None:
    """Show what runs have told their trackers."""


@list_app.callback()
def list_() -> None:
    """Show what runs have told their trackers: list jobs, list metadata, and so on."""


def both(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a command under its name, and under `list` as TorchX has it."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        list_app.command(name, cls=TorchxCommand)(function)
        return app.command(name, cls=TorchxCommand)(function)

    return add


@both("jobs")
def jobs(
    parent: Annotated[
        str,
        typer.Option(
            "--parent-run-id", metavar="RUN", show_default=False, help="Only those made from this run."
        ),
    ] = "",
    output: Output = "",
    json: Json = False,
) -> None:
    """List the runs that the trackers know."""
    form = chosen_format(output, json)
    chosen = {"parent_run_id": parent} if parent else {}
    found = list(dict.fromkeys(run for each in _trackers() for run in each.run_ids(**chosen)))
    if form != "text":
        emit(found, form)
    elif found:
        say("\n".join(found))
    else:
        note("no run has told a tracker anything")


@both("metadata")
def metadata(ctx: typer.Context, run: RunId, output: Output = "", json: Json = False) -> None:
    """Show the values that a run has told, by name."""
    from torchx_cli.terminal.masking import mask

    form = chosen_format(output, json)
    trackers = _trackers()
    run = _run_id(ctx, run, trackers)
    found = mask({name: value for each in trackers for name, value in each.metadata(run).items()})
    if form != "text":
        emit(found, form)
        return
    _show([[(name, ""), (_text(value), "")] for name, value in found.items()], ("NAME", "VALUE"), run)


@both("artifacts")
def artifacts(
    ctx: typer.Context,
    run: RunId,
    artifact: Annotated[
        str, typer.Option("--artifact", metavar="NAME", show_default=False, help="Only this one.")
    ] = "",
    output: Output = "",
    json: Json = False,
) -> None:
    """Show what a run has made, and where it lies."""
    from torchx_cli.terminal.masking import mask

    form = chosen_format(output, json)
    trackers = _trackers()
    run = _run_id(ctx, run, trackers)
    found = mask({name: one for each in trackers for name, one in each.artifacts(run).items()})
    kept = [one for name, one in found.items() if artifact in ("", name)]
    if form != "text":
        emit([{"name": a.name, "path": a.path, "metadata": dict(a.metadata or {})} for a in kept], form)
        return
    rows = [
        [(a.name, ""), (a.path, ""), (_text(dict(a.metadata)) if a.metadata else "", "dim")] for a in kept
    ]
    _show(rows, ("ARTIFACT", "PATH", "METADATA"), run)


@both("lineage")
def lineage(ctx: typer.Context, run: RunId, output: Output = "", json: Json = False) -> None:
    """Show what a run came from, and what came of it."""
    form = chosen_format(output, json)
    trackers = _trackers()
    run = _run_id(ctx, run, trackers)
    told = [each.lineage(run) for each in trackers]
    if form != "text":
        steps = dict.fromkeys(edge for one in told for edge in one.edges)
        emit(
            [{"source": e.source_id, "artifact": e.artifact_name, "run": e.run_id} for e in steps],
            form,
        )
        return
    for one in told:
        say("\n".join(_tree(one)))


def _tree(told: Lineage) -> list[str]:
    """Returns a lineage for people: what came before above the run, what came of it below."""
    arrow = "←→" if speaks_unicode(sys.stdout) else "<>"

    def walk(run: str, forward: bool, depth: int, above: frozenset[str]) -> Iterable[str]:
        for edge in told.descendants(run) if forward else told.sources(run):
            other = edge.run_id if forward else edge.source_id
            by = f"  ({edge.artifact_name})" if edge.artifact_name else ""
            yield f"{'  ' * depth}{arrow[forward]} {other}{by}"
            if other not in above:
                yield from walk(other, forward, depth + 1, above | {other})

    start = frozenset([told.run_id])
    return [told.run_id, *walk(told.run_id, False, 1, start), *walk(told.run_id, True, 1, start)]


def _trackers() -> list[TrackerBase]:
    """Returns the trackers of the configuration.

    Raises:
        UsageError: there are none.
    """
    from torchx.errors import UsageError
    from torchx.runner.prepare import configured_trackers
    from torchx.tracker.configured import build_trackers

    configured, factories = configured_trackers()
    if not configured:
        raise UsageError(
            "no tracker is configured",
            hint="in .torchxconfig: `fsspec =` in [torchx:tracker], `config = FOLDER` in [tracker:fsspec]",
        )
    return list(build_trackers(configured, factories))


def _run_id(ctx: typer.Context, text: str, trackers: list[TrackerBase]) -> str:
    """Returns the id that the trackers know a run by."""
    from torchx.errors import TorchxError, UsageError

    known = [run for each in trackers for run in each.run_ids()]
    if text in known or any(_is_source(each, text) for each in trackers):
        return text
    try:
        with session_of(ctx).runner() as runner:
            return runner.resolve_handle(text)
    except TorchxError:
        ends = [run for run in known if run.rpartition("/")[2] == text]
        if len(set(ends)) == 1:
            return ends[0]
        from torchx.suggestions import did_you_mean

        hint = did_you_mean(text, known, "all runs: torchx tracker jobs")
        raise UsageError(f"the trackers know no run `{text}`", hint=hint) from None


def _is_source(tracker: TrackerBase, text: str) -> bool:
    """Tells whether something was made from what the text names; not every tracker can be asked for it."""
    from torchx.errors import TorchxError

    try:
        return any(True for _ in tracker.run_ids(parent_run_id=text))
    except (NotImplementedError, TypeError, ValueError, TorchxError):
        return False


def _about(artifact: TrackerArtifact) -> str:
    return _text(dict(artifact.metadata)) if artifact.metadata else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_module.dumps(value, default=str)


def _show(rows: list[list[tuple[str, str]]], heads: tuple[str, ...], run: str) -> None:
    if rows:
        say("\n".join(table(rows, heads, sys.stdout)))
    else:
        note(f"{run} has told nothing of this")
