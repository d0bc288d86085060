"""Lines of ignore files: what TorchX makes of them, what is built in, and what a line may say."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.errors import UsageError
from torchx.specs.workspace import Workspace
from torchx.workspace.ignore import Rules, parse
from torchx.workspace.tree import scan


def kept(folder: Path, *lines: str, file: str = ".torchxignore") -> set[str]:
    """The files that come along, the ignore file itself left out."""
    (folder / file).write_text("\n".join(lines))
    found = {entry.path for entry in scan(Workspace({str(folder): ""})).entries if entry.kind != "dir"}
    (folder / file).unlink()
    return found - {file}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for file in ("a.py", "a.log", "data/x", "src/data/x", "src/b.py", "src/b.log", "src/.env", "é x/ü.txt"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(file)
    return tmp_path


ALL = {"a.py", "a.log", "data/x", "src/data/x", "src/b.py", "src/b.log", "é x/ü.txt"}


@pytest.mark.parametrize(
    ("lines", "gone"),
    [
        (["*.log"], {"a.log", "src/b.log"}),
        (["data"], {"data/x"}),
        (["data/"], {"data/x"}),
        (["a.py/"], set()),
        (["/data", "./src/data"], {"data/x", "src/data/x"}),
        (["**/data"], {"data/x", "src/data/x"}),
        (["s?c*b.py"], {"src/b.py"}),
        (["[!a]*"], {"data/x", "src/data/x", "src/b.py", "src/b.log", "é x/ü.txt"}),
        (["é*"], {"é x/ü.txt"}),
        (["*.log", "!src/b.log"], {"a.log"}),
        (["src", "!src/b.*"], {"src/data/x"}),
        (["# a.py", "", "  a.py  "], {"a.py"}),
        (["\\a.py", "[", "A.PY"], {"a.py"}),
        (["\ufeffa.py"], {"a.py"}),
        (["."], set()),
    ],
)
def test_lines_of_torchxignore(project: Path, lines: list[str], gone: set[str]) -> None:
    assert ALL - kept(project, *lines) == gone


@pytest.mark.parametrize(
    ("lines", "gone"),
    [
        (["*.log"], {"a.log"}),
        (["**/*.log"], {"a.log", "src/b.log"}),
        (["a.py/"], {"a.py"}),
        (["*", "!src"], {"a.py", "a.log", "data/x", "é x/ü.txt"}),
        (["**/*.log", "!src"], {"a.log", "src/b.log"}),
        (["[!a]*"], {"a.py", "a.log"}),
    ],
)
def test_lines_of_dockerignore(project: Path, lines: list[str], gone: set[str]) -> None:
    assert ALL - kept(project, *lines, file=".dockerignore") == gone


def test_secrets_are_copied_only_when_named(project: Path) -> None:
    for lines in (["!src/**"], ["*", "!src", "!src/*"], ["!**"], ["!.*"]):
        assert "src/.env" not in kept(project, *lines), lines
    for lines in (["!src/.env"], ["!**/.env"], ["src", "!**/.env*"]):
        assert "src/.env" in kept(project, *lines), lines
    assert "src/.env" not in kept(project, "!**/.env", "src/.env")


def test_environment_of_python_stays_behind_whatever_it_is_called(project: Path) -> None:
    (project / "my_env" / "bin").mkdir(parents=True)
    (project / "my_env" / "pyvenv.cfg").touch()
    (project / "my_env" / "bin" / "python").touch()
    assert kept(project) == ALL
    assert kept(project, "!my_env") == {*ALL, "my_env/pyvenv.cfg", "my_env/bin/python"}


@pytest.mark.parametrize("line", ["!", "a[", "a\\", "[b-a]"])
def test_what_cannot_be_understood_is_named(project: Path, line: str) -> None:
    with pytest.raises(UsageError, match=r"\.dockerignore line 2"):
        kept(project, "# fine", line, file=".dockerignore")


_words = st.text(alphabet="ab*?.", min_size=1, max_size=5).filter(lambda w: "**" not in w and w.strip("."))
_names = st.text(alphabet="ab.", min_size=1, max_size=3).filter(lambda w: w.strip("."))


@settings(max_examples=300)
@given(st.lists(_words, min_size=1, max_size=3), st.lists(_names, min_size=1, max_size=3))
def test_line_of_torchxignore_means_what_it_means_to_torchx(words: list[str], names: list[str]) -> None:
    pattern, path = "/".join(words), "/".join(names)
    rules = Rules(parse(pattern, ".torchxignore"), unfiltered=True)
    state, why = rules.top, None
    for n, name in enumerate(names, 1):
        why, state = rules.match("/".join(names[:n]), name, state, is_dir=n < len(names))
    parents = ["/".join(names[:n]) for n in range(1, len(names) + 1)]
    assert (why is not None) == any(fnmatchcase(each, pattern) for each in parents), (pattern, path)
