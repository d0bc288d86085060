"""The plan of a sweep: one file with its application as a template, and a line for each run.

The line of a run has its parameters, and the parts of its application that differ from the template. Runs are
appended, and read one by one when they start.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, BinaryIO, NamedTuple

from torchx import json_shape, settings
from torchx.errors import UsageError
from torchx.jobs.record import damaged
from torchx.json_limits import LARGEST, Data, Object, load_json
from torchx.json_shape import HandleText
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.masking import SecretValue
from torchx.specs.app import AppDef
from torchx.specs.handles import parse_app_handle
from torchx.sweeps.parameters import with_number
from torchx.sweeps.paths import SweepPaths
from torchx.sweeps.progress import json_line

with lazy_imports:
    from torchx.specs import serialize

VERSION = 1
_RUN = b'{"n":'

Change = list[Any]
"""A path of keys and indices, and the value there."""

_FREE = ("args", "env")
"""The fields of a role in which the runs of one object may differ."""

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


def changes(template: Any, data: Any) -> list[Change]:
    """Returns the parts in which data differs from a template.

    >>> changes({"a": [1, 2], "b": 3}, {"a": [1, 5], "b": 3})
    [[['a', 1], 5]]
    """
    found: list[Change] = []
    _compare(template, data, [], found)
    return found


def _compare(template: Any, data: Any, path: list[Any], found: list[Change]) -> None:
    if template == data and type(template) is type(data):
        return
    if isinstance(template, dict) and isinstance(data, dict) and template.keys() == data.keys():
        for key, value in data.items():
            _compare(template[key], value, [*path, key], found)
    elif isinstance(template, list) and isinstance(data, list) and len(template) == len(data):
        for index, (before, value) in enumerate(zip(template, data, strict=True)):
            _compare(before, value, [*path, index], found)
    else:
        found.append([path, data])


def apply(template: Any, found: list[Change]) -> Any:
    """Returns a copy of a template with changes of :func:`changes`.

    Raises:
        ValueError: a change does not fit the template.

    >>> apply({"a": [1, 2], "b": 3}, [[["a", 1], 5]])
    {'a': [1, 5], 'b': 3}
    """
    data = copy.deepcopy(template)
    for path, value in found:
        if not path:
            return value
        inner = data
        try:
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"there is no {path!r}") from error
    return data


def is_free(path: Sequence[Any]) -> bool:
    """Returns True if the runs of one object of an engine may differ in a part of their applications.

    >>> is_free(["roles", 0, "args", 1]), is_free(["roles", 0, "image"])
    (True, False)
    """
    if path[:1] in (["metadata"], ["secrets"]):
        return True
    return len(path) > 2 and path[0] == "roles" and path[2] in _FREE


def run_line(number: int, parameters: Mapping[str, str], differences: list[Change]) -> bytes:
    """Returns the line of a run.

    Args:
        number: its number.
        parameters: its parameters.
        differences: the parts of its application that differ from the template.
    """
    return json_line({"n": number, "p": dict(parameters), "d": differences})


def header_line(header: Header) -> bytes:
    """Returns the first line of a plan."""
    return json_line(header._asdict())


class Plan:
    """The plan of a sweep, of which the first line is read immediately.

    Args:
        paths: the files of the sweep.

    Raises:
        FileNotFoundError: the sweep does not exist.
        StateError: the plan is damaged, or cannot be read.

    Attributes:
        header: its first line.
        lines: the line of each run by its number, as far as it was read; of several lines of a run, the last
            one counts.
    """

    def __init__(self, paths: SweepPaths) -> None:
        self._path = paths.plan
        self.lines: dict[int, bytes] = {}
        self._count = self._end = 0
        with self._open() as file:
            first = file.readline(LARGEST)
        self._end = len(first)
        self.header = self._header(first)

    def _open(self) -> BinaryIO:
        try:
            return open(files.open_file(self._path), "rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise damaged(self._path, error.strerror) from error

    def extend(self) -> int:
        """Reads the runs that were appended; returns the number of runs.

        Raises:
            FileNotFoundError: the sweep was deleted.
            StateError: the plan cannot be read.
        """
        with self._open() as file:
            file.seek(self._end)
            *whole, _ = file.read().split(b"\n")  # the last line is being written, or empty
        for line in whole:
            self._end += len(line) + 1
            if number := _number(line):
                self.lines[number] = line
                self._count = max(self._count, number)
        return self._count

    def run(self, number: int) -> PlannedRun:
        """Returns a run that :meth:`extend` has read.

        Raises:
            StateError: its line is missing or damaged.
        """
        if number not in self.lines:
            raise damaged(self._path, f"it has no run {number}")
        try:
            line: _Line = json_shape.read(_Line, json.loads(self.lines[number]), "run")
            parameters = {str(name): str(value) for name, value in line.p.items()}
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self._path, f"a line is not a run: {error}") from error
        return PlannedRun(line.n, parameters, line.d)

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


def _number(line: bytes) -> int:
    """Returns the number of a run without parsing its line; 0 for other lines."""
    if not line.startswith(_RUN):
        return 0
    try:
        return int(line[len(_RUN) : line.index(b",")])
    except ValueError:
        return 0
