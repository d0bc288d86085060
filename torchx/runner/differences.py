"""The differences between two submitted applications, from their records."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx.printable import one_line
from torchx.specs.serialize import app_to_dict

if TYPE_CHECKING:
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import CfgVal

_OWN = "torchx/"
"""The prefix of metadata that describes a submission rather than the application."""


class Difference(NamedTuple):
    """A part of an application that differs; None for a part that an application does not have.

    Attributes:
        part: its name, such as ``role trainer: args``.
        before: its value in one application.
        now: its value in the other one.
    """

    part: str
    before: str | None
    now: str | None


def parts_of(app: AppDef, cfg: Mapping[str, CfgVal], scheduler: str) -> dict[str, Any]:
    """Returns the parts of an application that differ if it is submitted with other arguments.

    Excludes the variables that each submission sets.
    """
    data = app_to_dict(app, strict=False)
    parts: dict[str, Any] = {"scheduler": scheduler}
    parts |= {f"run option {key}": value for key, value in cfg.items() if value is not None}
    for role in data["roles"]:
        name = f"role {role.pop('name')}"
        env = role.pop("env")
        resource = role.pop("resource") or {}
        parts |= {f"{name}: {key}": value for key, value in role.items()}
        parts |= {f"{name}: {key}": value for key, value in resource.items()}
        own = {key: value for key, value in env.items() if not key.startswith("TORCHX_")}
        parts |= {f"{name}: variable {key}": value for key, value in own.items()}
    parts |= {f"metadata {k}": v for k, v in data["metadata"].items() if not k.startswith(_OWN)}
    return {part: value for part, value in parts.items() if value not in (None, "", [], {})}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    """Yields the parts of two applications that differ; of variables, not the values.

    >>> list(differences({"role w: args": ["a", "b"]}, {"role w: args": ["a", "c"]}))
    [Difference(part='role w: args', before='b', now='c')]
    """
    for part in dict.fromkeys([*before, *now]):
        old, new = before.get(part), now.get(part)
        if old == new:
            continue
        if ": variable " in part:
            changed = old is not None and new is not None
            yield Difference(part, "set" if old is not None else None, _variable(new, changed))
        elif isinstance(old, list) and isinstance(new, list):
            yield from _in_lists(part, [_text(item) for item in old], [_text(item) for item in new])
        else:
            yield Difference(part, *(None if value is None else _text(value) for value in (old, new)))


def _variable(value: Any, changed: bool) -> str | None:
    return None if value is None else "another value" if changed else "set"


def _in_lists(part: str, old: list[str], new: list[str]) -> Iterator[Difference]:
    """Yields the items that differ, such as arguments of a program."""
    for kind, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield Difference(part, " ".join(old[i:j]) or None, " ".join(new[k:m]) or None)


def _text(value: Any) -> str:
    return one_line(value)
