"""Compare values by name, without showing secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx.command_line import looks_like_flag
from torchx.json_limits import Data, Object
from torchx_cli.terminal.masking import MASK, looks_secret, mask

if TYPE_CHECKING:
    from torchx.specs.app import Role

GIVEN = "given"
"""The value of a flag without one."""

HIDDEN = "differs (a secret)"
"""The second value of a secret that differs."""


class Difference(NamedTuple):
    """A value that two applications do not share.

    Attributes:
        name: its name.
        a: the value of the first application as text; None without one.
        b: the value of the second.
        measured: it is a measurement, which differs from run to run.
    """

    name: str
    a: str | None
    b: str | None
    measured: bool = False


@dataclass
class Section:
    """One part of a comparison.

    Attributes:
        name: its name.
        differences: the values that differ.
        missing: why it is not compared; empty if it is.
        notes: values that could not be compared, one sentence each.
    """

    name: str
    differences: list[Difference] = field(default_factory=list)
    missing: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool | None:
        """Whether all values are equal, apart from measurements; None if they were not compared."""
        if self.missing:
            return None
        return all(each.measured for each in self.differences)

    def as_data(self) -> Object:
        """Returns the section as plain data."""
        return {
            "name": self.name,
            "equal": self.is_equal,
            "missing": self.missing or None,
            "differences": [each._asdict() for each in self.differences],
            "notes": self.notes,
        }


Values = tuple[Data, Data]
"""The values of two applications by name."""


def compared(name: str, values: Values, *, measured: bool = False) -> Section:
    """Compares values by name; secrets are compared, and not shown.

    Args:
        name: the name of the section.
        values: the values of the two applications.
        measured: the values are measurements.
    """
    section = Section(name)
    a, b = values
    for key in dict.fromkeys((*a, *b)):
        one, other = a.get(key), b.get(key)
        if MASK in (one, other) and one is not None and other is not None:
            section.notes.append(f"the secret value of {key} is not on record")
        elif one != other:
            shown = _shown(key, one), _shown(key, other)
            if one is not None and other is not None and shown[0] == shown[1]:
                shown = (MASK, HIDDEN)
            section.differences.append(Difference(key, *shown, measured))
    return section


def _shown(name: str, value: Any) -> str | None:
    if value is None:
        return None
    key = name.rpartition(" ")[2].lstrip("-")
    data = MASK if looks_secret(key) and isinstance(value, str) and value != GIVEN else mask(value)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)


def named(arguments: Iterable[str], separator: bool = True) -> dict[str, str]:
    """Returns the arguments of a program by the names of their flags; others by their number.

    Args:
        arguments: the arguments.
        separator: `--` separates the flags from other arguments, and is omitted.

    >>> named(["--lr", "0.1", "-v", "--n=2", "data", "--n=3"])
    {'--lr': '0.1', '-v': 'given', '--n': '2 3', 'argument 1': 'data'}
    """
    found: dict[str, str] = {}
    remaining = [arg for arg in arguments if arg != "--" or not separator][::-1]
    numbered = 0
    while remaining:
        arg = remaining.pop()
        if looks_like_flag(arg):
            name, equals, value = arg.partition("=")
            if not equals:
                value = GIVEN
                if remaining and not looks_like_flag(remaining[-1]):
                    value = remaining.pop()
        else:
            numbered += 1
            name, value = f"argument {numbered}", arg
        found[name] = f"{found[name]} {value}" if name in found else value
    return found


def of_roles(a: Sequence[Role], b: Sequence[Role], values_of: Callable[[Role], Data]) -> Values:
    """Returns the values of the roles of two applications, with the names of the roles where they matter.

    Args:
        a: the roles of the first application.
        b: those of the second.
        values_of: returns the values of a role by name.
    """
    sides = [{role.name: values_of(role) for role in roles} for roles in (a, b)]
    single = len(a) == len(b) == 1
    common: set[str] = set()
    if not single:
        common = set.intersection(*(_common(side) for side in sides))
    return _flat(sides[0], common, single), _flat(sides[1], common, single)


def _common(side: Mapping[str, Data]) -> set[str]:
    """Returns the names whose values all roles share."""
    names = {name for values in side.values() for name in values}
    first: Data = next(iter(side.values()), {})
    return {
        name
        for name in names
        if all(name in values and values[name] == first.get(name) for values in side.values())
    }


def _flat(side: Mapping[str, Data], common: set[str], single: bool) -> Object:
    return {
        name if single or name in common else f"{role} {name}": value
        for role, values in side.items()
        for name, value in values.items()
    }
