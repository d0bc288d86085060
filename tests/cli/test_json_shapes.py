"""What the commands print as JSON is what docs/json.md says, key by key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from program import ROOT

from torchx.runner import get_runner
from torchx_cli.main import main

PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")


def documented(section: str, table: int = 0) -> list[str]:
    """The keys of a table in a section of the page."""
    text = "\n" + PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    tables = re.split(r"\n\| key \| value \|\n\|---\|---\|\n", text)[1:]
    rows = tables[table].split("\n\n")[0].splitlines()
    return [key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])]


def nested(section: str, before: str, after: str) -> list[str]:
    """The keys that a sentence of a section names between two words."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"`(\w+)`", text.split(before)[1].split(after)[0])


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Any:
        main(list(words))
        output = capsys.readouterr()
        assert output.out, output.err
        return json.loads(output.out)

    return run


def test_applications(printed: Any) -> None:
    ran = printed("run", "--json", "utils.sh", "exit 3")
    handle = ran["handle"]
    assert list(ran) == documented("run")
    status = printed("status", handle, "-o", "json")
    assert list(status) == documented("status")
    first = nested("status", "| `first_failure` |", "(the exit code")
    assert sorted(status["first_failure"]) == sorted(first) == sorted(ran["first_failure"])
    replica = status["roles"][0]["replicas"][0]
    assert [*nested("status", "A replica has", ", and `attempts`"), "attempts"] == list(replica)
    assert nested("status", "`attempts`: each with", "\n## ") == list(replica["attempts"][0])
    assert list(printed("list", "-o", "json")[0]) == documented("list")
    assert list(printed("describe", handle, "-o", "json")) == documented("describe")
    assert list(printed("run", "--dryrun", "-o", "json", "utils.echo")) == documented("run", 1)
    printed("run", "--json", "utils.echo")
    assert list(printed("log", "@last", "-o", "json")) == documented("log")
    folded = printed("log", "@last", "--fold", "-o", "json")
    assert list(folded) == documented("log", 1)
    assert list(folded["replicas"][0]) == nested("log", "| the sources, each with", ": the ranks")
    top = printed("top", handle, "-o", "json")
    assert list(top[0]) == documented("top")
    assert list(top[0]["replicas"][0]) == nested("top", "| `replicas` | each with", "; a value")
    report = printed("report", handle, "--json")
    assert list(report) == documented("report")
    assert list(report["failure"]) == nested("report", "| `failure` |", ": the command")
    waited = printed("wait", handle, "-o", "json")
    assert list(waited[0]) == documented("run")
    replica = printed("describe", handle, "-o", "json")["roles"][0]["replicas"][0]
    assert list(replica) == list(status["roles"][0]["replicas"][0])
    with get_runner() as runner:
        assert len(runner.list("local_cwd")) == 2


def test_the_output_of_prune(printed: Any) -> None:
    printed("run", "--json", "utils.echo")
    pruned = printed("prune", "--older-than", "0", "-o", "json")
    assert list(pruned) == documented("prune")
    assert list(pruned["applications"][0]) == nested("prune", "| `applications` | each with", "|")


def test_the_others(printed: Any) -> None:
    assert list(printed("runopts", "-o", "json")["local_cwd"][0]) == documented("runopts")
    assert list(printed("builtins", "-o", "json")[0]) == documented("builtins")
    Path("c.py").write_text(
        "import torchx.specs as specs\n\n\ndef app(n) -> specs.AppDef:\n    return specs.AppDef('a')\n",
        encoding="utf-8",
    )
    lint = printed("lint", "c.py", "-o", "json")
    assert list(lint) == documented("lint")
    assert list(lint["problems"][0]) == nested("lint", "| each with", "|")
    Path(".torchxconfig").write_text("[cli:run]\nscheduler = local_cwd\n", encoding="utf-8")
    config = printed("config", "show", "-o", "json")
    assert list(config) == documented("config show")
    assert list(config["values"][0]) == nested("config show", "| each with", "|")
