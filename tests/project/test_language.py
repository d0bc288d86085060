"""The language of this project: constructions that plain technical English avoids, each with a ceiling.

A ceiling may only fall. `python tests/project/test_language.py [CONSTRUCTION ...]` lists the places.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from project.sources import ROOT, all_files, nodes_of

pytestmark = pytest.mark.xdist_group("sources")  # one process: each file is parsed once

CONSTRUCTIONS = {
    "tell": r"\b(tell|tells|told|telling)\b",
    "unless told": r"\bunless (told|given|asked|said)\b",
    "what as a noun": r"\b(of|by|from|and|with|to|on|in|for|as|than) what\b"
    r"|\bwhat (is|was|are|were|has|had|comes|came|goes|went|stands|lies|it|they|others?|a|the) ",
    "begins with what": r"^\s*(What|How|Where|Which|Who)\b(?![^.]*\?)",
    "fares": r"\bfares?\b",
    "nobody": r"\b(nobody|somebody|someone|anybody)\b",
    "for good": r"\b(for good|anew|at once|as it is|a while|so much)\b",
    "mend": r"\bmend(s|ed|ing)?\b",
    "is no": r"\b(is|are|was) no (?!longer|more|reason|need|point)[a-z]+|\b(is|has|have) none\b",
    "word": r"\bwords?\b",
    "ask": r"\b(ask|asks|asked|asking)\b",
    "stands, lies": r"\b(stands|stand|stood|lies|lay|lays|laid)\b",
    "goes": r"\b(is|are) gone\b|\bgoes\b|\bgo along\b|\bcomes? along\b|\bstays? behind\b",
    "who": r"\b(who|whoever|whom)\b",
    "looks": r"\blooks? (at|for|whether|after|into)\b|\bsee(s|n)? to\b",
    "want of": r"\bwant of\b|\bbears?\b|\bbearable\b",
}
CEILINGS = {
    "is no": 13,
    "word": 9,
    "who": 3,
    "what as a noun": 3,
    "tell": 2,
    "goes": 1,
    "ask": 1,
    "nobody": 1,
    "looks": 1,
    "for good": 1,
}
"""The most places of each construction, over docstrings, strings shown to users, and documentation."""

MOST_ODD_DOCSTRINGS = 0.03
"""The largest share of docstrings in the source with any of the constructions."""

ODD_NAMES = re.compile(r"(?:^|_)(told|said|asked|fares|bury|settle|lighten)(?:_|$)")
"""Names whose meaning only their author knows."""

MOST_WORDS = 9
"""The most words of the name of a test."""

SOURCES = ("torchx", "torchx_cli", "components", "schedulers")


@dataclass(frozen=True)
class Place:
    """One construction found in one line of prose."""

    path: str
    line: int
    construction: str
    text: str


@cache
def places() -> tuple[Place, ...]:
    """Returns every construction in docstrings and strings of the source, and in the documentation."""
    return tuple(
        Place(str(path.relative_to(ROOT)), number, construction, line.strip())
        for path in (*source_files(), *pages())
        for number, text in prose(path)
        for line in text.splitlines()
        for construction, pattern in CONSTRUCTIONS.items()
        if re.search(pattern, line)
    )


def source_files() -> list[Path]:
    return [path for path in all_files() if path.relative_to(ROOT).parts[0] in SOURCES]


def pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, cwd=ROOT, check=True)
    return [ROOT / name for name in listed.stdout.split()]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yields line number and text of the prose in a file."""
    if path.suffix == ".md":
        fenced = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced:
                yield number, line
        return
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 2:
            yield node.lineno, node.value


def docstrings(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield text


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_a_construction_does_not_spread(construction: str) -> None:
    found = [place for place in places() if place.construction == construction]
    ceiling = CEILINGS.get(construction, 0)
    newest = "\n".join(f"{place.path}:{place.line}: {place.text[:100]}" for place in found)
    assert len(found) <= ceiling, f"{len(found)} places, at most {ceiling}:\n{newest}"


def test_the_ceilings_fall_with_the_counts() -> None:
    """A ceiling far above its count would let the construction return unnoticed."""
    counts = Counter(place.construction for place in places())
    loose = {
        name: (counts[name], ceiling) for name, ceiling in CEILINGS.items() if ceiling > counts[name] + 3
    }
    assert not loose, f"lower these ceilings (count, ceiling): {loose}"


def test_docstrings_are_plain() -> None:
    every = [text for path in source_files() for text in docstrings(path)]
    odd = [t for t in every if any(re.search(p, t, re.MULTILINE) for p in CONSTRUCTIONS.values())]
    assert len(odd) <= MOST_ODD_DOCSTRINGS * len(every), f"{len(odd)} of {len(every)} docstrings"


def test_names_are_plain() -> None:
    odd = sorted(
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in source_files()
        for node in nodes_of(path)
        for name in names_defined(node)
        if ODD_NAMES.search(name)
    )
    assert not odd, "\n".join(odd)


def test_names_of_tests_are_short_and_plain() -> None:
    odd = sorted(
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in all_files()
        for node in nodes_of(path)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
        if node.name.count("_") > MOST_WORDS or ODD_NAMES.search(node.name)
    )
    assert not odd, "\n".join(odd)


def names_defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


if __name__ == "__main__":
    for place in places():
        if not sys.argv[1:] or place.construction in sys.argv[1:]:
            sys.stdout.write(f"{place.path}:{place.line}: [{place.construction}] {place.text[:200]}\n")
