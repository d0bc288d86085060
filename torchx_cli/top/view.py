"""Format the live view: rows of a table, from which a screen takes those that are visible."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from torchx.printable import memory_size, one_line
from torchx.specs.handles import parse_app_handle
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.output import STATE_MEANING, columns, counted, fit, note, padded, paint, say
from torchx_cli.terminal.units import cores, percent, rate, written

if TYPE_CHECKING:
    from torchx_cli.top.snapshot import AppRows, ReplicaRow

HEADS = ("REPLICA", "STATE", "CPU", "MEMORY", "GPU", "GPU MEM", "OUTPUT", "LAST LINE")
_WIDTHS = (11, 6, 8, 5, 8, 9)
"""Columns from the state to the output."""

_FORMS: dict[str, Callable[[Any], str]] = {
    "cpu": cores,
    "memory": memory_size,
    "gpu": percent,
    "gpu_memory": memory_size,
    "output": rate,
}
"""Measurement -> the function that formats it."""

_NARROW, _OUTPUT, _USUAL = 80, 6, {2, 3, 6}
"""Columns of a window that has room for the output; the column of it, and those that a wide window has."""

_NAME = 22
"""Maximum columns of the name of a replica."""


class Line(NamedTuple):
    """A row of the view: an application, or one of its replicas."""

    app: AppRows
    replica: ReplicaRow | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifies the row."""
        if self.replica is None:
            return self.app.handle, "", -1
        return self.app.handle, self.replica.role, self.replica.replica


def lines_of(apps: Sequence[AppRows]) -> list[Line]:
    """Returns all rows."""
    return [line for app in apps for line in (Line(app), *(Line(app, replica) for replica in app.replicas))]


def cells(replica: ReplicaRow) -> list[str]:
    """Returns the cells of a replica, its last line included."""
    state = replica.end or replica.state
    if replica.attempt > 1:
        state += f" #{replica.attempt}"
    return [
        replica.name,
        state,
        *(written(replica.measured(name), form) for name, form in _FORMS.items()),
        mask_text(replica.last),
    ]


def size_text(replicas: Sequence[ReplicaRow]) -> str:
    """Returns the number of replicas, and of runs of sweeps, as text."""
    runs = sum(replica.is_run for replica in replicas)
    parts = [(len(replicas) - runs, "replica"), (runs, "run")]
    return ", ".join(counted(count, noun) for count, noun in parts if count) or counted(0, "replica")


def head_cells(app: AppRows) -> list[str]:
    """Returns the cells of an application: sums over its replicas."""
    described = app.description
    about = f"{size_text(app.replicas)} on {parse_app_handle(app.handle).scheduler_backend}"
    message = app.error or (described.msg if described is not None else "") or app.steps
    totals = [_total(app, name) for name in _FORMS]
    return [app.app_id, app.state, *totals, f"{about}  {mask_text(message)}".rstrip()]


def _total(app: AppRows, name: str) -> str:
    """Returns the sum of a measurement over the replicas, or the mean of the GPUs."""
    known = [value for replica in app.replicas if (value := replica.measured(name)) is not None]
    if not known:
        return ""
    return _FORMS[name](sum(known) / len(known) if name == "gpu" else sum(known))


def shown_columns(apps: Sequence[AppRows], window: int) -> set[int]:
    """Returns the columns whose measurement some replica has; without the output in a narrow window."""
    replicas = [replica for app in apps for replica in app.replicas]
    shown = {at for at, name in enumerate(_FORMS, 2) if any(r.measured(name) is not None for r in replicas)}
    if window >= _NARROW:
        return shown | _USUAL
    return shown - {_OUTPUT}


def name_width(lines: Sequence[Line]) -> int:
    """Returns the columns of the first column, for the given rows."""
    names = [line.app.app_id if line.replica is None else f"  {line.replica.name}" for line in lines]
    return min(_NAME, max([len(HEADS[0]), *(columns(one_line(name)) for name in names)]))


def row_text(texts: Sequence[str], width: int, shown: Collection[int], window: int) -> str:
    """Returns the text of a row: numbers to the right, the rest to the left."""
    parts = [_left(texts[0], width)]
    for at, (text, room) in enumerate(zip(texts[1:7], _WIDTHS, strict=True), 1):
        if at == 1:
            parts.append(_left(text, room))
        elif at in shown:
            parts.append(_right(text, room))
    start = " ".join(parts)
    return fit(f"{start} {fit(texts[7], max(0, window - columns(start) - 1))}", window).rstrip()


def draw(line: Line, width: int, shown: Collection[int], window: int, stream: TextIO) -> str:
    """Returns a row with its state in colour."""
    if line.replica is None:
        text = row_text(head_cells(line.app), width, shown, window)
        return paint(text, "bold", stream)
    texts = cells(line.replica)
    texts[0] = f"  {texts[0]}"
    text = row_text(texts, width, shown, window)
    state = _left(texts[1], _WIDTHS[0])
    meaning = "bad"
    if not line.replica.end:
        meaning = STATE_MEANING.get(line.replica.state, "bad")
    before, after = text[:width], text[width:]
    return before + after.replace(state.rstrip(), paint(state.rstrip(), meaning, stream), 1)


def _left(text: str, room: int) -> str:
    return padded(fit(text, room), room)


def _right(text: str, room: int) -> str:
    shown = fit(text, room)
    return " " * (room - columns(shown)) + shown


def print_table(apps: list[AppRows]) -> None:
    """Prints all rows once."""
    lines, window = lines_of(apps), 200
    if not lines:
        note("no running applications")
        return
    width, shown = name_width(lines), shown_columns(apps, window)
    rows = [row_text(HEADS, width, shown, window)]
    rows += [draw(line, width, shown, window, sys.stdout) for line in lines]
    say("\n".join(rows))
