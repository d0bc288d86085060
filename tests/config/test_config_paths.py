"""Tests of paths in configuration files, and of commands that work with any configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx.config import load_config
from torchx.config.options import scheduler_options
from torchx.config.paths import component_settings, located, located_component
from torchx.runner import get_runner
from torchx_cli.main import main

COMPONENT = """import torchx.specs as specs

def train(size: int = 1, name: str = "x") -> specs.AppDef:
    \"\"\"Trains.

    Args:
        size: the size
        name: the name
    \"\"\"
    return specs.AppDef("train", [specs.Role("r", "i", entrypoint="echo", args=[name, str(size)])])
"""

CONFIG = """[cli:run]
component = components/train.py:train
scheduler = local_cwd
[component:components/train.py:train]
size = 7
[local_cwd]
log_dir = logs
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a component and a configuration; the working directory is a folder in it."""
    (tmp_path / "components").mkdir()
    (tmp_path / "components" / "train.py").write_text(COMPONENT)
    (tmp_path / ".torchxconfig").write_text(CONFIG)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main([*words]) == 0
    shown = capsys.readouterr()
    return shown.out, shown.err


def test_component_of_project_is_found_from_subfolder(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = run(capsys, "run", "--dryrun")
    assert "echo x 7" in out
    assert f"logs:   {project / 'logs'}/" in out


@pytest.mark.parametrize(
    "spelling", ["../components/train.py", "./../components/train.py", "{}/components/train.py"]
)
def test_settings_apply_to_each_spelling_of_the_file(
    project: Path, capsys: pytest.CaptureFixture[str], spelling: str
) -> None:
    name = f"{spelling.format(project)}:train"
    assert "echo x 7" in run(capsys, "run", "--dryrun", name)[0]
    assert component_settings(load_config(), f"{spelling.format(project)}:other") == {}


def test_a_link_is_the_same_file(project: Path) -> None:
    (project / "sub" / "mine.py").symlink_to(project / "components" / "train.py")
    assert component_settings(load_config(), "mine.py:train")["size"].value == "7"


def test_the_nearer_spelling_of_a_file_takes_precedence(project: Path) -> None:
    (project / ".torchxconfig").write_text(
        f"[component:{project}/components/train.py:train]\nsize = 1\nname = y\n"
        "[component:components/train.py:train]\nsize = 2\n"
    )
    settings = component_settings(load_config(), f"{project}/components/train.py:train")
    assert {key: setting.value for key, setting in settings.items()} == {"size": "1", "name": "y"}


def test_the_help_shows_the_defaults_in_force(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "run", "../components/train.py:train", "--help")
    assert "default 7, from ../.torchxconfig line 5" in " ".join(out.split())
    assert "default x" in out


def test_the_help_masks_a_secret_default(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / "components" / "train.py"
    file.write_text(
        COMPONENT.replace("name: str", "api_key: str")
        .replace("name:", "api_key:")
        .replace("[name", "[api_key")
    )
    (project / ".torchxconfig").write_text("[component:components/train.py:train]\napi_key = hush\n")
    out, _ = run(capsys, "run", f"{file}:train", "--help")
    assert "hush" not in out
    assert "line 2" in out


def test_home_paths_are_searched_in_working_directory_first(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    (project / ".torchxconfig").unlink()
    (home / "job.py").write_text(COMPONENT)
    (home / ".torchxconfig").write_text("[cli:run]\nworkspace = .\ncomponent = job.py:train\n")
    config = load_config()
    workspace, component = config.get("cli:run", "workspace"), config.get("cli:run", "component")
    assert workspace is not None
    assert component is not None
    assert located(workspace).value == str(project / "sub")
    assert located_component(component) == f"{home}/job.py:train"


@pytest.mark.parametrize("value", ["s3://bucket/x", "{a: b}", "a: b"])
def test_addresses_and_mappings_are_unchanged(project: Path, value: str) -> None:
    (project / ".torchxconfig").write_text(f"[cli:run]\nworkspace = {value}\n")
    setting = load_config().get("cli:run", "workspace")
    assert setting is not None
    assert located(setting).value == value


def test_option_that_is_folder_is_relative_to_its_file(project: Path) -> None:
    (project / ".torchxconfig").write_text("[slurm]\njob_dir = jobs\n[local_cwd]\nlog_dir = None\n")
    with get_runner() as runner:
        opts = runner.scheduler_run_opts("slurm")
        assert scheduler_options(load_config(), "slurm", opts)["job_dir"].value == str(project / "jobs")
        opts = runner.scheduler_run_opts("local_cwd")
        assert scheduler_options(load_config(), "local_cwd", opts)["log_dir"].value is None


@pytest.mark.parametrize(
    "text",
    [
        "[local_cwdd]\n",
        "[local_cwd]\ngrace_period = long\nno_option = 1\n",
        "[cli:list]\nscheduler = nowhere\n",
        "[cli:list]\ncolour = blue\n",
        "no section\n",
        "[nemo]\nx = 1\n",
    ],
)
@pytest.mark.parametrize("command", [["list"], ["list", "-s", "local_cwd"], ["config", "show"]])
def test_list_and_config_show_work_with_any_file(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, command: list[str]
) -> None:
    (project / ".torchxconfig").write_text(text)
    run(capsys, *command)


def test_one_note_about_sections_of_what_is_not_installed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".torchxconfig").write_text("[nemo]\nx = 1\n[cli:deploy]\ny = 2\n")
    _, err = run(capsys, "run", "--dryrun", "-s", "local_cwd", "utils.echo")
    assert err == "note: the configuration has sections of plugins that are not installed: nemo, cli:deploy\n"


def test_wrong_value_is_error_for_its_own_command_only(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".torchxconfig").write_text(
        "[kubernetes]\nreserved_memmb = much\n[cli:list]\nscheduler = none\n"
    )
    run(capsys, "run", "--dryrun", "-s", "local_cwd", "utils.echo")
    assert main(["run", "--dryrun", "-s", "kubernetes", "utils.echo"]) == 2
    assert "reserved_memmb" in capsys.readouterr().err
