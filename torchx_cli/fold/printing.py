"""Print folded lines as text or JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from torchx.lazy import lazy_imports
from torchx.machine.readers import Readers
from torchx.printable import ranges
from torchx_cli.terminal.output import fit, say_json
from torchx_cli.terminal.streaming import LogPrinter, stamp
from torchx_cli.terminal.units import names_of

with lazy_imports:
    from torchx_cli.fold import fold as folds
    from torchx_cli.fold import sources as log_sources

if TYPE_CHECKING:
    from torchx.scheduling.logs import LogChunk
    from torchx_cli.fold.fold import Fold, Run
    from torchx_cli.fold.sources import Source

LONGEST_LABEL = 40
"""Maximum columns of the names of replicas before a line."""

_MOST_KEPT = 4096
"""Maximum number of combinations of sources whose names are kept."""

_AHEAD = 64
"""Maximum number of chunks that are read before they are folded."""


def labels_of(roles: Iterable[tuple[str, int]]) -> list[str]:
    """Returns the usual names of a role's replicas, given as name and number of replicas, for alignment."""
    return [fit(f"{name}/{ranges(range(max(1, count)))}", LONGEST_LABEL) for name, count in roles]


def runs_of(chunks: Iterable[LogChunk], fold: Fold, *, live: bool) -> Iterator[Run | None]:
    """Yields folded lines, and None whenever all due lines have been yielded.

    Args:
        chunks: the log.
        fold: folds it.
        live: the log grows: yield each line within :data:`torchx_cli.fold.fold.WINDOW` of its arrival.
    """
    if not live:
        for read in chunks:
            yield from fold.add(read, 0.0)
    else:
        ahead: Readers[LogChunk] = Readers(_AHEAD)
        with ahead:
            ahead.add(chunks)
            while ahead.reading:
                due = fold.next_due()
                chunk = ahead.get(None if due is None else max(0.0, due - time.monotonic()))
                now = time.monotonic()
                if chunk is not None:
                    yield from fold.add(chunk, now)
                yield from fold.due(now)
                yield None
    yield from fold.rest()


class FoldPrinter:
    """Prints runs of lines, each with the names of its replicas and, if there are several, their number.

    Args:
        printer: prints the lines.
        fold: makes the runs.
        alone: the log is of one replica, so that its lines are not emphasized.
    """

    def __init__(self, printer: LogPrinter, fold: Fold, *, alone: bool = False) -> None:
        self._printer, self._fold, self._alone = printer, fold, alone
        self._heads: dict[int, bytes] = {}

    def write(self, run: Run) -> None:
        """Prints a run."""
        head = self._heads.get(run.mask)
        if head is None:
            if len(self._heads) >= _MOST_KEPT:
                self._heads.clear()
            head = self._heads[run.mask] = self._head(self._fold.sources.of_mask(run.mask))
        data = b"\n".join(run.lines)
        if data.count(b"\n") >= len(run.lines):  # there is an unfinished line, which ends with a line feed
            data = b"".join(line.removesuffix(b"\n") if b"\n" in line else line + b"\n" for line in run.lines)
        else:
            data += b"\n"
        self._printer.write_lines(run.mask, head, run.time, data)

    def _head(self, sources: list[Source]) -> bytes:
        """Returns the text before a line."""
        text = b""
        if len(sources) > 1:
            text = f"({len(sources)}x) ".encode()
        first = sources[0]
        text += log_sources.rank_prefix(
            first.names, [{source.ranks[at] for source in sources} for at in range(len(first.names))]
        )
        if not self._printer.prefix:
            return text
        if len(sources) == 1:
            return self._printer.label(first.role, first.replica, strong=not self._alone) + text
        name = names_of((source.role, source.replica) for source in sources)
        return self._printer.shared_label(fit(name, LONGEST_LABEL)) + text


def print_runs(runs: Iterable[Run | None], write: Callable[[Run], None], printer: LogPrinter) -> None:
    """Prints all runs; closes the printer even on errors."""
    try:
        for run in runs:
            if run is None:
                printer.flush()
            else:
                write(run)
    finally:
        printer.close()


def print_json(runs: Iterable[Run | None], fold: Fold) -> None:
    """Prints a JSON object for each line: replicas, stream, time, line and partial.

    Each replica is an object: role, replica, attempt, and the ranks that it printed before the line, if any.
    """
    heads: dict[int, str] = {}
    for run in runs:
        if run is None:
            sys.stdout.flush()
            continue
        head = heads.get(run.mask)
        if head is None:
            if len(heads) >= _MOST_KEPT:
                heads.clear()
            head = heads[run.mask] = _json_head(fold.sources.of_mask(run.mask))
        at = json.dumps(stamp(run.time) if run.time else None)
        for line in run.lines:
            text = json.dumps(line.removesuffix(b"\n").decode("utf-8", "backslashreplace"))
            partial = "false"
            if line.endswith(b"\n"):
                partial = "true"
            say_json(f'{head}, "time": {at}, "line": {text}, "partial": {partial}}}')
    sys.stdout.flush()


def print_chunks(chunks: Iterable[LogChunk], *, live: bool) -> None:
    """Prints a log folded, as JSON."""
    folded = folds.Fold()
    print_json(runs_of(chunks, folded, live=live), folded)


def _json_head(sources: list[Source]) -> str:
    replicas = [
        {
            "role": source.role,
            "replica": source.replica,
            "attempt": source.attempt,
            "prefix": source.prefix,
        }
        for source in sorted(sources, key=lambda source: (source.role, source.replica, source.ranks))
    ]
    data = {"replicas": replicas, "stream": sources[0].stream.value}
    return json.dumps(data).removesuffix("}")


def printer_of(
    stream: TextIO,
    roles: Sequence[tuple[str, int]],
    chosen: Mapping[str, Collection[int]],
    *settings: bool,
) -> LogPrinter:
    """Returns a printer that folds the log of roles; see :func:`torchx_cli.terminal.streaming.printer_of`."""
    printer = FoldingPrinter(stream, labels_of(roles), *settings)
    printer.alone = sum(len(chosen.get(name) or range(count)) for name, count in roles) == 1
    return printer


class FoldingPrinter(LogPrinter):
    """Prints equal lines of several replicas once.

    Attributes:
        alone: the log is of one replica.
    """

    alone = False

    def print_log(self, chunks: Iterable[LogChunk], *, live: bool = True) -> None:
        """Prints all chunks folded; closes the printer even on errors."""
        folded = folds.Fold()
        writer = FoldPrinter(self, folded, alone=self.alone)
        print_runs(runs_of(chunks, folded, live=live), writer.write, self)
