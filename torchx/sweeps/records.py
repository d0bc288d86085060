"""The runs of a sweep as its plan and its journal record them, each read when it is used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, NamedTuple, overload

from torchx import json_shape
from torchx.json_shape import ExitCode
from torchx.sweeps.plan import Plan
from torchx.sweeps.progress import STATES, Entry, begins_of

_Mean = Annotated[float, partial(json_shape.number, maximum=1e9)]


class _End(NamedTuple):
    """The end of a run in a journal: its time, its start, its exit code, the reason, its measurements."""

    t: float
    b: float | None = None
    c: ExitCode = None
    m: str = ""
    u: tuple[int | None, _Mean | None, _Mean | None] | None = None


@dataclass
class Run:
    """A run of a sweep; times are seconds since the epoch.

    Attributes:
        number: its number, from 1.
        parameters: its parameters.
        state: the name of its state: PENDING, RUNNING, SUCCEEDED, FAILED or CANCELLED.
        app_id: the id of its application; empty before it is started.
        started: the start of its first replica, if it has ended, or the time of its submission.
        ended: its end.
        code: its exit code.
        message: the reason for its state.
        memory: the largest memory of a replica in bytes.
        cpu: the mean number of CPU cores of a replica.
        gpu: the mean utilisation of the GPUs of a replica, from 0 to 1.
    """

    number: int
    parameters: dict[str, str] = field(default_factory=dict)
    state: str = "PENDING"
    app_id: str = ""
    started: float | None = None
    ended: float | None = None
    code: int | None = None
    message: str = ""
    memory: int | None = None
    cpu: float | None = None
    gpu: float | None = None

    def apply(self, entry: Entry) -> None:
        """Applies an entry of the journal.

        Raises:
            KeyError, TypeError, ValueError: it is damaged.
        """
        if entry["e"] == "begin":
            self.app_id = str(entry["id"])
            self.started = json_shape.timestamp(entry["t"], "t")
        else:
            end = json_shape.read(_End, entry, "end")
            self.started, self.ended, self.code, self.message = end.b, end.t, end.c, end.m
            self.memory, self.cpu, self.gpu = end.u or (None, None, None)


class Runs(Sequence[Run]):
    """The runs of a sweep, in order; each is read when it is used, as most commands show few of them.

    Args:
        plan: the plan, whose runs were read.
        states: the states by number, from run 1 at index 0.

    Attributes:
        clock_step: seconds by which the system clock was set forward since the conductor started.
    """

    def __init__(self, plan: Plan, states: bytearray) -> None:
        self._plan, self._states = plan, states
        self._numbers = sorted(plan.lines)
        self._begins: dict[int, Entry] = {}
        self._ends: dict[int, Entry] = {}
        self.clock_step = 0.0

    def note(self, entry: Entry) -> None:
        """Notes an entry of the journal, of which the last start and the last end of each run count."""
        if entry["e"] == "end":
            self._ends[entry["n"]] = entry
        for begin in begins_of(entry):
            self._begins[begin["n"]] = begin
            self._ends.pop(begin["n"], None)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> Run: ...
    @overload
    def __getitem__(self, at: slice) -> list[Run]: ...
    def __getitem__(self, at: int | slice) -> Run | list[Run]:
        """Returns a run by its position, from 0.

        Raises:
            StateError: its line in the plan is damaged.
        """
        if isinstance(at, slice):
            return [self._read(number) for number in self._numbers[at]]
        return self._read(self._numbers[at])

    def numbered(self, number: int) -> Run | None:
        """Returns a run by its number; None without such a run.

        Raises:
            StateError: its line in the plan is damaged.
        """
        if number in self._plan.lines:
            return self._read(number)
        return None

    def in_state(self, state: str) -> Iterator[Run]:
        """Yields the runs in a state, in order.

        Args:
            state: the name of the state.

        Raises:
            StateError: the line of one in the plan is damaged.
        """
        wanted, at = STATES.index(state), 0
        while number := self._states.find(wanted, at) + 1:
            if number in self._plan.lines:
                yield self._read(number)
            at = number

    def _read(self, number: int) -> Run:
        run = Run(number, self._plan.run(number).parameters)
        for entries in (self._begins, self._ends):
            if number in entries:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    run.apply(entries[number])
        run.state = STATES[self._states[number - 1]]
        if run.state == "PENDING" and run.ended is None:
            run.started = None
        if run.state == "RUNNING" and run.started is not None:
            run.started += self.clock_step
        return run
