"""The progress of a sweep: the state of each run, from the journal of its conductor."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection
from typing import Any

from torchx import json_shape
from torchx.json_limits import compact_json, without_empty
from torchx.machine import files, processes
from torchx.sweeps.paths import SweepPaths

PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED = range(5)
STATES = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
"""The names of the states of runs, by their numbers."""

_NUMBERS = {name: number for number, name in enumerate(STATES)}

LARGEST_JOURNAL = 1 << 28
"""Maximum bytes of a journal, enough for a million runs."""

MOST_RUNS = (1 << 24) - 1
"""Maximum number of a run."""

Entry = dict[str, Any]


class Progress:
    """The state of each run, a byte each.

    Attributes:
        states: the states by number, from run 1 at index 0.
        ids: the ids of the applications of running runs.
        begun: the times of the submissions of running runs.
        tries: the number of applications of a run, of those that are started again.
        handled: bytes of the requests that the conductor has acted on.
        cancelled: the number of runs when the cancellation of the sweep was requested last.
        at_once: the maximum number of runs at the same time, if it was changed.
        held: no run is started until the sweep is released.
        done: the time when all runs had ended; None before.
        first_start: the earliest start of a run that has ended, since all had ended last.
        first_failed: the run that failed first, 0 for none.
        met: the positions of the applications of ``--after`` whose condition is met.
        reason: why the runs were cancelled, if not by a user.
        sending: the runs of submissions as one object that have begun and not ended, by their keys.
        sent: the number of submissions as one object that have begun.
        booted: the boot id of the machine, and when it was booted by the clock of the conductor.
    """

    def __init__(self) -> None:
        self.states = bytearray()
        self.ids: dict[int, str] = {}
        self.begun: dict[int, float] = {}
        self.tries: dict[int, int] = {}
        self.handled = 0
        self.cancelled = 0
        self.at_once: int | None = None
        self.held = False
        self.done: float | None = None
        self.first_start: float | None = None
        self.first_failed = 0
        self.met: set[int] = set()
        self.reason = ""
        self.sending: dict[str, list[int]] = {}
        self.sent = 0
        self.booted: tuple[str, float | None] = ("", None)

    def grow(self, count: int) -> None:
        """Adds runs that wait to be started."""
        if len(self.states) < count:
            self.states.extend(bytes(count - len(self.states)))

    def limit(self, planned: int) -> int:
        """Returns the maximum number of runs at the same time: the planned one, unless it was changed."""
        if self.at_once is None:
            return planned
        return self.at_once

    def counts(self, numbers: Collection[int] = ()) -> dict[str, int]:
        """Returns the number of runs in each state, without states that no run has.

        Args:
            numbers: the runs to count (default: all).
        """
        states = self.states
        if numbers:
            states = bytearray(self.states[number - 1] for number in numbers)
        found = {name: states.count(number) for number, name in enumerate(STATES)}
        return without_empty(found)

    def has_ended(self, number: int) -> bool:
        """Returns True if a run exists and has ended."""
        return 0 < number <= len(self.states) and self.states[number - 1] not in (PENDING, RUNNING)

    @property
    def started(self) -> float | None:
        """The start of the first run since all had ended last, seconds since the epoch; None before."""
        begun = [at for number, at in self.begun.items() if self.states[number - 1] == RUNNING]
        if self.first_start is not None:
            begun.append(self.first_start)
        return min(begun, default=None)

    @property
    def active(self) -> bool:
        """True if a run waits or runs."""
        return PENDING in self.states or RUNNING in self.states

    def apply(self, entry: Entry) -> None:
        """Applies an entry of the journal.

        Raises:
            KeyError, TypeError, ValueError, IndexError: it is damaged.
        """
        kind = entry["e"]
        if kind == "end":
            self._end(self._number_of(entry), entry)
        elif kind in ("begin", "queue"):
            for begin in begins_of(entry):
                self._begin(self._number_of(begin), begin)
            self.sending.pop(str(entry.get("key")), None)
            self._reopen()
        elif kind == "send":
            self.sending[str(entry["key"])] = [int(number) for number in entry["runs"]]
            self.sent += 1
        elif kind == "again":
            self._again(entry)
        elif kind == "cancel":
            self._cancel(entry)
        elif kind == "at_once":
            self.at_once = int(entry["to"])
        elif kind in ("hold", "release"):
            self.held = kind == "hold"
        elif kind == "conductor" and "booted" in entry:
            self.booted = (str(entry["booted"][0]), float(entry["booted"][1]))
        elif kind == "met":
            self.met.add(int(entry["i"]))
        elif kind == "done":
            self.done = json_shape.timestamp(entry["t"], "t")
        if "upto" in entry:
            self.handled = int(entry["upto"])

    def _number_of(self, entry: Entry) -> int:
        number: int = json_shape.integer(entry["n"], "n", 1, MOST_RUNS)
        self.grow(number)
        return number

    def _begin(self, number: int, entry: Entry) -> None:
        self.states[number - 1] = RUNNING
        if entry.get("waits"):
            self.states[number - 1] = PENDING
        self.ids[number], self.begun[number] = str(entry["id"]), json_shape.timestamp(entry["t"], "t")
        if entry.get("try", 1) > 1:
            self.tries[number] = int(entry["try"])

    def _reopen(self) -> None:
        if self.done is not None:
            self.done = self.first_start = None

    def _again(self, entry: Entry) -> None:
        for number in entry["runs"]:
            self.grow(number)
            self.states[number - 1] = PENDING
            self.tries.setdefault(number, 1)  # its next application gets another id
        self.first_failed = next((n for n, s in enumerate(self.states, 1) if s == FAILED), 0)
        self._reopen()
        self.reason = ""

    def _cancel(self, entry: Entry) -> None:
        self.cancelled, self.reason = int(entry["runs"]), str(entry.get("m", ""))
        self.held = False  # runs that are submitted again start
        for at, state in enumerate(self.states[: self.cancelled]):
            if state == PENDING and at + 1 not in self.ids:
                self.states[at] = CANCELLED

    @property
    def clock_step(self) -> float:
        """Seconds by which the system clock was set forward since the conductor started; 0 if unknown."""
        return processes.clock_step(*self.booted)

    @property
    def unsent(self) -> list[int]:
        """The runs that wait and that no engine has yet."""
        return [n for n, state in enumerate(self.states, 1) if state == PENDING and n not in self.ids]

    def _end(self, number: int, entry: Entry) -> None:
        state = _NUMBERS[entry["s"]]
        begun = self.begun.pop(number, None)
        if begun is not None and "b" in entry and self.states[number - 1] == RUNNING:
            self.first_start = min(begun, self.first_start or begun)
        self.states[number - 1] = state
        self.ids.pop(number, None)
        if state == FAILED and not self.first_failed:
            self.first_failed = number


def begins_of(entry: Entry) -> list[Entry]:
    """Returns the starts that an entry records: of one run, or of all that an engine has and starts."""
    if entry["e"] == "begin":
        return [entry]
    if entry["e"] == "queue":
        found = {"e": "begin", "t": entry["t"], "waits": 1}
        return [{**found, "n": number, "id": app_id} for number, app_id in entry["ids"]]
    return []


def json_line(data: object) -> bytes:
    """Returns data as a line of a file."""
    return compact_json(data).encode() + b"\n"


def record(paths: SweepPaths, progress: Progress, *entries: Entry) -> None:
    """Appends entries to a journal, and applies them.

    Raises:
        OSError: they cannot be written; then none is.
    """
    if entries:
        files.append_lines(paths.journal, map(json_line, entries))
    for entry in entries:
        progress.apply(entry)


def read(paths: SweepPaths, each: Callable[[Entry], None]) -> None:
    """Calls a function with each entry of a journal; skips damaged ones.

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = files.read_file(paths.journal, LARGEST_JOURNAL)
    except FileNotFoundError:
        return
    for entry in parse_lines(data):
        try:  # in place of `suppress`, which takes longer than most calls
            each(entry)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            continue


def parse_lines(data: bytes) -> list[Any]:
    """Returns the JSON values of lines; skips lines that are incomplete, as their writer was killed.

    >>> parse_lines(b'{"e": 1}\\n{"e"\\n[2]\\n')
    [{'e': 1}, [2]]
    """
    whole = data.rstrip(b"\n")
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(b"[" + whole.replace(b"\n", b",") + b"]")  # much faster than one by one
        if len(found) == whole.count(b"\n") + bool(whole):
            return list(found)
    values = []
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            values.append(json.loads(line))
    return values


def load(paths: SweepPaths, count: int) -> Progress:
    """Returns the progress of a sweep.

    Args:
        paths: its files.
        count: the number of its runs.

    Raises:
        OSError: the journal cannot be read.
    """
    progress = Progress()
    progress.grow(count)
    read(paths, progress.apply)
    return progress
