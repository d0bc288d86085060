"""Tags and notes: `run --tag`, `list --tag`, and where an application shows them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from program import answer, torchx

from torchx.errors import UsageError
from torchx.masking import MASK
from torchx.scheduling.query import AppQuery
from torchx.settings import NOTE, TAG
from torchx.specs import AppDef
from torchx.specs.app_metadata import MOST_TAGS, note_of, own_entries, set_tags, tags_of


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*args: str) -> str:
    done = torchx("run", *args, "utils.echo", "--msg", "hi")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def found(*flags: str) -> list[str]:
    """The handles that a listing selects."""
    return torchx("list", "-s", "local_cwd", "-q", *flags).stdout.split()


def test_tags_select_and_describe_an_application() -> None:
    a = run("--tag", "sweep=lr-1", "--tag", "baseline", "--note", "two\nlines")
    b = run("--tag", "sweep=lr-2")
    c = run()
    assert found() == [c, b, a]
    assert found("--tag", "sweep") == [b, a]
    assert found("--tag", "sweep=lr-1") == [a] == found("--tag", "sweep=*", "--tag", "baseline")
    assert found("--tag", "sweep=lr*") == [b, a] == [*found("--tag", "sweep=*2"), a]
    assert found("--tag", "sweep=") == found("--tag", "other") == []
    assert torchx("list", "-s", "local_cwd", "--tag", "other").stderr == "no matching applications\n"
    table = torchx(
        "list", "-s", "local_cwd", "--columns", "app,tags", "--tag", "baseline"
    ).stdout.splitlines()
    assert table[1].split(maxsplit=1)[1] == "sweep=lr-1, baseline"
    for command in ("status", "describe"):
        data = answer(command, a, "-o", "json")
        assert (data["tags"], data["note"]) == ({"sweep": "lr-1", "baseline": ""}, "two\nlines")
        lines = torchx(command, a).stdout.splitlines()
        tags = next(line for line in lines if line.startswith("tags"))
        assert tags.split(maxsplit=1)[1] == "sweep=lr-1, baseline"
        assert any(line.startswith("note") for line in lines)
        assert not any("torchx/tag" in line for line in lines)
    assert [row["tags"] for row in answer("list", "-s", "local_cwd", "-o", "json")] == [
        {}, {"sweep": "lr-2"}, {"sweep": "lr-1", "baseline": ""},
    ]  # fmt: skip


def test_a_rerun_keeps_tags_and_adds_new_ones() -> None:
    run("--tag", "a=1", "--tag", "b=1", "--note", "first")
    torchx("rerun", "@last", "--tag", "b=2", "--tag", "c")
    data = answer("status", "@last", "-o", "json")
    assert (data["tags"], data["note"]) == ({"a": "1", "b": "2", "c": ""}, "first")
    described = torchx("describe", "@last", "-o", "json").stdout
    torchx("run", "--stdin", "--tag", "d=1", "--note", "third", stdin=described)
    data = answer("status", "@last", "-o", "json")
    assert (data["tags"], data["note"]) == ({"a": "1", "b": "2", "c": "", "d": "1"}, "third")


def test_the_configuration_has_default_tags() -> None:
    Path(".torchxconfig").write_text("[cli:run]\ntags = team=vision, sweep=0\n    nightly\n")
    run("--tag", "sweep=1")
    assert answer("status", "@last", "-o", "json")["tags"] == {"team": "vision", "sweep": "1", "nightly": ""}
    Path(".torchxconfig").write_text("[cli:run]\ntags = a b=1\n")
    done = torchx("run", "utils.echo")
    assert done.returncode == 2
    assert "`a b` is not a valid name of a tag (from .torchxconfig line 2 [cli:run])" in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tag", "a b=1"], "`a b` is not a valid name of a tag (from --tag)"),
        (["--tag", "=1"], "`` is not a valid name of a tag (from --tag)"),
        (["--tag", "a=1,b=2"], "one tag at a time: --tag a=1 --tag b=2"),
        (["--tag", "a=\x1b[31m"], "the value of tag `a` is invalid"),
        (["--tag", "a=1", "--tag", "a=2"], "tag `a` is given twice (from --tag)"),
        (["--note", "\x1b[31m"], "a note has at most 2,000 characters, and no control characters"),
    ],
)
def test_invalid_tags_are_rejected(flags: list[str], message: str) -> None:
    done = torchx("run", *flags, "utils.echo")
    assert done.returncode == 2
    assert message in done.stderr
    assert found() == []


def test_secrets_are_in_no_record() -> None:
    handle = run("--tag", "api_key=canary-1", "--note", "with password=canary-2")
    assert answer("status", handle, "-o", "json")["tags"] == {"api_key": MASK}
    home = Path(os.environ["TORCHX_HOME"])
    for path in home.rglob("*"):
        assert not path.is_file() or b"canary" not in path.read_bytes(), path
    assert found("--tag", "api_key") == [handle]


def test_list_has_tags_only_if_there_are_some() -> None:
    """Earlier versions read the records of jobs whose lines have fields that they do not know."""
    run()
    run("--tag", "a=é")
    lines = (Path(os.environ["TORCHX_HOME"]) / "ended.jsonl").read_text().splitlines()
    assert ["tags" in json.loads(line) for line in lines] == [False, True]
    assert len(found("--tag", "a=é")) == 1


def test_tags_of_any_origin_are_checked() -> None:
    metadata = {
        f"{TAG}a": "1", f"{TAG}b": 2, f"{TAG}a b": "1", f"{TAG}c": "\x1b", f"{TAG}d": "x" * 300,
        NOTE: "n" * 3_000, "other": "x", 5: "x",
    }  # fmt: skip
    assert tags_of(metadata) == {"a": "1"}
    assert len(note_of(metadata)) == 2_000
    assert sorted(own_entries(metadata)) == [NOTE, f"{TAG}a"]
    for damaged in (None, [], "text", {NOTE: 1}):
        assert (tags_of(damaged), note_of(damaged), own_entries(damaged)) == ({}, "", {})


def test_tags_are_few() -> None:
    app = AppDef("a")
    set_tags(app, {f"t{n}": "" for n in range(MOST_TAGS)})
    with pytest.raises(UsageError, match="at most 50 tags"):
        set_tags(app, {"one-more": ""})
    assert len(tags_of(app.metadata)) == MOST_TAGS


def test_a_query_takes_all_of_its_tags() -> None:
    query = AppQuery(tags=(("a", "1*"), ("b", None)))
    assert query.takes("x", "x", "RUNNING", None, {"a": "12", "b": ""})
    assert not query.takes("x", "x", "RUNNING", None, {"a": "12"})
    assert not query.takes("x", "x", "RUNNING", None)
