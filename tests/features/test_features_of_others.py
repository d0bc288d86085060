"""Features of other packages, by the example `examples/output_limit`: installed in a folder, and used."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from program import COMMAND, ROOT, environment

from torchx.features import values_of
from torchx.masking.data import readable_by_others

EXAMPLE = ROOT / "examples" / "output_limit"
ENDLESS = "seq 1000; exec sleep 600"


class Installed:
    """Runs commands with packages that are installed in a folder.

    Args:
        folder: the folder with the packages.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = environment({"PYTHONPATH": f"{folder}:{ROOT}"})

    def run(self, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *args], env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == code, done.stderr
        return done

    def data(self, *args: str) -> Any:
        return json.loads(self.run(*args, "-o", "json").stdout)

    def findings(self) -> Any:
        """Returns the output of `doctor`, whose exit code depends on the machine."""
        command = [*COMMAND, "doctor", "-o", "json"]
        return json.loads(subprocess.run(command, env=self.env, capture_output=True).stdout)

    def add(self, name: str, source: str) -> None:
        """Installs a package with a feature, as pip does."""
        (self.folder / f"{name}.py").write_text(source, encoding="utf-8")
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[torchx.features]\n{name} = {name}:Made\n")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the example, installed by pip without a network."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")  # pip writes into it
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", "-q", *offline]
    subprocess.run([*command, "--target", folder / "target", folder / "source"], check=True)
    return folder / "target"


@pytest.fixture
def installed(example: Path) -> Installed:
    return Installed(example)


PLAIN = """
from torchx.features import Feature, Flag


class Made(Feature):
    flags = [Flag("--label", "TEXT", "Label it.", repeats=True)]

    def row(self, values):
        return {"labels": list(values["label"])}
"""


def test_the_example_is_short() -> None:
    files = [EXAMPLE / "torchx_output_limit.py", EXAMPLE / "pyproject.toml"]
    assert len(files[0].read_text(encoding="utf-8").splitlines()) < 80
    assert sorted(EXAMPLE.iterdir()) == sorted(files)


def test_help_and_completion_show_the_flag(installed: Installed) -> None:
    text = installed.run("run", "--help").stdout
    assert "Features of other packages:\n  --max-output SIZE  End a replica" in text
    assert text.index("Output:\n") < text.index("Features of other packages:")
    assert "--max-output\tEnd a" in installed.run("__complete", "zsh", "run", "--max").stdout
    assert "--max-output" not in installed.run("rerun", "--help").stdout
    assert "feature  output_limit  torchx_output_limit:OutputLimit" in installed.run("plugins").stdout


def test_the_feature_ends_a_replica_and_has_a_row(installed: Installed) -> None:
    done = installed.run("run", "-s", "local_cwd", "--max-output", "1KB", "utils.sh", ENDLESS, code=143)
    handle = done.stdout.strip()
    assert "it printed more than 1000 bytes" in done.stderr
    assert "output_limit  max bytes 1000\n" in installed.run("status", handle).stdout
    status = installed.data("status", handle)
    assert status["features"] == {"output_limit": {"max_bytes": 1000}}
    schema = installed.data("schema", "status")
    row = schema["$defs"]["Status"]["properties"]["features"]["properties"]["output_limit"]
    assert row["required"] == ["max_bytes"]
    assert row["description"] == "The limit for the output of each attempt of a replica."
    Draft202012Validator(schema).validate(status)
    status["features"]["output_limit"]["max_bytes"] = "many"
    assert not Draft202012Validator(schema).is_valid(status)


def test_a_rerun_has_the_feature_too(installed: Installed) -> None:
    first = installed.run("run", "-s", "local_cwd", "--max-output=9KB", "utils.sh", "echo hi").stdout.strip()
    again = installed.run("rerun", first).stdout.strip()
    assert installed.data("status", again)["features"] == {"output_limit": {"max_bytes": 9000}}


