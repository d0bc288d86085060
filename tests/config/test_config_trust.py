"""Files that another user may have written are not used, unless they were approved; and `config show`."""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from project.sources import ROOT

from torchx.config import ConfigError, find_files, load_config
from torchx.config.ini import LARGEST
from torchx.config.trust import TRUSTED, approve
from torchx_cli.main import main

TEXT = "[cli:run]\ncomponent = utils.echo\nscheduler = local_cwd\n"
OTHER = 12345


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def file(project: Path) -> Path:
    path = project / ".torchxconfig"
    path.write_text(TEXT)
    path.chmod(0o644)
    return path


def reason() -> str:
    found = find_files()
    assert len(found.paths) + len(found.passed_over) == 1
    return "".join(found.reasons)


def test_ones_own_file_is_used(file: Path) -> None:
    assert find_files().paths == (file,)


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_one_that_the_world_may_write_is_passed_over(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert reason() == "every user may write it"
    file.chmod(0o644)
    file.parent.chmod(0o757)
    assert reason() == f"every user may write its folder {file.parent}"
    file.parent.chmod(0o1757)  # no other user can change the file there
    assert reason() == ""


def test_one_that_a_group_may_write_is_passed_over(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name
    own = SimpleNamespace(gr_name=user, gr_mem=[])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: own)
    file.chmod(0o664)
    file.parent.chmod(0o775)
    assert reason() == "", "with umask 002 and a group of each user's own, this is every file"
    own.gr_mem = [user]
    assert reason() == ""
    own.gr_mem = [user, "another"]
    assert reason() == "a group may write it"
    own.gr_mem, own.gr_name = [], "team"
    assert reason() == "a group may write it"
    file.chmod(0o644)
    assert reason() == f"a group may write its folder {file.parent}"
    own.gr_name = user
    monkeypatch.setattr(os, "getegid", lambda: OTHER)
    assert reason() == f"a group may write its folder {file.parent}"


def _given_away(*paths: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    for path in paths:
        os.chown(path, OTHER, OTHER)


def test_one_of_another_user_is_passed_over(file: Path) -> None:
    _given_away(file)
    assert reason() == "it belongs to another user"


def test_one_in_folder_of_another_user_is_passed_over(file: Path) -> None:
    _given_away(file.parent)
    assert reason() == f"its folder {file.parent} belongs to another user"
    file.parent.chmod(0o1777)
    assert reason() == f"its folder {file.parent} belongs to another user"


def test_a_link_is_judged_at_both_ends(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    real = elsewhere / "config"
    real.write_text(TEXT)
    (project / ".torchxconfig").symlink_to(real)
    assert reason() == ""
    real.chmod(0o666)
    assert reason() == "every user may write it"
    real.chmod(0o644)
    elsewhere.chmod(0o777)
    assert reason() == f"every user may write its folder {elsewhere}"
    elsewhere.chmod(0o755)
    project.chmod(0o777)
    assert reason() == f"every user may write its folder {project}"
    project.chmod(0o755)
    real.unlink()
    assert reason().startswith("it cannot be examined")


def test_one_in_home_folder_is_judged_as_well(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "another"
    home.mkdir(mode=0o755)
    (home / ".torchxconfig").write_text(TEXT)
    monkeypatch.setenv("HOME", str(home))
    assert reason() == ""
    _given_away(home)
    assert reason() == f"its folder {home} belongs to another user"


def test_the_next_one_upward_counts_instead(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = file.parent / "below"
    below.mkdir(mode=0o755)
    monkeypatch.chdir(below)
    (below / ".torchxconfig").write_text("[cli:run]\ncomponent = evil\n")
    below.chmod(0o777)
    found = find_files()
    assert (found.paths, found.passed_over) == ((file,), (below / ".torchxconfig",))


def test_naming_a_file_is_trusting_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o666)
    assert find_files([file.parent]).paths == (file,)
    monkeypatch.setenv("TORCHXCONFIG", str(file))
    assert find_files().paths == (file,)


def test_run_names_the_ignored_file_and_the_remedy(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.chmod(0o666)
    assert main(["run", "--dryrun", "-s", "local_cwd", "utils.echo"]) == 0
    lines = capsys.readouterr().err.splitlines()
    how = "to use it: torchx config trust .torchxconfig"
    line = f"note: .torchxconfig is not used: every user may write it; {how}"
    assert lines.count(line) == 1
    assert main(["run", "--dryrun"]) == 2
    assert main(["config", "trust"]) == 0
    capsys.readouterr()
    assert main(["run", "--dryrun"]) == 0
    assert "is not used" not in capsys.readouterr().err


def test_what_was_approved_is_used_until_it_changes(file: Path, tmp_path: Path) -> None:
    file.chmod(0o666)
    assert approve(file) == file
    assert load_config().get("cli:run", "component")
    for other in ("b", "c"):
        (tmp_path / other).write_text(TEXT)
        approve(tmp_path / other)
    assert find_files().paths == (file,)
    file.write_text(TEXT.replace("utils.echo", "evil.component"))
    assert reason() == "every user may write it"
    approve(file)
    assert load_config().section("cli:run")["component"].value == "evil.component"
    kept = Path(os.environ["TORCHX_HOME"], TRUSTED)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert len(kept.read_text().splitlines()) == 3


def test_what_is_read_is_what_was_approved(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o666)
    approve(file)
    found = find_files()
    file.write_text("[cli:run]\ncomponent = evil\n")  # between the look and the reading
    monkeypatch.setattr("torchx.config.model.find_files", lambda dirs: found)
    assert load_config().section("cli:run")["component"].value == "utils.echo"


def test_approvals_writable_by_another_user_do_not_count(file: Path) -> None:
    file.chmod(0o666)
    approve(file)
    kept = Path(os.environ["TORCHX_HOME"], TRUSTED)
    kept.chmod(0o666)
    assert reason() == "every user may write it"
    kept.chmod(0o600)
    moved = kept.with_name("moved")
    kept.rename(moved)
    kept.symlink_to(moved)
    assert reason() == "every user may write it"


def test_what_cannot_be_approved_is_one_sentence(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        approve(project / "nothing")
    os.mkfifo(project / ".torchxconfig")
    assert main(["config", "trust", str(project)]) == 2
    assert "not a regular file" in capsys.readouterr().err


# --- config show --------------------------------------------------------------------------------------

BAD = {
    "binary": os.urandom(3000) + b"\xff",
    "zeros": bytes(3000),
    "large": b"[a]\n" * LARGEST,
    "no section": b"a = b\n",
    "unclosed": b"[cli:run\n",
    "sections": b"".join(b"[component:s%d]\n" % n for n in range(600)),
    "references": b"[component:a]\nk0 = x\n"
    + b"".join(b"k%d = %s\n" % (n, b"%%(k%d)s" % (n - 1) * 10) for n in range(1, 15)),
    "empty references": b"[component:a]\nk0 =\n"
    + b"".join(b"k%d = %s\n" % (n, b"%%(k%d)s" % (n - 1) * 10) for n in range(39, 0, -1)),
    "a circle": b"[component:a]\na = %(b)s\nb = %(a)s\n",
    "a section": b"[local_cwdd]\na = b\n",
    "an option": b"[local_cwd]\nlog_dri = x\n",
    "a value": b"[local_cwd]\ngrace_period = long\n",
    "a key": b"[cli:run]\ncomponnent = a\n",
    "a profile": b"[profile:x]\na = b\n",
}


@pytest.mark.parametrize("name", BAD)
def test_config_show_lists_what_is_wrong(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / ".torchxconfig").write_text("[local_cwd]\nlog_dir = /from-home\n")
    file.write_bytes(BAD[name])
    assert main(["config", "show"]) == 0
    output = capsys.readouterr()
    assert output.err.startswith("error: .torchxconfig")
    assert "bug in torchx" not in output.err
    assert "/from-home" in output.out, "what is right is shown"
    assert main(["config", "show", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["problems"][0]["message"].startswith(".torchxconfig")
    assert [row for row in data["values"] if row["value"] == "/from-home"]


def test_config_show_lists_all_that_is_wrong(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        "[nonsense]\na = b\n[local_cwd]\ngrace_period = x\nlog_dri = y\nlog_dir = /z\n[cli:rnu]\n"
    )
    assert main(["config", "show"]) == 0
    output = capsys.readouterr()
    assert output.err.count("error: .torchxconfig line") == 3
    assert (
        output.err.count("note: the configuration has sections of plugins that are not installed: nonsense")
        == 1
    )
    assert "/z" in output.out


def test_config_show_waits_for_no_pipe(project: Path) -> None:
    os.mkfifo(project / ".torchxconfig")
    done = subprocess.run(
        [sys.executable, "-m", "torchx_cli", "config", "show"],
        capture_output=True, text=True, timeout=60, cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0
    assert ".torchxconfig is not used: it is not a regular file\n" in done.stderr


def test_config_show_names_a_file_that_is_missing(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHXCONFIG", "gone.ini")
    assert main(["config", "show"]) == 0
    assert capsys.readouterr().err.startswith("error: no configuration file at gone.ini")


def test_config_show_prints_no_control_characters(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[component:a\x1b[2J]\nk\u202e = \x1b]0;x\x07 \u009b1m\n two lines\n", encoding="utf-8")
    assert main(["config", "show"]) in (0, 2)
    output = capsys.readouterr()
    for line in (output.out + output.err).splitlines():
        assert line.isprintable(), line
