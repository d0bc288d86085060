"""Which configuration files count, and in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchx.config import ConfigError, ConfigNotFoundError, find_files, load_config, scheduler_options
from torchx.config.api import find_configs
from torchx.runner import get_runner

HOME_TEXT = "[local_cwd]\nlog_dir = /home\n"


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".torchxconfig"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


def test_the_project_comes_before_home(home: Path, project: Path) -> None:
    mine = write(home, HOME_TEXT + "prepend_cwd = true\n")
    ours = write(project, "[local_cwd]\nlog_dir = /project\n")
    assert find_files().paths == (ours, mine)
    section = load_config().section("local_cwd")
    assert {key: setting.value for key, setting in section.items()} == {
        "log_dir": "/project",
        "prepend_cwd": "true",
    }
    assert str(section["log_dir"].origin) == ".torchxconfig line 2 [local_cwd]"
    assert str(section["prepend_cwd"].origin) == "~/.torchxconfig line 3 [local_cwd]"


def test_the_project_is_found_from_a_folder_below(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = write(project, HOME_TEXT)
    below = project / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert find_configs() == [str(ours)]
    assert (
        str(load_config().section("local_cwd")["log_dir"].origin) == "../../.torchxconfig line 2 [local_cwd]"
    )


def test_the_nearest_of_two_project_files_counts_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, HOME_TEXT)
    inner = write(project / "inner", "[cli:run]\nscheduler = local_cwd\n")
    monkeypatch.chdir(project / "inner")
    assert find_files().paths == (inner,)


def test_below_home_the_search_ends_at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home.parent, "[cli:run]\ncomponent = other.people\n")
    mine = write(home, HOME_TEXT)
    work = home / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    assert find_files().paths == (mine,)


def test_the_variable_names_the_only_file(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, HOME_TEXT)
    write(project, HOME_TEXT)
    only = project / "only.ini"
    only.write_text("[local_cwd]\nlog_dir = /only\n", encoding="utf-8")
    monkeypatch.setenv("TORCHXCONFIG", "only.ini")
    assert find_files().paths == (only,)
    monkeypatch.setenv("TORCHXCONFIG", "")
    assert find_files().paths == ()


def test_missing_file_of_variable_is_error_of_both_kinds(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHXCONFIG", "gone.ini")
    with pytest.raises(FileNotFoundError):
        find_configs()
    with pytest.raises(ConfigNotFoundError) as error:
        find_configs()
    assert error.value.message == "no configuration file at gone.ini (from $TORCHXCONFIG)"


def test_given_folders_are_the_only_ones(home: Path, project: Path, tmp_path: Path) -> None:
    write(project, HOME_TEXT)
    other = write(tmp_path / "other", HOME_TEXT)
    assert find_configs([str(tmp_path / "nothing"), str(tmp_path / "other")]) == [str(other)]


def test_strangers_file_in_folder_for_all_is_passed_over(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    planted = write(project, HOME_TEXT)
    os.chown(planted, 12345, 12345)
    project.chmod(0o1777)
    found = find_files()
    assert (found.paths, found.passed_over) == ((), (planted,))


def test_a_working_directory_that_is_gone(home: Path, project: Path) -> None:
    mine = write(home, HOME_TEXT)
    project.rmdir()
    assert find_files().paths == (mine,)
    assert load_config().section("local_cwd")["log_dir"].value == "/home"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[local_cwdd]\n", "line 1: unknown section [local_cwdd]", "did you mean [local_cwd]?"),
        ("[componnent:a]\n", "line 1: unknown section [componnent:a]", "did you mean [component:a]?"),
        ("[cli:rnu]\n", "line 1: unknown section [cli:rnu]", "did you mean [cli:run]?"),
        (
            "[torchx:trackers]\n",
            "line 1: unknown section [torchx:trackers]",
            "did you mean [torchx:tracker]?",
        ),
        ("[profile:big]\n", "line 1: expected [profile:NAME:SECTION]", None),
        ("[profile:big:local_cw]\n", "line 1: unknown section [local_cw]", "did you mean [local_cwd]?"),
        (
            "[cli:run]\ncomponet = x\n",
            "line 2 [cli:run]: unknown key `componet`",
            "did you mean `component`?",
        ),
        ("[cli:list]\ncomponent = x\n", "line 2 [cli:list]: unknown key `component`", "keys: scheduler"),
    ],
)
def test_unknown_sections_and_keys(project: Path, text: str, message: str, hint: str | None) -> None:
    write(project, text)
    with pytest.raises(ConfigError) as error:
        config = load_config()
        config.get("cli:run", "component")
        config.get("cli:list", "scheduler")
    assert error.value.message == f".torchxconfig {message}"
    assert (error.value.hint or "").startswith(hint or "")


def test_sections_of_former_schedulers_and_plugins_are_harmless(project: Path) -> None:
    write(project, "[aws_batch]\nqueue = x\n[ray]\n[acme:thing]\nkey = 1\n[component:a.b]\nn = 2\n")
    assert load_config().section("acme:thing")["key"].value == "1"


@pytest.mark.parametrize("heading", ["slurm_gpu", "local_k8s", "nemo", "cli:deploy", "profile:big:skypilot"])
def test_sections_of_what_is_not_installed_are_ignored(project: Path, heading: str) -> None:
    write(project, f"[{heading}]\nqueue = x\n[local_cwd]\nlog_dir = /x\n")
    config = load_config()
    assert config.ignored == (heading,)
    assert config.section("local_cwd")["log_dir"].value == "/x"


def test_an_unknown_key_concerns_only_its_command(project: Path) -> None:
    write(project, "[cli:run]\nscheduler = local_cwd\n[cli:list]\ncolour = blue\n")
    setting = load_config().get("cli:run", "scheduler")
    assert setting is not None
    assert setting.value == "local_cwd"


def test_a_profile_lies_on_top(home: Path, project: Path) -> None:
    write(home, "[profile:big:local_cwd]\nlog_dir = /big\n[profile:small:local_cwd]\nlog_dir = /small\n")
    write(project, "[local_cwd]\nlog_dir = /project\n")
    assert load_config().section("local_cwd")["log_dir"].value == "/project"
    big = load_config(profile="big")
    assert big.section("local_cwd")["log_dir"].value == "/big"
    reported = [(e.setting.value, e.profile, e.effective) for e in big.entries()]
    assert reported == [("/big", "big", True), ("/project", None, False)]


def test_an_unknown_profile_is_an_error(project: Path) -> None:
    write(project, "[profile:big:cli:run]\nscheduler = local_cwd\n")
    with pytest.raises(ConfigError) as error:
        load_config(profile="bigg")
    assert error.value.message == "unknown profile `bigg` (from --profile)"
    assert error.value.hint == "did you mean `big`?   profiles: big"


def test_sections_by_prefix(home: Path, project: Path) -> None:
    write(home, "[tracker:b]\nconfig = 1\n[tracker:a]\nconfig = home\n")
    write(project, "[tracker:a]\nconfig = project\n")
    config = load_config()
    assert config.sections("tracker") == ["a", "b"]
    assert config.section("tracker:a")["config"].value == "project"


def test_options_of_default_count_for_each_scheduler_of_file(home: Path, project: Path) -> None:
    write(home, "[DEFAULT]\nlog_dir = /home\n[local_docker]\nprivileged = true\n")
    write(project, "[DEFAULT]\nlog_dir = /all\nbase = x\n[local_cwd]\nprepend_cwd = true\n")
    config = load_config()
    with get_runner() as runner:
        options = scheduler_options(config, "local_cwd", runner.scheduler_run_opts("local_cwd"))
        assert {key: option.value for key, option in options.items()} == {
            "log_dir": "/all",
            "prepend_cwd": True,
        }
        assert options["log_dir"].origin == ".torchxconfig line 2 [DEFAULT]"
        # it has no such option, and none is meant
        options = scheduler_options(config, "local_docker", runner.scheduler_run_opts("local_docker"))
        assert set(options) == {"privileged"}
        assert not scheduler_options(config, "slurm", runner.scheduler_run_opts("slurm"))
    assert [(e.section, e.key) for e in config.entries() if e.section == "DEFAULT"] == [
        ("DEFAULT", "log_dir"),
        ("DEFAULT", "base"),
        ("DEFAULT", "log_dir"),
    ]