def test_each_run_of_a_sweep_has_the_feature(tmp_path: Path) -> None:
    """Its policies have to be importable by the process of the sweep, which has another path here."""
    installed = Installed(tmp_path)
    installed.add("plain", PLAIN)
    flags = ["--label", "x", "--label", "y", "--each", "n=1,2", "--wait"]
    sweep = installed.run("run", "-s", "local_cwd", *flags, "utils.sh", "echo {n}").stdout.strip()
    for handle in (sweep, f"{sweep}/1", f"{sweep}/2"):
        assert installed.data("status", handle)["features"] == {"plain": {"labels": ["x", "y"]}}


def test_a_retry_counts_from_zero(installed: Installed) -> None:
    script = 'seq 100; [ "$TORCHX_ATTEMPT" = 2 ]'
    retries = ["--max_retries", "1"]
    installed.run("run", "-s", "local_cwd", "--max-output", "1KB", "utils.sh", *retries, script)


def test_doctor_runs_the_check(installed: Installed) -> None:
    found = installed.findings()["feature output_limit"]
    assert [finding["what"] for finding in found] == ["disk"]


def test_invalid_values(installed: Installed) -> None:
    done = installed.run("run", "--max-output", "1XB", "utils.echo", code=2)
    assert done.stderr.startswith("error: --max-output takes a number of KB, MB or GB, got `1XB`\n")
    done = installed.run("run", "--max-outptu", "1KB", "utils.echo", code=2)
    assert "did you mean `--max-output`?" in done.stderr


def test_an_engine_without_policies_rejects_the_flag(installed: Installed) -> None:
    done = installed.run("run", "--dryrun", "-s", "slurm", "--max-output", "1KB", "utils.echo", code=2)
    assert "`policies` does not work with slurm, which runs no policies of other packages" in done.stderr
    assert "(for the feature `output_limit`)" in done.stderr


