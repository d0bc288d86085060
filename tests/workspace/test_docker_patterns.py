"""Lines of `.dockerignore` mean what they mean to a real `docker build`: the same files are sent."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from workspace.context import Builder, builder, docker_version, with_parents

from torchx.errors import UsageError
from torchx.specs.workspace import Workspace
from torchx.workspace.tree import scan

VERSION = docker_version()
MODERN = 23
"""From this version on the command reads patterns as moby/patternmatcher does; 20.10 reads some otherwise."""

NAMES = [
    "a",
    "b",
    "ab",
    "ba",
    "a.log",
    "b.log",
    ".log",
    "c.txt",
    "x y",
    "é",
    "a]",
    "a+b",
    "^a",
    "A",
    "7",
    "{a}",
    "aa",
]
PARTS = [
    *NAMES, "*", "*", "*", "**", "**", "?", "a*", "*a", "*b*", "*.log", "*.t?t", "?.log", ".*", "[ab]",
    "[a-b]*", "[^a]", "[^a-z]*", "[ab][ab]", r"\a]", r"a\]", r"\*", r"a\.log", r"[\]a]", r"[\^a]b", "[.]log",
    "[.+*?]*", "a[b]", "[a^]*", "a^*", "^*", "(a)*", "a$*", "{a}*", "a+*",
]  # fmt: skip
DEEP = ["**.log", "**a", "a**", "**a**", "**b*", "a**b", "***", "*.**", "**[ab]", r"**\.log", "**.*"]
"""Parts with ** that are more than that."""

ODD = ["a|b", "|*", "a|*|b*", "a{2}*", "[ab]{1,2}", r"\d*", r"\D*", r"[\w]*", r"\S*"]
"""Parts with characters that the library forgets to escape, or gives another meaning."""

KNOWN = [*PARTS, *DEEP, *DEEP]
MARKS = ["", "", "! ", "!"]
if VERSION < MODERN:
    MARKS = [""]  # a line with ! that matches a folder says less there of what is in it
    KNOWN = [part for part in PARTS if not set("+(){}^$") & set(part)]

INVALID = [
    "[a-]",
    "[]a]",
    "[-a]",
    "[a",
    "[",
    "a[",
    "[^]",
    "[a-b",
    "x/[",
    "[b-a]",
    "a\\",
    "!",
    "!/",
    "[\\",
    "[a\\]",
]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    if not VERSION:
        pytest.skip("no docker command: .ci/docker installs one")
    with builder(tmp_path_factory.mktemp("engine")) as started:
        yield started


def ours(folder: Path) -> set[str] | None:
    """What a workspace takes along of a folder; None if its ignore file is refused."""
    try:
        return with_parents(entry.path for entry in scan(Workspace({str(folder): ""})).entries)
    except UsageError:
        return None


def plant(rng: random.Random, folder: Path) -> None:
    for _ in range(rng.randint(4, 9)):
        place = folder.joinpath(*rng.choices(NAMES, k=rng.randint(1, 4)))
        for above in reversed(place.parents):
            if above.is_file():
                break
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.touch()


def line(rng: random.Random, prefix: str = "") -> str:
    parts = rng.choices(KNOWN, k=rng.choice([1, 1, 2, 2, 3]))
    text = rng.choice(["/", "/", "/", "/", "//", "/./", "/a/../"]).join(parts) + rng.choice(["", "", "", "/"])
    start = rng.choice(["", "", "", "/", "./"])
    return rng.choice(MARKS) + (f"{prefix}/{text}" if prefix else start + text) + rng.choice(["", " "])


def lines(rng: random.Random, prefix: str = "") -> list[str]:
    found = [line(rng, prefix) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.3:  # all but a few
        found.insert(0, f"{prefix}/*" if prefix else "*")
    return found


def differences(build: Builder, folder: Path, seed: int, batches: int, single: int) -> list[str]:
    """Compares generated trees and files: many in one build, each in a folder of its own, and some alone."""
    rng, wrong = random.Random(seed), []
    for number in range(batches + single):
        context = folder / str(number)
        context.mkdir()
        if number < batches:
            text = []
            for case in range(50):
                plant(rng, context / f"case{case}")
                text += lines(rng, f"case{case}")
        else:
            plant(rng, context)
            text = lines(rng)
            if (
                rng.random() < 0.2 and VERSION >= MODERN
            ):  # parts that may concern other folders, or be refused
                text.append(rng.choice(ODD))
        (context / ".dockerignore").write_text("\n".join(text) + "\n")
        theirs, mine = build.sent(context), ours(context)
        if mine is None or theirs is None:
            if mine is not theirs:
                wrong.append(f"{text}: refused by {'docker' if theirs is None else 'torchx'} alone")
            continue
        for case in sorted({path.split("/")[0] for path in mine ^ theirs}):
            about = [each for each in text if number >= batches or f"{case}/" in each]
            wrong.append(f"{about}: {sorted(p for p in mine ^ theirs if p.startswith(case))}")
        shutil.rmtree(context)
    return wrong


@pytest.mark.long
def test_generated_lines_mean_what_they_mean_to_docker(build: Builder, tmp_path: Path) -> None:
    wrong = differences(build, tmp_path, seed=11, batches=10, single=60)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text", ["**.log", "*\n!**/*.txt", "*\n!sub", "sub\n!sub/*/z.txt", "sub\n!sub/deep/*.txt"]
)
def test_common_lines_mean_the_same_as_to_docker(build: Builder, tmp_path: Path, text: str) -> None:
    if VERSION < MODERN and "**." in text:
        text = "**/*.log"
    for file in ("a.log", "x.txt", "sub/b.log", "sub/y.txt", "sub/deep/z.txt"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / ".dockerignore").write_text(text)
    found = ours(tmp_path)
    assert found is not None
    assert found == build.sent(tmp_path)


def test_invalid_lines_are_errors_here_and_there(build: Builder, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for text in INVALID:
        (tmp_path / ".dockerignore").write_text(text)
        assert build.sent(tmp_path) is None, text
        with pytest.raises(UsageError, match=r"\.dockerignore line 1"):
            scan(Workspace({str(tmp_path): ""}))
