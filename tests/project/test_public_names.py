"""Tests of the public names: public_names.txt lists all of them.

`python tests/project/test_public_names.py` writes the list again.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("public_names.txt")
HEAD = """\
# All public names. Other names, and those that begin with _, may change without notice; removing one of these
# breaks user code. Modules first, each with its names; then the most used classes, with theirs.
"""
UPDATE = "to write the list again: python tests/project/test_public_names.py"
ALSO = ("torchx.tsm.driver",)
"""Documented modules that are aliases of modules in the API reference."""

CLASSES = (
    "torchx.runner.Runner",
    "torchx.schedulers.api.Scheduler",
    "torchx.specs.AppDef",
    "torchx.specs.AppDryRunInfo",
    "torchx.specs.AppStatus",
    "torchx.specs.Resource",
    "torchx.specs.Role",
    "torchx.specs.runopts",
    "torchx.tsm.Application",
    "torchx.tsm.Container",
    "torchx.tsm.ElasticRole",
    "torchx.tsm.Role",
    "torchx.tsm.Session",
)


def documented_modules() -> list[str]:
    """Returns the modules of the API reference."""
    pages = sorted((ROOT / "docs" / "api").glob("*.rst"))
    named = (
        re.findall(r"^\.\. automodule:: (\S+)$", page.read_text(encoding="utf-8"), re.M) for page in pages
    )
    return sorted({*ALSO, *(name for names in named for name in names)})


def names_of_module(module: ModuleType) -> list[str]:
    """Returns `__all__`, else the names a module defines or re-exports as `X as X`, else its constants."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    text = inspect.getsource(module)
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    defined = [
        name
        for name, value in public.items()
        if (getattr(value, "__module__", None) == module.__name__ and hasattr(value, "__qualname__"))
        or re.search(rf"\bimport {name} as {name}\b", text)
    ]
    return sorted(defined or [name for name in public if name.isupper()])


def names_of_class(path: str) -> list[str]:
    module, _, name = path.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    fields = getattr(kind, "__dataclass_fields__", {})
    return sorted(word for word in {*dir(kind), *fields} if not word.startswith("_"))


def places() -> list[str]:
    return [*documented_modules(), *(f"class {path}" for path in CLASSES)]


def names_of(place: str) -> list[str]:
    kind, _, path = place.rpartition(" ")
    return names_of_class(path) if kind else names_of_module(importlib.import_module(path))


def parsed(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith(" "):
            found[next(reversed(found))] += line.split()
        elif line and not line.startswith("#"):
            found[line] = []
    return found


def written(found: dict[str, list[str]]) -> str:
    def wrapped(names: Iterable[str]) -> str:
        return textwrap.fill(
            " ".join(names), 110, initial_indent="    ", subsequent_indent="    ", break_long_words=False
        )

    return HEAD + "".join(f"\n{name}\n{wrapped(names)}\n" for name, names in found.items())


@pytest.mark.parametrize("place", places())
def test_the_public_names_are_those_of_the_list(place: str) -> None:
    listed, there = set(parsed(LIST.read_text(encoding="utf-8")).get(place, [])), set(names_of(place))
    assert not listed - there, f"removed from {place}, which breaks user code; {UPDATE}"
    assert not there - listed, f"new in {place}: {UPDATE}"


def test_every_part_of_the_list_is_there() -> None:
    listed = parsed(LIST.read_text(encoding="utf-8"))
    assert list(listed) == places(), UPDATE
    assert all(listed.values())


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    LIST.write_text(written({place: names_of(place) for place in places()}), encoding="utf-8")
