"""The plan of a sweep: one file with its application as a template, and a line for each run.

The line of a run has its parameters, and the parts of its application that differ from the template. Runs are
appended, and read one by one when they start.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

from torchx import json_shape, settings
from torchx.errors import UsageError
from torchx.jobs.record import damaged
from torchx.json_limits import LARGEST, Data, Object, load_json
from torchx.json_shape import HandleText
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.machine.files import append_lines
from torchx.masking import SecretValue
from torchx.specs.app import AppDef
from torchx.specs.handles import parse_app_handle
from torchx.sweeps.differences import Change, apply, changes
from torchx.sweeps.parameters import with_number
from torchx.sweeps.paths import SweepPaths
from torchx.sweeps.progress import parse_lines

with lazy_imports:
    from torchx.specs import serialize

VERSION = 1
_RUN = b'{"n":'
_MISSING = (1 << 64) - 1


_Condition = Annotated[Sequence[str], json_shape.check_of(tuple[HandleText, str])]


class Header(NamedTuple):
    """The first line of a plan.

    Attributes:
        sweep: the id of the sweep.
        name: the name of its application.
        session: the session part of its handle.
        scheduler: the scheduler of the runs.
        cfg: the run options of the runs.
        component: the component.
        at: the time of the submission, seconds since the epoch.
        identity: equal for sweeps that differ in their runs only.
        at_once: maximum number of runs at the same time; 0 for no limit.
        after: the applications that it waits for, each with a condition.
        template: the application of the first run, as plain data with the names of its secrets.
        native: the engine starts the runs, which are submitted as one object; else a process of ours does.
    """

    sweep: HandleText
    name: str
    session: HandleText
    scheduler: HandleText
    cfg: Object
    component: str
    at: float
    identity: str
    at_once: int
    template: Object
    after: Sequence[_Condition] = ()
    native: bool = False
    version: int = VERSION


class _Line(NamedTuple):
    """The line of a run: its number, its parameters, the differences of its application."""

    n: Annotated[int, partial(json_shape.integer, minimum=1)]
    p: Object
    d: Annotated[list[Any], json_shape.sequence]


class PlannedRun(NamedTuple):
    """A run of a plan.

    Attributes:
        number: its number, from 1.
        parameters: its parameters.
        changes: the parts of its application that differ from the template.
    """

    number: int
    parameters: dict[str, str]
    changes: list[Any]


def app_data(app: AppDef) -> Object:
    """Returns an application as plain data, with the values of secrets and their names."""
    data = serialize.app_to_dict(app, strict=False)
    data["secrets"] = {}
    for role, plain in zip(app.roles, data["roles"], strict=True):
        secret = sorted(name for name, value in role.env.items() if isinstance(value, SecretValue))
        if secret:
            plain["env"] = {name: str(value) for name, value in role.env.items()}
            data["secrets"][role.name] = secret
    return data


def app_of(data: Data) -> AppDef:
    """Returns the application of :func:`app_data`.

    Raises:
        UsageError: the data is not an application.
    """
    app = serialize.app_from_dict(data)
    for role in app.roles:
        for name in data.get("secrets", {}).get(role.name, ()):
            if name in role.env:
                role.env[name] = SecretValue(role.env[name])
    return app


def numbered(app: AppDef, number: int) -> AppDef:
    """Returns an application with the number of its run in arguments and environment values; changes it."""
    for role in app.roles:
        role.args = [with_number(arg, number) for arg in role.args]
        # keeps the type of secrets
        env = {name: type(value)(with_number(value, number)) for name, value in role.env.items()}
        role.env = {**env, settings.TORCHX_SWEEP_RUN: str(number)}
    return app


def run_line(number: int, parameters: Mapping[str, str], template: Any, data: Any) -> bytes:
    """Returns the line of a run, whose application is compared with a template."""
    return line_of(number, parameters, changes(template, data))


def line_of(number: int, parameters: Mapping[str, str], differences: list[Change]) -> bytes:
    """Returns the line of a run.

    Args:
        number: its number.
        parameters: its parameters.
        differences: the parts of its application that differ from the template.
    """
    line = {"n": number, "p": dict(parameters), "d": differences}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def header_line(header: Header) -> bytes:
    """Returns the first line of a plan."""
    return json.dumps(header._asdict(), separators=(",", ":")).encode() + b"\n"


class Plan:
    """The plan of a sweep, of which the first line is read immediately.

    Args:
        paths: the files of the sweep.

    Raises:
        FileNotFoundError: the sweep does not exist.
        StateError: the plan is damaged, or cannot be read.

    Attributes:
        header: its first line.
    """

    def __init__(self, paths: SweepPaths) -> None:
        self._path = paths.plan
        try:
            self._file = open(files.open_file(self._path), "rb")  # noqa: SIM115  # closed by `close`
        except FileNotFoundError:
            raise
        except OSError as error:
            raise damaged(self._path, error.strerror) from error
        first = self._file.readline(LARGEST)
        try:
            self.header = self._header(first)
        except BaseException:
            self._file.close()
            raise
        self._offsets = array("Q")
        self._end = len(first)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._offsets)

    def extend(self) -> int:
        """Reads the positions of runs that were appended; returns the number of runs."""
        self._file.seek(self._end)
        position = self._end
        for line in self._file:
            if not line.endswith(b"\n"):
                break  # being written
            number = _number(line)
            if number:
                while len(self._offsets) < number:
                    self._offsets.append(_MISSING)
                self._offsets[number - 1] = position
            position += len(line)
        self._end = position
        return len(self._offsets)

    def run(self, number: int) -> PlannedRun:
        """Returns a run; :meth:`extend` must have read its position.

        Raises:
            StateError: its line is damaged.
        """
        if not 0 < number <= len(self._offsets) or self._offsets[number - 1] == _MISSING:
            raise damaged(self._path, f"it has no run {number}")
        self._file.seek(self._offsets[number - 1])
        return self.parsed(self._file.readline(LARGEST))

    def runs(self) -> Iterator[PlannedRun]:
        """Yields all runs in order.

        Raises:
            StateError: a line is damaged.
        """
        self._file.seek(0)
        self._file.readline(LARGEST)
        data = self._file.read()
        lines = parse_lines(data[: data.rfind(b"\n") + 1])
        found = {run.number: run for run in map(self._run, lines)}
        return iter([found[number] for number in sorted(found)])

    def lines(self) -> dict[int, bytes]:
        """Returns the line of each run by its number; of several lines of a run, the last one counts.

        Raises:
            OSError: the file cannot be read.
        """
        self._file.seek(0)
        self._file.readline(LARGEST)
        *whole, _ = self._file.read().split(b"\n")
        found = {_number(line): line for line in whole}
        found.pop(0, None)
        return found

    def app(self, run: PlannedRun) -> AppDef:
        """Returns the application of a run, with its number in the place of ``{run}``.

        Raises:
            StateError: the plan is damaged.
        """
        return numbered(app_of(self.data(run)), run.number)

    def data(self, run: PlannedRun) -> Object:
        """Returns the application of a run as plain data, see :func:`app_data`.

        Raises:
            StateError: the plan is damaged.
        """
        try:
            data = apply(self.header.template, run.changes)
            app_of(data)
        except (ValueError, UsageError, TypeError, AttributeError) as error:
            raise damaged(self._path, f"run {run.number}: {error}") from error
        assert isinstance(data, dict)
        return data

    def _header(self, line: bytes) -> Header:
        try:
            header: Header = json_shape.read(Header, load_json(line.decode()), "line")
            for handle, _ in header.after:
                parse_app_handle(handle)
        except UsageError as error:
            raise damaged(self._path, error.message) from error
        except (ValueError, TypeError) as error:
            raise damaged(self._path, error) from error
        return header

    def parsed(self, line: bytes) -> PlannedRun:
        """Returns the run of a line.

        Raises:
            StateError: the line is damaged.
        """
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise damaged(self._path, f"a line is not a run: {error}") from error
        return self._run(data)

    def _run(self, data: Any) -> PlannedRun:
        try:
            line: _Line = json_shape.read(_Line, data, "run")
            parameters = {str(name): str(value) for name, value in line.p.items()}
            return PlannedRun(line.n, parameters, line.d)
        except (ValueError, TypeError) as error:
            raise damaged(self._path, f"a line is not a run: {error}") from error


def read_header(paths: SweepPaths) -> Header:
    """Returns the first line of a plan.

    Raises:
        FileNotFoundError: the sweep does not exist.
        StateError: the plan is damaged, or cannot be read.
    """
    plan = Plan(paths)
    plan.close()
    return plan.header


def _number(line: bytes) -> int:
    """Returns the number of a run without parsing its line; 0 for other lines."""
    if not line.startswith(_RUN):
        return 0
    try:
        return int(line[len(_RUN) : line.index(b",")])
    except ValueError:
        return 0


def append(paths: SweepPaths, lines: Iterable[bytes]) -> None:
    """Appends runs to a plan; the caller holds the lock ``edit``.

    Raises:
        OSError: it cannot be written.
    """
    append_lines(paths.plan, lines)
