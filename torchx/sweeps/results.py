"""The results of runs: parameters, state, time, measurements, and metrics from trackers and logs."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx.errors import StateError, TorchxError, UnreachableError, UsageError
from torchx.masking import mask
from torchx.scheduling.base import AnyScheduler, EngineOf
from torchx.scheduling.logs import LogQuery, text_of, too_slow, whole_lines
from torchx.scheduling.patterns import SearchTooLongError, in_time
from torchx.scheduling.responses import Rows, html_table
from torchx.sweeps import logs
from torchx.sweeps.parameters import with_number
from torchx.sweeps.records import Run
from torchx.sweeps.runs import measured
from torchx.sweeps.view import Sweep, handle_of

if TYPE_CHECKING:
    from torchx.tracker.base import TrackerBase

Value = str | float | int | None
Values = dict[str, Value]

_NAMED = r"(?s)([A-Za-z_][\w./-]{0,99})(?:=(.+))?"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?i:nan|inf(?:inity)?)\b"


class Metric(NamedTuple):
    """A metric that is read from the logs.

    Attributes:
        name: its name.
        pattern: its value is the first group of the last match, or the whole match without a group.
    """

    name: str
    pattern: re.Pattern[str]


@dataclass
class Result:
    """The result of a run.

    Attributes:
        run: the run.
        handle: the handle of its application; empty before it is started.
        metrics: its metrics by name.
    """

    run: Run
    handle: str = ""
    metrics: Values = field(default_factory=dict)

    @property
    def duration(self) -> float | None:
        """The seconds from the start to the end; None if it has not ended or never started."""
        run = self.run
        if run.started is None or run.ended is None:
            return None
        return run.ended - run.started


class Results(Rows[Result]):
    """The results of runs, which a notebook displays as a table."""

    def _repr_html_(self) -> str:
        names, metrics = names_of(self)
        rows = []
        for result in self:
            run, found = result.run, mask({"parameters": result.run.parameters, "metrics": result.metrics})
            values = [found["parameters"].get(name) for name in names]
            values += [found["metrics"].get(name) for name in metrics]
            seconds = result.duration and f"{result.duration:.1f} s"
            rows.append([run.number, *values, run.state, seconds, run.code, run.message])
        return html_table(("run", *names, *metrics, "state", "time", "exit", ""), rows)


def names_of(found: Sequence[Result]) -> tuple[list[str], list[str]]:
    """Returns the names of all parameters, and those of all metrics."""
    parameters = dict.fromkeys(name for result in found for name in result.run.parameters)
    metrics = dict.fromkeys(name for result in found for name in result.metrics)
    return [*parameters], [*metrics]


def succeeded(found: Iterable[Result]) -> list[Result]:
    """Returns the results of runs that have succeeded; others are never the best."""
    return [result for result in found if result.run.state == "SUCCEEDED"]


BEST = {"loss": min, "acc": max}
"""The best value of metrics, by a part of their names."""


def best(found: Sequence[Result]) -> tuple[Result, str] | None:
    """Returns the best run that has succeeded, and the name of its metric; None without one to compare.

    >>> runs = [Result(Run(n, state="SUCCEEDED"), metrics={"loss": 1.0 / n}) for n in (1, 2)]
    >>> best(runs)[0].run.number
    2
    """
    for part, choose in BEST.items():
        for name in dict.fromkeys(name for result in found for name in result.metrics):
            numbers = [
                (value, result)
                for result in succeeded(found)
                if isinstance(value := result.metrics.get(name), (int, float)) and value == value
            ]
            if part in name.lower() and len(numbers) > 1:
                return choose(numbers, key=itemgetter(0))[1], name
    return None


def parse_metric(text: str, flag: str = "--metric") -> Metric:
    """Reads a metric: its name, or a pattern with the name before ``=``, as in ``val_loss=([\\d.]+)``.

    A name alone finds the number after it: ``loss=0.3``, ``loss: 0.3``, ``loss 0.3`` or ``"loss": 0.3``.
    The pattern is the whole text, since most programs print names before values. ``NAME:=PATTERN`` gives
    another name.

    Raises:
        UsageError: the text has another form, or the pattern is invalid.

    >>> metric = parse_metric("val_loss=([0-9.]+)")
    >>> metric.name, metric.pattern.pattern
    ('val_loss', 'val_loss=([0-9.]+)')
    >>> parse_metric("loss").pattern.findall('val_loss=9 loss: 1e-3 {"loss": .5} loss 2 loss=-inf')
    ['1e-3', '.5', '2', '-inf']
    >>> parse_metric("loss:=total: ([0-9.]+)").pattern.pattern
    'total: ([0-9.]+)'
    """
    name, renamed, pattern = text.partition(":=")
    if not renamed:
        match = re.fullmatch(_NAMED, text)
        if match is None:
            raise UsageError(
                f"{flag} takes NAME or NAME=PATTERN, got `{text}`",
                hint=rf"e.g. {flag} loss, {flag} 'val_loss=([\d.]+)', or NAME:=PATTERN for another name",
                code="invalid_value",
            )
        name, pattern = match[1], text
        if match[2] is None:
            pattern = rf"(?<![\w./-]){re.escape(name)}[\"']?(?:\s*[=:]\s*|\s+)({_NUMBER})"
    try:
        return Metric(name.strip(), re.compile(pattern))
    except re.error as error:
        raise UsageError(f"--metric: `{pattern}` is not a pattern: {error}", code="invalid_value") from None


USUAL = tuple(map(parse_metric, ("val_loss", "loss", "val_acc", "accuracy", "acc")))
"""The metrics that most programs print."""

MOST_COMPARED, READ = 200, 200
"""The most runs whose usual metrics are read, and the number of last lines of each log that are read."""


def results(
    sweep: Sweep,
    engine_of: EngineOf,
    metrics: Sequence[Metric] = (),
    trackers: Sequence[TrackerBase] = (),
    *,
    usual: bool = False,
) -> Iterator[Result]:
    """Yields the result of each run, in order.

    Args:
        sweep: the sweep.
        engine_of: returns the scheduler of a name.
        metrics: metrics to read from the logs.
        trackers: trackers whose metadata about a run is included.
        usual: read the usual metrics at the end of each log too, if there are few runs.
    """
    usual = usual and len(sweep.runs) <= MOST_COMPARED
    engine = engine_of(sweep.header.scheduler)
    tracked = {run for tracker in trackers for run in _run_ids(tracker)}
    for run in sweep.runs:
        run.parameters = {name: with_number(value, run.number) for name, value in run.parameters.items()}
        result = Result(run)
        if run.app_id:
            result.handle = handle_of(sweep.header, run)
            if run.ended is None or not sweep.progress.states:  # or it is a single application
                run.memory, run.cpu, run.gpu = measured(engine, run.app_id)
            if result.handle in tracked:
                result.metrics |= _metadata(trackers, result.handle)
            try:
                if usual:
                    result.metrics = from_log(engine, run, USUAL, READ) | result.metrics
                if metrics:
                    result.metrics |= from_log(engine, run, metrics)
            except UnreachableError:
                usual = False  # each of the other runs would wait for its answer
        yield result


def from_log(engine: AnyScheduler, run: Run, metrics: Sequence[Metric], tail: int | None = None) -> Values:
    """Returns the metrics in the log of a run: each from its last match.

    Args:
        engine: the scheduler of the run.
        run: the run.
        metrics: the metrics.
        tail: the number of lines at the end of its log that are read; None for all.

    Raises:
        UnreachableError: the engine does not answer.
    """
    found: Values = {}
    if not run.app_id:
        return found
    try:
        for chunk in whole_lines(logs.log_of(engine, run, LogQuery(tail=tail))):
            _search(text_of(chunk.data), metrics, found)
    except UnreachableError:
        raise
    except (StateError, NotImplementedError):
        return found
    return found


def _search(text: str, metrics: Iterable[Metric], found: Values) -> None:
    for name, pattern in metrics:
        try:
            last = in_time(("last", pattern), partial(_last, pattern), text)
        except SearchTooLongError:
            raise too_slow(pattern.pattern) from None
        found.update((name, number(value)) for value in last)


def _last(pattern: re.Pattern[str], text: str) -> list[str | None]:
    """Returns the value of the last match, in a list that is empty without one."""
    return [match[1] if pattern.groups else match[0] for match in deque(pattern.finditer(text), 1)]


def number(value: Any) -> Value:
    """Returns a number if a value is one, else its text.

    >>> number("0.5"), number("7"), number("a"), number(True)
    (0.5, 7, 'a', 'True')
    """
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    text = str(value)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _run_ids(tracker: TrackerBase) -> list[str]:
    try:
        return list(tracker.run_ids())
    except (NotImplementedError, TorchxError, OSError, ValueError):
        return []


def _metadata(trackers: Iterable[TrackerBase], handle: str) -> Values:
    found: Values = {}
    for tracker in trackers:
        with suppress(NotImplementedError, TorchxError, OSError, ValueError):
            metadata: Mapping[str, object] = tracker.metadata(handle)
            found |= {str(name): number(value) for name, value in metadata.items()}
    return found


def sort(found: list[Result], key: str, flag: str = "--sort") -> list[Result]:
    """Returns results sorted by a column; those without a value come last.

    Args:
        found: the results.
        key: a parameter, a metric, or run, state, duration, memory, cpu or gpu; with ``-`` before it, the
            largest value comes first.
        flag: the flag with the key, for the error.

    Raises:
        UsageError: no run has such a column.
    """
    name, reverse = key.removeprefix("-"), key.startswith("-")
    values = [column(result, name) for result in found]
    if found and all(value is None for value in values):
        known = dict.fromkeys([*found[0].run.parameters, *(n for r in found for n in r.metrics), *COLUMNS])
        if name not in known:
            raise UsageError(
                f"{flag}: no run has `{name}`",
                hint=f"columns: {', '.join(known)}",
                code="invalid_value",
            )
    values = [None if value != value else value for value in values]  # not a number
    present = [(value, at) for at, value in enumerate(values) if value is not None]
    present.sort(key=lambda pair: _order(pair[0]), reverse=reverse)
    missing = [result for result, value in zip(found, values, strict=True) if value is None]
    return [*(found[at] for _, at in present), *missing]


COLUMNS = ("run", "state", "duration", "memory", "cpu", "gpu")
"""The columns besides parameters and metrics."""


def column(result: Result, name: str) -> Value:
    """Returns the value of a result in a column; None without one."""
    own: Values = {
        "run": result.run.number,
        "state": result.run.state,
        "duration": result.duration,
        "memory": result.run.memory,
        "cpu": result.run.cpu,
        "gpu": result.run.gpu,
    }
    if name in result.metrics:
        return result.metrics[name]
    if name in result.run.parameters:
        return number(result.run.parameters[name])
    return own.get(name)


def _order(value: Value) -> tuple[int, float, str]:
    if isinstance(value, str):
        return 1, 0.0, value
    return 0, float(value or 0), ""
