"""`torchx tracker`: show data from the trackers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx.lazy import lazy_imports
from torchx_cli.app import TYPER, Subcommands
from torchx_cli.command import TorchxCommand
from torchx_cli.flags import Json, Output, argument, option
from torchx_cli.session import session_of
from torchx_cli.terminal.display import show_table
from torchx_cli.terminal.output import Row, emit, note, output_format, say, supports_unicode

with lazy_imports:
    import json

    from torchx import errors, suggestions
    from torchx.runner import prepare
    from torchx.tracker import configured as tracker_configured
    from torchx_cli.terminal import masking

if TYPE_CHECKING:
    from torchx.tracker.api import Lineage, TrackerArtifact, TrackerBase

app = typer.Typer(cls=Subcommands, **TYPER)
list_app = typer.Typer(cls=Subcommands, **TYPER)
app.add_typer(list_app, name="list", help="Longer names of the same commands: list jobs, list metadata, ...")

RunId = Annotated[
    str, argument(metavar="RUN", help="A run id, or an application (app id or a prefix of it, name, @last).")
]


@app.callback()
def tracker() -> None:
    """Show tracked metadata and artifacts of runs."""


@list_app.callback()
def list_() -> None:
    """Show the data that runs have tracked: list jobs, list metadata, ..."""


def register(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a command under its name, and under `list` as in TorchX."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        list_app.command(name, cls=TorchxCommand)(function)
        return app.command(name, cls=TorchxCommand)(function)

    return add


@register("jobs")
def jobs(
    ctx: typer.Context,
    parent: Annotated[
        str, option("--parent-run-id", metavar="RUN", help="Only runs derived from this run.")
    ] = "",
    output: Output = "",
    json: Json = False,
) -> None:
    """List the tracked runs."""
    form = output_format(output, json)
    chosen = {"parent_run_id": parent} if parent else {}
    runs = list(dict.fromkeys(run for tracker in _trackers(ctx) for run in tracker.run_ids(**chosen)))
    if form != "text":
        emit(runs, form)
    elif runs:
        say("\n".join(runs))
    else:
        note("no tracked runs")


@register("metadata")
def metadata(ctx: typer.Context, run: RunId, output: Output = "", json: Json = False) -> None:
    """Show the metadata of a run."""
    form = output_format(output, json)
    trackers, run = _tracked(ctx, run)
    values = masking.mask(
        {name: value for tracker in trackers for name, value in tracker.metadata(run).items()}
    )
    if form != "text":
        emit(values, form)
        return
    _show(
        [[name, _text(value)] for name, value in values.items()],
        ("NAME", "VALUE"),
        "metadata",
        run,
    )


@register("artifacts")
def artifacts(
    ctx: typer.Context,
    run: RunId,
    artifact: Annotated[str, option("--artifact", metavar="NAME", help="Only this artifact.")] = "",
    output: Output = "",
    json: Json = False,
) -> None:
    """Show the artifacts of a run and their paths."""
    form = output_format(output, json)
    trackers, run = _tracked(ctx, run)
    artifacts = masking.mask(
        {name: artifact for tracker in trackers for name, artifact in tracker.artifacts(run).items()}
    )
    kept = [value for name, value in artifacts.items() if artifact in ("", name)]
    if form != "text":
        emit([{"name": a.name, "path": a.path, "metadata": dict(a.metadata or {})} for a in kept], form)
        return
    rows: list[Row] = [[a.name, a.path, (_about(a), "dim")] for a in kept]
    _show(rows, ("ARTIFACT", "PATH", "METADATA"), "artifacts", run)


@register("lineage")
def lineage(ctx: typer.Context, run: RunId, output: Output = "", json: Json = False) -> None:
    """Show the sources and descendants of a run."""
    form = output_format(output, json)
    trackers, run = _tracked(ctx, run)
    lineages = [tracker.lineage(run) for tracker in trackers]
    if form != "text":
        steps = dict.fromkeys(edge for lineage in lineages for edge in lineage.edges)
        emit(
            [{"source": e.source_id, "artifact": e.artifact_name, "run": e.run_id} for e in steps],
            form,
        )
        return
    for item in lineages:
        say("\n".join(_tree(item)))


def _tree(lineage: Lineage) -> list[str]:
    """Formats a lineage: the run, its sources and its descendants."""
    arrow = "<>"
    if supports_unicode(sys.stdout):
        arrow = "←→"

    def walk(run: str, forward: bool, depth: int, above: frozenset[str]) -> Iterable[str]:
        for edge in lineage.descendants(run) if forward else lineage.sources(run):
            other = edge.run_id if forward else edge.source_id
            by = ""
            if edge.artifact_name:
                by = f"  ({edge.artifact_name})"
            yield f"{'  ' * depth}{arrow[forward]} {other}{by}"
            if other not in above:
                yield from walk(other, forward, depth + 1, above | {other})

    start = frozenset([lineage.run_id])
    return [lineage.run_id, *walk(lineage.run_id, False, 1, start), *walk(lineage.run_id, True, 1, start)]


def _trackers(ctx: typer.Context) -> list[TrackerBase]:
    """Returns the configured trackers.

    Raises:
        UsageError: no tracker is configured.
    """
    configured, factories = prepare.configured_trackers(session_of(ctx).config)
    if not configured:
        raise errors.UsageError(
            "no tracker is configured",
            hint="in .torchxconfig: `fsspec =` in [torchx:tracker], `config = FOLDER` in [tracker:fsspec]",
            code="unknown_tracker",
        )
    return list(tracker_configured.build_trackers(configured, factories))


def _tracked(ctx: typer.Context, text: str) -> tuple[list[TrackerBase], str]:
    """Returns the configured trackers, and the id of a run in them."""
    trackers = _trackers(ctx)
    return trackers, _run_id(ctx, text, trackers)


def _run_id(ctx: typer.Context, text: str, trackers: list[TrackerBase]) -> str:
    """Returns the id of a run in the trackers."""
    known = [run for tracker in trackers for run in tracker.run_ids()]
    if text in known or any(_is_source(tracker, text) for tracker in trackers):
        return text
    try:
        with session_of(ctx).runner() as runner:
            return runner.resolve_handle(text)
    except errors.TorchxError:
        ends = [run for run in known if run.rpartition("/")[2] == text]
        if len(set(ends)) == 1:
            return ends[0]

        hint = suggestions.did_you_mean(text, known, "all runs: torchx tracker jobs")
        raise errors.UsageError(
            f"no tracked run `{text}`", hint=hint, code="unknown_run", facts={"given": text}
        ) from None


def _is_source(tracker: TrackerBase, text: str) -> bool:
    """Returns True if the text names the source of a tracked run; not all trackers support this."""
    try:
        return any(True for _ in tracker.run_ids(parent_run_id=text))
    except (NotImplementedError, TypeError, ValueError, errors.TorchxError):
        return False


def _about(artifact: TrackerArtifact) -> str:
    if artifact.metadata:
        return _text(dict(artifact.metadata))
    return ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, default=str)


def _show(rows: Sequence[Row], heads: tuple[str, ...], kind: str, run: str) -> None:
    if rows:
        show_table(rows, heads)
    else:
        note(f"no {kind} for run {run}")
