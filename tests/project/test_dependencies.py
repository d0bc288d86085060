"""Tests of the dependencies: CI runs with the lowest versions that pyproject.toml declares."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement

from project.sources import ROOT

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LOWEST = ROOT / "tests" / "smoke" / "lowest.txt"


def array(name: str) -> list[Requirement]:
    """Returns the requirements in a list of pyproject.toml; Python 3.10 has no parser for the whole file."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(rf"^{name} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    assert match, name
    return [Requirement(each) for each in re.findall(r'"([^"]+)"', re.sub("#.*", "", match[1]))]


def on(python: str, requirements: list[Requirement]) -> dict[str, set[str]]:
    """Returns the specifiers of the requirements that apply to a Python, by name."""
    found: dict[str, set[str]] = {}
    where = {"python_version": python, "python_full_version": f"{python}.1"}
    for requirement in requirements:
        if requirement.marker is None or requirement.marker.evaluate(where):
            found.setdefault(requirement.name, set()).update(map(str, requirement.specifier))
    return found


def version(text: str) -> tuple[int, ...]:
    """Returns the numbers of a version, without zeros at the end: 6.1 and 6.1.0 are equal."""
    numbers = [int(part) for part in text.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lowest_versions_are_the_declared_ones(python: str) -> None:
    lines = LOWEST.read_text(encoding="utf-8").splitlines()
    pinned = on(python, [Requirement(line) for line in lines if not line.startswith("#")])
    declared = on(python, array("dependencies") + array("kubernetes"))
    assert pinned.keys() == declared.keys()
    for name, bounds in declared.items():
        assert all(bound.startswith(">=") for bound in bounds), f"{name}: an upper bound keeps users back"
        bound = max(version(bound.removeprefix(">=")) for bound in bounds)
        (pin,) = pinned[name]
        assert version(pin.removeprefix("==")) == bound, name


def test_the_classifiers_name_the_pythons_that_ci_runs() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    classified = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    tried = re.search(r"for version in ([\d. ]+);", (ROOT / ".ci" / "smoke").read_text(encoding="utf-8"))
    assert tried and set(classified) <= set(tried[1].split())
