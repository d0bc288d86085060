"""The hints about flags and names that do not exist: a corpus of inputs, each with its right hint or none."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from torchx.suggestions import did_you_mean, nearest
from torchx_cli.main import main

CORPUS = [
    line.partition(" | ")[::2]
    for line in Path(__file__).with_name("hints.txt").read_text(encoding="utf-8").splitlines()[1:]
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hint_of(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the first hint of a command line that fails, or none."""
    assert main(shlex.split(line)) == 2, line
    shown = capsys.readouterr().err
    assert shown.startswith("error: "), shown
    first = [*shown.splitlines(), ""][1].strip().split("   ")[0]
    return (
        "none"
        if first.startswith(("see: ", "all commands", "all flags", "all schedulers", "to pass it to "))
        else first
    )


@pytest.mark.parametrize(("line", "hint"), CORPUS)
def test_the_hint_of_a_wrong_command_line(line: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hint_of(line, capsys) == hint


@pytest.mark.parametrize(
    ("arguments", "run"),
    [
        ("", "utils.python --script ranks.py"),
        (" --lr 3", "utils.python --script ranks.py -- --lr 3"),
        (" -- --lr 3", "utils.python --script ranks.py -- --lr 3"),
        (" -j 1x2 'a b'", "dist.torchrun -j 1x2 --script ranks.py -- 'a b'"),
    ],
)
def test_a_script_in_place_of_a_component(
    arguments: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ranks.py").write_text("print()\n")
    assert hint_of(f"run ranks.py{arguments}", capsys) == f"to run it: torchx run {run}"
    assert main(["run", "--dryrun", *shlex.split(run)]) == 0


def test_a_flag_of_the_configured_component(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".torchxconfig").write_text("[cli:run]\ncomponent = utils.python\n")
    (tmp_path / "ranks.py").write_text("print()\n")
    line = "-- --script ranks.py --gpu 1"
    hint = f"an argument of the component, as in: torchx run {line}"
    assert hint_of("run -d --script ranks.py --gpu 1", capsys) == hint
    assert main(["run", "--dryrun", *shlex.split(line)]) == 0


def test_the_corpus_is_large() -> None:
    assert len({line for line, _ in CORPUS}) == len(CORPUS) > 200


def test_a_hint_is_at_least_three_quarters_similar() -> None:
    assert nearest("components", ["completion", "configure"]) is None
    assert nearest("runing", ["running"]) == "running"
    assert nearest("rnu", ["run", "rerun"]) == "run"  # the same letters
    assert did_you_mean("zz", ["z"], "all: here") == "all: here"
