"""`torchx why`: explain the state of an application in one answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from torchx.errors import TorchxError
from torchx.runner.why.data import as_data
from torchx.runner.why.explain import Difference, Explanation, explain
from torchx.stragglers import text as steps_text
from torchx_cli.applications import find, short_name
from torchx_cli.door import feature
from torchx_cli.flags import Handle, Json, Output
from torchx_cli.session import session_of
from torchx_cli.terminal import measurement_text
from torchx_cli.terminal.masking import mask, remember
from torchx_cli.terminal.output import (
    bar_of,
    counted,
    emit,
    fit,
    output_format,
    say,
    width_of,
    wrap,
    wrap_command,
)
from torchx_cli.terminal.status_text import title_lines
from torchx_cli.terminal.times import ago
from torchx_cli.terminal.units import written

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner


def why_(ctx: typer.Context, handle: Handle, output: Output = "", json: Json = False) -> None:
    """Explain why an application failed, waits or still runs.

    Shows the cause, the evidence, the last lines, memory used against requested, what changed since the
    last success of this name and program, and commands to try next. All are facts that the engine reports
    or the program printed. The exit code is 0 in any state.
    """
    form = output_format(output, json)
    with session_of(ctx).runner() as runner:
        full, described = find(runner, handle, full=True)
        noun = "run" if runner.scheduler_of(full).has_runs else "replica"
        explained = explain(runner, full, described, short_name(runner, full))
        if explained.success is not None:
            explained.differences = list(_differences(runner, explained.success, full))
    remember(described.roles)
    data = mask({**as_data(explained), "steps": steps_text.lines_of(described.steps_dir)})
    if form == "text":
        say("\n".join(_lines(data, explained, noun)))
    else:
        emit(data, form)


EVIDENT = ("exit_code", "signal", "stalled", "held", "after")
"""Causes whose evidence names them."""

PARTS = ("arguments", "source", "run options", "resources", "image", "environment", "machine", "packages")
"""The sections of a comparison that may explain a failure, the most telling ones first."""


def _differences(runner: Runner, before: str, handle: str) -> Iterator[Difference]:
    """Yields the differences between the last success and this application."""
    try:
        sections = feature("diff.sections")
        sides = (sections.Side.of(runner, before), sections.Side.of(runner, handle))
        found = sections.compare_submissions(sides)
    except (TorchxError, OSError, ModuleNotFoundError):
        return  # the cause is known without them
    folders = [side.provenance.directory for side in sides if side.provenance is not None]
    if len(folders) == 2 and folders[0] != folders[1]:
        yield Difference("folder", *folders)
    by_name = {section.name: section.differences for section in found}
    # a program has other arguments if its component has
    for name in ("program", *PARTS) if not by_name["arguments"] else PARTS:
        for each in by_name[name]:
            if (name, each.name) != ("machine", "folder"):
                yield Difference(f"{name}: {each.name}", each.a, each.b)


def _lines(data: Object, made: Explanation, noun: str) -> list[str]:
    """Returns an explanation as text; the noun names the parts of the application."""
    out, cause = sys.stdout, data["cause"]
    counts = ", ".join(f"{count} {state}" for state, count in data["replicas"].items())
    lines = title_lines(data, out)
    cause_text = f"{cause['class']}: {cause['evidence']}"
    if cause["class"] in EVIDENT:
        cause_text = cause["evidence"]
    lines += _part("cause", cause_text)
    lines += _part("", cause["advice"])
    lines += _part("failed first", _first(data["first_failure"]))
    lines += _part(f"{noun}s", counts if sum(data["replicas"].values()) > 1 else "")
    lines += _part("last output", written(made.last_output, ago))
    lines += _part("usage", measurement_text.usage_line(made.usage))
    lines += _part("steps", "; ".join(data["steps"]))
    if data["lines"]:
        lines += _part("last lines", " ")
    for line in data["lines"]:
        several = ""
        if line["replicas"] > 1:
            several = f" ({counted(line['replicas'], noun)})"
        lines.append(fit(f"  {bar_of(out)} {line['line']}{several}", width_of(out)))
    if data["last_success"] is not None:
        changed = data["differences"]
        lines += _part("last success", data["last_success"] + ("" if changed else ": no recorded difference"))
        for each in changed:
            lines.append(wrap(_difference(each), out, "  "))
        if data["more_differences"]:
            lines.append(f"  and {data['more_differences']} more")
    lines += _part("next", " ")
    lines += [wrap_command("  ", command, out) for command in data["commands"]]
    return lines


def _part(label: str, text: str | None) -> list[str]:
    """Returns a labelled line, wrapped to the window; nothing without a text."""
    if not text:
        return []
    head = f"{label:<13}" if text.strip() else label
    return [wrap(f"{head}{text}".rstrip(), sys.stdout)]


def _first(first: Object | None) -> str:
    if first is None:
        return ""
    if first["run"] is not None:
        return f"run {first['run']}"
    host = ""
    if first["host"]:
        host = f" on {first['host']}"
    of = ""
    if first["max_attempts"]:
        of = f" of {first['max_attempts']}"
    rank = ""
    if first["rank"] is not None:
        rank = f", rank {first['rank']}"
    return f"{first['role']}/{first['replica']}{host}{rank}, attempt {first['attempt']}{of}"


def _difference(each: Object) -> str:
    before, now = each["before"], each["now"]
    if before is None:
        return f"{each['part']}: {now} (new)"
    if now is None:
        return f"{each['part']}: no longer {before}"
    return f"{each['part']}: {before} -> {now}"
