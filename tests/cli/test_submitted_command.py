"""The command line that submitted an application: recorded with it, masked, and shown to its user alone."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from program import answer, torchx

from torchx import settings
from torchx.schedulers.docker.record import full_data, job_data, label_data
from torchx.schedulers.kubernetes.record import read_record, write_record
from torchx.specs.app import AppDef, Role
from torchx_cli.recording import without_values


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_describe_shows_the_command_line_with_secrets_masked() -> None:
    words = ["run", "utils.sh", "--env", "HF_TOKEN=hunter2hunter2,N=1", "echo a b; exit 0"]
    assert torchx(*words).returncode == 0
    described = answer("describe", "@last", "-o", "json")
    line = described["command_line"]
    assert re.fullmatch(r"torchx run utils.sh --env '?HF_TOKEN=\S+ 'echo a b; exit 0'", line)
    assert "hunter2" not in json.dumps(described)
    assert described["app"]["metadata"] == {}
    text = torchx("describe", "@last").stdout
    assert re.search(rf"^submitted by +{re.escape(line)}$", text, re.MULTILINE)
    assert "metadata" not in text


def test_a_command_with_line_feeds_can_be_pasted() -> None:
    script = "import sys\nif sys:\n    print('it\\'s 1')\n"
    assert torchx("run", "utils.python", "-c", script).returncode == 0
    text = torchx("describe", "@last").stdout
    assert "image" not in text, "the engine uses none"
    for row in ("submitted by", "command"):
        (line,) = re.findall(rf"^ *{row} +(.+)$", text, re.MULTILINE)
        shown = subprocess.run(["bash", "-c", f"printf '%s,' {line}"], capture_output=True, text=True)
        assert shown.stdout.endswith(f"-c,{script},")


def test_the_names_and_files_of_secrets_are_shown() -> None:
    """A line that repeats the command is usable; what follows a flag of a program may be a secret."""
    Path("my token").write_text("canary\n")
    flags = ["--secret", "HF_TOKEN", "--secret", "API_KEY=@my token"]
    env = {"HF_TOKEN": "canary"}
    done = torchx("run", *flags, "utils.sh", ": --secret canary; exit 3", env=env)
    line = "torchx run --secret HF_TOKEN --secret 'API_KEY=@my token' utils.sh ': --secret ********; exit 3'"
    app_id = done.stdout.strip().rpartition("/")[2]
    again = f"torchx rerun {app_id} --secret API_KEY --secret HF_TOKEN"  # a masked program cannot be pasted
    assert done.stderr.splitlines()[-1] == f"  again:    {again}"
    described = torchx("describe", "@last", "-o", "json")
    assert json.loads(described.stdout)["command_line"] == line
    assert re.search(rf"^submitted by +{re.escape(line)}$", torchx("describe", "@last").stdout, re.MULTILINE)
    rerun = torchx("rerun", "@last", "--secret=HF_TOKEN", *flags[2:], env=env)
    assert rerun.stderr.splitlines()[-1] == (
        f"  again:    torchx rerun {app_id} --secret=HF_TOKEN --secret 'API_KEY=@my token'"
    )
    assert not any("canary" in text.stdout + text.stderr for text in (done, described, rerun))


def test_dry_run_and_very_long_command_are_not_recorded() -> None:
    assert settings.COMMAND_LINE not in torchx("run", "--dryrun", "utils.echo").stdout
    assert torchx("run", "utils.echo", "--msg", "x" * 20_000).returncode == 0
    assert answer("describe", "@last", "-o", "json")["command_line"] is None


def test_other_users_of_engine_see_command_line_without_values() -> None:
    metadata = {
        settings.COMMAND_LINE: "torchx run a --x canary",
        settings.COMMAND_NAMES: "torchx run a --x …",
    }
    app = AppDef("a", [Role("r", "", entrypoint="x")], {**metadata, "k": "v"})
    private = job_data(app, {}, "s")
    assert "canary" in json.dumps(private)
    assert label_data(private)["app"]["metadata"] == {"k": "v", settings.COMMAND_NAMES: "torchx run a --x …"}
    record = read_record(write_record(app, {}) or "")
    assert record["app"]["metadata"] == {"k": "v", settings.COMMAND_NAMES: "torchx run a --x …"}
    older = AppDef("a", [Role("r", "", entrypoint="x")], {settings.COMMAND_LINE: "torchx run canary"})
    assert "canary" not in (write_record(older, {}) or "")


def test_command_line_that_other_users_can_write_is_ignored() -> None:
    """Otherwise `rerun --set` would run the component in a file that they name."""
    app = AppDef("a", [Role("r", "", entrypoint="x")])
    command = {settings.COMMAND_LINE: "torchx run /tmp/canary.py:f", "k": "v"}
    written = json.loads(write_record(app, {}) or "")
    written["app"]["metadata"] = command
    assert read_record(json.dumps(written))["app"]["metadata"] == {"k": "v"}
    label = label_data(job_data(app, {}, "s"))
    label["app"]["metadata"] = command
    assert full_data("a-1", label, [])["app"]["metadata"] == {"k": "v"}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (
            ["-j", "2x2", "--script", "canary.py", "--lr", "-1", "canary", "-pcanary"],
            "c -j … --script … --lr … …",
        ),
        (["--debug", "--env=TOKEN=canary", "-pcanary"], "c --debug --env … -p …"),
        (["--x", "--", "--password", "canary"], "c --x …"),
        (["canary --flag"], "c …"),
        ([], "c"),
    ],
)
def test_the_command_line_without_values(argv: list[str], expected: str) -> None:
    assert without_values("c", argv) == expected