def test_a_section_of_the_configuration_uses_a_feature(example: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    installed.env["PYTHONPATH"] = f"{example}:{ROOT}"
    config = tmp_path / ".torchxconfig"
    config.write_text("[cli:run]\nscheduler = local_cwd\n[feature:output_limit]\nmax_output = 2KB\n")
    handle = installed.run("run", "utils.echo").stdout.strip()
    assert installed.data("status", handle)["features"] == {"output_limit": {"max_bytes": 2000}}
    handle = installed.run("run", "--max-output", "3KB", "utils.echo").stdout.strip()
    assert installed.data("status", handle)["features"] == {"output_limit": {"max_bytes": 3000}}
    config.write_text("[feature:output_limit]\nmax_outputs = 2KB\n")
    done = installed.run("run", "utils.echo", code=2)
    assert done.stderr.startswith("error: .torchxconfig line 2")
    assert "unknown key `max_outputs`\n  did you mean `max_output`?" in done.stderr
    config.write_text("[feature:output_limits]\n")
    done = installed.run("run", "utils.echo", code=2)
    assert "the feature of the section [feature:output_limits] is not installed" in done.stderr
    assert "did you mean `output_limit`?" in done.stderr


def test_two_sources_of_policies_are_not_mixed(installed: Installed) -> None:
    other = ["-cfg", "policies=torchx_output_limit:Limit"]
    done = installed.run("run", "--max-output", "1KB", *other, "utils.echo", code=2)
    assert "`policies` cannot be combined with the feature `output_limit`" in done.stderr


def test_an_application_outlives_its_feature(installed: Installed, tmp_path: Path) -> None:
    handle = installed.run(
        "run", "-s", "local_cwd", "--max-output", "1KB", "utils.sh", "echo hi"
    ).stdout.strip()
    row = Installed(tmp_path).data("status", handle)["features"]
    assert row == {"output_limit": {"error": "the feature `output_limit` is not installed here"}}


FAILING = """
from torchx.features import Feature, Flag


class Made(Feature):
    flags = (Flag("--fails", "", "Fail."),)

    def policies(self, values):
        raise KeyError("x")

    def checks(self):
        raise KeyError("y")
"""
BROKEN = {"unloadable": "raise ImportError('no gpu')", "stranger": "class Made: pass", "failing": FAILING}


def test_broken_features_disturb_nothing_else(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    for name, source in BROKEN.items():
        installed.add(name, source)
    assert "--fails" in installed.run("run", "--help").stdout
    installed.run("run", "-s", "local_cwd", "utils.echo")
    assert "ImportError: no gpu" in installed.run("plugins").stdout
    findings = installed.findings()
    assert {name: findings[f"feature {name}"][0]["detail"] for name in BROKEN} == {
        "unloadable": "the feature `unloadable` cannot be loaded: ImportError: no gpu",
        "stranger": "the feature `stranger` is not a class derived from torchx.features.Feature",
        "failing": "the feature `failing` failed: KeyError: 'y'",
    }
    done = installed.run("run", "--fails", "utils.echo", code=2)
    assert done.stderr.startswith("error: the feature `failing` failed: KeyError: 'x'\n  see: torchx plugins")


def test_a_built_in_flag_takes_precedence(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    flags = "[Flag('--note', 'X', 'Mine.'), Flag('--extra', '', 'Mine.'), Flag('-x --extra', '', 'Later.')]"
    installed.add("taker", f"from torchx.features import *\n\n\nclass Made(Feature):\n    flags = {flags}\n")
    text = installed.run("run", "--help").stdout
    assert text.count("--note") == text.count("--extra") == 1
    assert "Mine." in text
    assert "Later." not in text


SCANS = """
import sys
from torchx.plugins import groups
from torchx_cli.main import main

scanned = []
real = groups.entry_points
groups.entry_points = lambda group: scanned.append(group) or real(group)
code = main(sys.argv[1:])
print(*sorted({name for name in sys.modules if name.startswith("torchx_cli.features")}))
sys.exit("torchx.features" in scanned or code)
"""


@pytest.mark.parametrize(
    "args",
    [["run", "-s", "local_cwd", "utils.echo"], ["list"], ["status", "@last"], ["log", "@last"], ["--help"]],
)
def test_a_command_without_features_searches_none(installed: Installed, args: Sequence[str]) -> None:
    if args[1:] == ["@last"]:
        installed.run("run", "-s", "local_cwd", "utils.echo")
    done = subprocess.run(
        [sys.executable, "-c", SCANS, *args], env=installed.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""


def test_other_users_of_an_engine_read_no_values() -> None:
    metadata = {"torchx/feature.output_limit": '{"max_output":"1KB"}', "torchx/tag.a": "b"}
    assert readable_by_others(metadata) == {"torchx/tag.a": "b"}
    assert values_of(metadata, "output_limit") == {"max_output": "1KB"}


@pytest.mark.parametrize("text", ["", "{", "[1]", "1", None, {}, "{" * 100_000])
def test_damaged_values_are_none(text: object) -> None:
    assert values_of({"torchx/feature.x": text}, "x") == {}


@pytest.mark.docker
def test_the_policy_gets_the_values_in_containers_too(installed: Installed) -> None:
    args = ["run", "-s", "local_docker", "--max-output", "1KB", "--wait", "utils.sh"]
    done = installed.run(*args, "--image=torchx-test:latest", ENDLESS, code=143)
    assert "it printed more than 1000 bytes" in done.stderr
    metadata = installed.data("describe", done.stdout.strip())["app"]["metadata"]
    assert values_of(metadata, "output_limit") == {"max_output": "1KB"}
    labels = subprocess.run(
        ["docker", "ps", "-a", "--no-trunc", "--format", "{{.Labels}}"], capture_output=True, text=True
    )
    assert "max_output" not in labels.stdout
    installed.run("delete", done.stdout.strip())
