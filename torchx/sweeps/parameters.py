"""The parameters of the runs of a sweep: lists, ranges and files of values, combined as a grid or zipped."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchx.errors import UsageError
from torchx.json_limits import Data, load_json
from torchx.machine import files
from torchx.suggestions import nearest

MOST_RUNS = 100_000
"""Maximum number of runs of a sweep."""

LARGEST_FILE = 1 << 26
"""Maximum bytes of a file of parameters."""

Row = dict[str, str]
"""The parameters of one run: values by name."""

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,99}"
_IN_BRACES = rf"(?<!\$)\{{({_NAME})\}}"
_RUN = r"(?<!\$)\{run\}"
_FRACTIONS = r"(?ai)[-.]?\d[-+.\de]*\.\.[-+.\de]*\d"
_RANGE = r"(?a)(-?\d{1,12})\.\.(-?\d{1,12})(?:\.\.(-?\d{1,12}))?"


def expand(texts: Sequence[str], *, zipped: bool = False) -> list[Row]:
    """Returns the parameters of each run.

    Args:
        texts: each ``NAME=VALUES`` or ``@FILE.csv``, as for :func:`parse`.
        zipped: combine the first values of all, then the second ones; otherwise combine each value with each
            one of the others, where the last parameter changes first.

    Raises:
        UsageError: a text is invalid, a parameter is given twice, or there are too many runs.

    >>> expand(["lr=0.1,0.2", "seed=1..2"])[1]
    {'lr': '0.1', 'seed': '2'}
    >>> expand(["lr=0.1,0.2", "seed=1..2"], zipped=True)[1]
    {'lr': '0.2', 'seed': '2'}
    """
    groups = [parse(text) for text in texts]
    names = [name for group in groups for name in group[0]]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the parameter `{name}` is given twice (from --each)", code="conflicting_flags")
    if zipped:
        _check_lengths(groups)
        rows: Iterable[tuple[Row, ...]] = zip(*groups, strict=True)
    else:
        if math.prod(map(len, groups)) > MOST_RUNS:
            raise _too_many(math.prod(map(len, groups)))
        rows = itertools.product(*groups)
    return [{name: value for row in each for name, value in row.items()} for each in rows]


def of_data(parameters: Mapping[str, Iterable[Any]] | Iterable[Data]) -> list[Row]:
    """Returns the parameters of each run from Python values.

    Args:
        parameters: the values of each parameter, combined as a grid; or the parameters of each run.

    Raises:
        UsageError: there are none, too many, or a run lacks a parameter of the others.

    >>> of_data({"lr": [0.1, 0.2], "fast": [True]})
    [{'lr': '0.1', 'fast': 'True'}, {'lr': '0.2', 'fast': 'True'}]
    """
    if isinstance(parameters, Mapping):
        values = [[(name, _text(value)) for value in each] for name, each in parameters.items()]
        if not values or math.prod(map(len, values)) > MOST_RUNS:
            raise _too_many(math.prod(map(len, values)) if values else 0)
        return [dict(each) for each in itertools.product(*values)]
    rows = [{name: _text(value) for name, value in each.items()} for each in parameters]
    if not 0 < len(rows) <= MOST_RUNS:
        raise _too_many(len(rows))
    for row in rows:
        if row.keys() != rows[0].keys():
            raise UsageError(f"the runs have different parameters: {_listed(rows[0])}, and {_listed(row)}")
    return rows


def parse(text: str) -> list[Row]:
    """Returns the values of one ``--each``.

    ``NAME=A,B`` lists values, ``NAME=1..3`` is a range of whole numbers, ``NAME=0..10..5`` one with a step,
    ``NAME=["a,b", "c"]`` a JSON list, and ``@FILE.csv`` a file with a line of names.

    Raises:
        UsageError: the text has another form, or the file cannot be read.

    >>> [row["seed"] for row in parse("seed=1..3,10")]
    ['1', '2', '3', '10']
    >>> parse('name=["a,b"]')
    [{'name': 'a,b'}]
    """
    if text.startswith("@"):
        return _read(text[1:])
    name, equals, values = text.partition("=")
    name = name.strip().lstrip("-")
    if not equals or re.fullmatch(_NAME, name) is None:
        raise UsageError(
            f"--each takes NAME=VALUES or @FILE.csv, got `{text}`",
            hint="e.g. --each lr=1e-3,3e-4 --each seed=1..3",
            code="invalid_value",
        )
    rows = [{name: value} for value in _values(name, values)]
    if not rows:
        raise UsageError(
            f"the parameter `{name}` has no values (from --each)",
            hint=f"list them, as in --each {name}=1,2,3",
            code="invalid_value",
        )
    return rows


def filled(argv: Sequence[str], row: Row) -> tuple[list[str], Row]:
    """Returns arguments with the values of parameters in the place of their names in braces, and the others.

    >>> filled(["--x={lr}"], {"lr": "0.1", "seed": "2"})
    (['--x=0.1'], {'seed': '2'})
    """
    others, texts = dict(row), list(argv)
    for name, value in row.items():
        if any(f"{{{name}}}" in text for text in argv):
            del others[name]
            texts = [text.replace(f"{{{name}}}", value) for text in texts]
    return texts, others


def similar_names(argv: Sequence[str], row: Row) -> list[str]:
    """Returns notes about names in braces that are no parameter, but nearly one.

    >>> similar_names(["--x={lrr}", "{lr}", "${lrr}"], {"lr": "0.1"})
    ['`{lrr}` is not a parameter of the sweep; did you mean `{lr}`?']
    """
    known, notes = [*row, "run"], []
    for name in dict.fromkeys(re.findall(_IN_BRACES, " ".join(argv))):
        meant = nearest(name, known)
        if meant is not None and name not in known:
            notes.append(f"`{{{name}}}` is not a parameter of the sweep; did you mean `{{{meant}}}`?")
    return notes


def arguments_of(argv: Sequence[str], row: Row, number: int) -> list[str]:
    """Returns the arguments of a component in one run.

    >>> arguments_of(["--out={run}", "x {lr}"], {"lr": "0.1", "seed": "2"}, 7)
    ['--seed=2', '--out=7', 'x 0.1']
    """
    texts, others = filled(argv, row)
    return [with_number(text, number) for text in (*(f"--{k}={v}" for k, v in others.items()), *texts)]


def with_number(text: str, number: int) -> str:
    """Returns a text with the number of a run in the place of ``{run}``; ``${run}`` belongs to a shell."""
    if "{run}" in text:
        return re.sub(_RUN, str(number), text)
    return text


def key_of(row: Mapping[str, str]) -> str:
    """Returns the identity of a run: equal for equal parameters, whatever their order and form of numbers.

    >>> key_of({"lr": "1e-3", "seed": "1"}) == key_of({"seed": "1", "lr": "0.001"})
    True
    """
    return json.dumps({name: _canonical(row[name]) for name in sorted(row)})


def _canonical(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        return value
    # a whole number beyond the precision of floats keeps its digits
    if abs(number) < 2**53:
        return repr(number)
    return value.strip()


def _values(name: str, text: str) -> list[str]:
    if text.startswith("["):
        try:
            data = load_json(text)
        except ValueError:
            data = None
        if isinstance(data, list):
            return [_text(value) for value in data]
        raise UsageError(
            f"the values `{text}` of `{name}` are not a JSON list (from --each)",
            hint=f"""e.g. --each '{name}=[1, 2]' or --each {name}=1,2""",
            code="invalid_value",
        )
    found: list[str] = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(_RANGE, part.strip())
        if match is None and re.fullmatch(_FRACTIONS, part.strip()):
            raise UsageError(
                f"the range `{part}` of `{name}` must have whole numbers (from --each)",
                hint=f"list the values, as in --each {name}=0.1,0.2,0.5",
                code="invalid_value",
            )
        if match is None:
            found += [part]
        else:
            found += _numbers(name, part, *match.groups())
    return found


def _numbers(name: str, text: str, first: str, last: str, step: str | None) -> list[str]:
    start, end = int(first), int(last)
    by = int(step or (1 if end >= start else -1))
    if by == 0 or (end - start) * by < 0:
        raise UsageError(f"the range `{text}` of `{name}` is empty (from --each)", code="invalid_value")
    count = (end - start) // by + 1
    if count > MOST_RUNS:
        raise _too_many(count)
    return [str(start + by * index) for index in range(count)]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value)


def _read(path: str) -> list[Row]:
    """Reads a file of parameters: its first line has the names, each other line the values of a run."""
    where = f"{path} (from --each)"
    try:
        data = files.read_file(os.path.expanduser(path), LARGEST_FILE, own=False, follow=True)  # noqa: PTH111
        lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except OSError as error:
        raise files.unreadable(where, path, error) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{where} is not a CSV file: {error}", code="invalid_value") from None
    lines = [line for line in lines if any(cell.strip() for cell in line)]
    if len(lines) < 2:
        raise UsageError(f"{where} needs a line of names and a line for each run", code="invalid_value")
    names = [name.strip() for name in lines[0]]
    for name in names:
        if re.fullmatch(_NAME, name) is None or names.count(name) > 1:
            raise UsageError(
                f"{where}: `{name}` is not a parameter name, or is given twice", code="invalid_value"
            )
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(names):
            raise UsageError(
                f"{where}: the number of values in line {number} is {len(line)}, expected {len(names)}",
                code="invalid_value",
            )
    if len(lines) - 1 > MOST_RUNS:
        raise _too_many(len(lines) - 1)
    return [dict(zip(names, map(str.strip, line), strict=True)) for line in lines[1:]]


def _check_lengths(groups: Sequence[Sequence[Row]]) -> None:
    lengths = {"/".join(group[0]): len(group) for group in groups}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise UsageError(
            f"--zip needs the same number of values for each parameter: {listed}", code="invalid_value"
        )


def _listed(row: Row) -> str:
    return ", ".join(row) or "none"


def _too_many(count: int) -> UsageError:
    return UsageError(
        f"a sweep has 1 to {MOST_RUNS:,} runs, got {count:,}", hint="use fewer values", code="invalid_value"
    )
