"""`torchx schema`: each command with JSON output has a schema, whose keys keep their meaning.

`python tests/cli/test_schema.py` records new keys in schemas.txt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import outputs
import pytest
import yaml
from jsonschema import Draft202012Validator

from torchx_cli import app
from torchx_cli.main import main
from torchx_cli.schemas.build import schemas
from torchx_cli.schemas.errors import CODES
from torchx_cli.schemas.outputs import OUTPUTS

RECORD = Path(__file__).with_name("schemas.txt")
HEAD = "# The form of all JSON output: objects with their keys, and the outputs of the commands.\n"
HOW = """
A key keeps its name, its type and its meaning, since programs depend on it: a new meaning needs a new key.
To record new keys: python tests/cli/test_schema.py
For a clearer description of the same meaning, edit schemas.txt by hand.
"""


def commands() -> Iterator[str]:
    """The commands with the flag --json."""

    def walk(name: str, command: Any) -> Iterator[str]:
        below = getattr(command, "commands", None)
        if below is not None:
            for each, inner in below.items():
                if not inner.hidden:
                    yield from walk(f"{name} {each}", inner)
        elif {"json", "output"} & {param.name for param in command.params}:
            yield name

    for name in app.COMMANDS:
        yield from walk(name, app.load(name))


def lines() -> list[str]:
    """A line for each key and each output."""
    found = {}
    for name, schema in schemas().items():
        schema = dict(schema)
        about = schema.pop("description")
        for kind, definition in schema.pop("$defs", {}).items():
            for key, value in definition["properties"].items():
                value = {k: v for k, v in value.items() if k != "examples"}
                needed = "" if key in definition["required"] else "?"
                line = json.dumps(value, ensure_ascii=False)
                assert found.setdefault(f"{kind}.{key}{needed}", line) == line, f"two objects named {kind}"
        shape = {key: value for key, value in schema.items() if key not in ("$schema", "title")}
        found[name] = json.dumps({**shape, "description": about}, ensure_ascii=False)
    return [f"{name}: {line}" for name, line in sorted(found.items())]


def recorded() -> list[str]:
    return RECORD.read_text(encoding="utf-8").splitlines()[1:]


def test_every_command_with_json_output_has_a_schema() -> None:
    assert set(commands()) == set(OUTPUTS), "describe the output in torchx_cli/schemas/outputs.py"


def test_no_key_has_changed_its_meaning() -> None:
    now = lines()
    changed = [line for line in recorded() if line not in now]
    assert not changed, "\n".join(["changed or removed:", *changed, HOW])
    assert recorded() == now, "\n".join(
        ["new keys are not recorded yet:", *(set(now) - set(recorded())), HOW]
    )


def test_the_schemas_are_valid_and_open() -> None:
    for schema in schemas().values():
        Draft202012Validator.check_schema(schema)
        assert all(d["additionalProperties"] is True for d in schema.get("$defs", {}).values())


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*words: str) -> Any:
        assert main(["schema", *words]) == 0
        return json.loads(capsys.readouterr().out)

    everything = printed()
    assert everything == schemas()
    assert list(everything) == [*OUTPUTS, "error"]
    assert printed("status") == printed("status", "-o", "json") == everything["status"]
    assert printed("config", "show") == everything["config show"]
    assert set(printed("config")) == {"config show"}
    assert printed("error")["$defs"]["ErrorData"]["properties"]["code"]["examples"] == list(CODES)
    assert main(["schema", "wait", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == everything["wait"]
    assert main(["schema", "stauts", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["did_you_mean"]) == ("unknown_command", "status")
    assert main(["schema", "attach"]) == 2
    assert "error: the command `attach` has no JSON output" in capsys.readouterr().err


def test_the_output_of_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is checked by `outputs.check`, as in all tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHX_PROVENANCE")
    checked = set()

    def check(words: list[str], output: str) -> None:
        real_check(words, output)
        assert output.strip()
        parsed = outputs.complete.parse(words)
        assert parsed is not None
        checked.add(parsed[0])

    real_check = outputs.check
    monkeypatch.setattr(outputs, "check", check)

    def run(line: str, code: int = 0) -> Any:
        assert main([*line.split(), "--json"] if "utils" not in line else line.split()) == code, line
        text = capsys.readouterr().out
        return json.loads(text if text.startswith(("{\n", "[")) else text.splitlines()[0])

    Path(".torchxconfig").write_text(
        "[cli:run]\nscheduler = local_cwd\n"
        f"[torchx:tracker]\nfsspec =\n[tracker:fsspec]\nconfig = {tmp_path}/runs\n"
    )
    Path("c.py").write_text("from torchx.specs import AppDef\n\n\ndef app(n) -> AppDef: ...\n")
    failed = run("run --json --notify cmd:true utils.sh exit 3", 3)["handle"]
    assert run(f"status {failed}")["first_failure"]["result"] == 3
    handle = run("run --json utils.sh echo hi")["handle"]
    run("run --dryrun -o json utils.echo")
    run(f"rerun --dryrun {handle}")
    for line in (
        f"describe {handle}", f"describe --source {handle}", f"status --ranks {failed}", f"report {failed}",
        f"diff --source {failed} {handle}", f"why {failed}", f"log {handle}",
        f"log --fold {handle}", f"events {handle}",
        f"wait --for done {handle}", f"wait --for log:hi {handle}", f"top {handle}", "list", "queue", "nodes",
        "list --columns cpu", "runopts", "builtins", "config show local_cwd", "plugins", "schema",
        "tracker jobs", "tracker list jobs", f"results {handle}", f"why {failed}",
    ):  # fmt: skip
        run(line)
    for line in ("metadata", "artifacts", "lineage"):
        run(f"tracker {line} {handle}")
        run(f"tracker list {line} {handle}")
    running = run("run --detach --json utils.sh exec sleep 600")["handle"]
    run(f"stacks {running}")
    run(f"cancel {running}")
    run("lint c.py", 1)
    run("doctor local_cwd")
    assert run(f"cancel {handle}")[0]["cancelled"] is False
    assert run(f"delete {handle}")[0]["deleted"] is True
    assert failed in [app["handle"] for app in run("prune --yes --older-than 0")["applications"]]
    assert checked == set(OUTPUTS)


@pytest.mark.parametrize(
    ("scheduler", "image"),
    [
        pytest.param("local_docker", "--image=torchx-test:latest", marks=pytest.mark.docker),
        pytest.param("slurm", "--num_replicas=1", marks=pytest.mark.slurm),
    ],
)
def test_the_output_about_applications_of_other_engines(
    scheduler: str, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str, code: int = 0) -> Any:
        assert main([*words]) == code
        return json.loads(capsys.readouterr().out)

    handle = run("run", "-s", scheduler, "--wait", "--json", "utils.sh", image, "echo hi; exit 3", code=3)[
        "handle"
    ]
    assert run("log", handle, "--json")["line"] == "hi"
    for line in ("status", "status --ranks", "describe", "report", "top"):
        data = run(*line.split(), handle, "--json")
        assert (data if isinstance(data, dict) else data[0])["state"] == "FAILED"
    assert main(["events", handle, "--json"]) == 0
    assert "ended" in capsys.readouterr().out
    assert run("wait", handle, "--json", code=3)[0]["exit_code"] == 3
    assert run("delete", handle, "--json")[0]["deleted"] is True


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ('[{"path": 1}]', "is not of type 'object'"),
        ('{"dryrun": false, "applications": [], "leftovers": []}', "'freed' is a required property"),
        ('{"dryrun": 0, "applications": [], "leftovers": [], "freed": 0}', "0 is not of type 'boolean'"),
        (
            '{"dryrun": true, "applications": [], "leftovers": [], "freed": 0, "new": 1}',
            "'new' was unexpected",
        ),
        ('{"error": {"code": "usage", "message": "no", "exit_code": 2}}', "'hint' is a required property"),
    ],
)
def test_other_output_fails_any_test(output: str, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        outputs.check(["prune", "-o", "json"], output)


if __name__ == "__main__":
    gone = [line for line in recorded() if line not in lines()] if RECORD.exists() else []
    if gone:
        sys.exit("\n".join(["not written, since these lines have changed or are removed:", *gone, HOW]))
    RECORD.write_text("\n".join([HEAD.rstrip(), *lines(), ""]), encoding="utf-8")
