"""Workspaces of local jobs: a copy of its own for each, made at the submission, gone with the record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from program import answer, torchx
from support import wait_until

from torchx.errors import UsageError
from torchx.runner import get_runner
from torchx.specs import AppDef, Resource, Role, Workspace


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / "say.sh").write_text(
        "echo first; pwd; until [ -e go ]; do sleep 0.05; done; cat say.sh | head -c 10\n"
    )
    monkeypatch.chdir(tmp_path)
    return code


def test_an_edit_after_the_submission_does_not_reach_it(code: Path) -> None:
    words = ["run", "-s", "local_cwd", "-d", "--workspace", "code", "utils.sh", "sh", "say.sh"]
    handle = torchx(*words).stdout.strip()
    (code / "say.sh").write_text("echo second\n")
    wait_until(lambda: "first" in torchx("log", handle).stdout, "it has begun")
    status = answer("status", handle, "-o", "json")
    (folder,) = set(status["workspaces"].values())
    assert Path(folder).is_relative_to(os.environ["TORCHX_HOME"])
    assert folder in torchx("describe", handle).stdout.replace("~", os.environ.get("HOME", "~"))
    (Path(folder) / "go").write_text("")
    assert torchx("wait", handle).returncode == 0
    assert "echo first" in torchx("log", handle).stdout
    assert not (code / "go").exists()
    assert torchx("delete", handle).returncode == 0
    assert not Path(folder).exists()


def test_each_job_has_its_own(code: Path) -> None:
    (code / "count.sh").write_text("echo x >> seen; wc -l < seen\n")
    for _ in range(2):
        done = torchx("run", "-s", "local_cwd", "--workspace", "code", "utils.sh", "sh", "count.sh")
        assert done.stderr.splitlines()[-1].endswith(" 1")
    assert not (code / "seen").exists()


def test_dry_run_lists_copied_files_and_writes_nothing(code: Path) -> None:
    before = sorted(Path(os.environ["TORCHX_HOME"]).rglob("*"))
    done = torchx("run", "-s", "local_cwd", "--dryrun", "--workspace", "code", "utils.echo")
    assert done.returncode == 0
    assert "code" in done.stdout
    data = json.loads(torchx("run", "--dryrun", "--workspace", "code", "-o", "json", "utils.echo").stdout)
    assert "1" in str(data["request"]["workspaces"])
    assert sorted(Path(os.environ["TORCHX_HOME"]).rglob("*")) == before


def test_a_role_may_bring_its_own(code: Path) -> None:
    (code / "hi.sh").write_text("echo from the workspace\n")
    role = Role("w", "", entrypoint="sh", args=["hi.sh"], resource=Resource(1, 0, 64))
    role.workspace = Workspace({str(code): "deep"})
    role.args = ["deep/hi.sh"]
    app = AppDef("own", [role])
    with get_runner() as runner:
        handle = runner.run(app, "local_cwd")
        runner.wait(handle)
        assert list(runner.log_lines(handle, "w")) == ["from the workspace\n"]
    assert role.workspace == Workspace({str(code): "deep"}), "what was given is left as it is"


def test_the_image_lies_below_it(code: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.mkdir()
    (image / "run.sh").write_text("#!/bin/sh\ncat text\n")
    (image / "run.sh").chmod(0o755)
    (image / "text").write_text("of the image\n")
    (code / "text").write_text("of the workspace\n")
    role = Role("w", str(image), entrypoint="run.sh", resource=Resource(1, 0, 64))
    with get_runner() as runner:
        handle = runner.run(AppDef("both", [role]), "local_dir", workspace=str(code))
        runner.wait(handle)
        assert list(runner.log_lines(handle, "w")) == ["of the workspace\n"]
    assert (image / "text").read_text() == "of the image\n"


def test_a_failed_start_leaves_nothing(code: Path) -> None:
    role = Role("w", "", entrypoint="no-such-program", resource=Resource(1, 0, 64))
    with get_runner() as runner, pytest.raises(UsageError):
        runner.run(AppDef("bad", [role]), "local_cwd", workspace=str(code))
    assert not [p for p in Path(os.environ["TORCHX_HOME"]).rglob("*") if p.name == "say.sh"]


def test_workspace_that_is_only_configured_is_not_used_here(code: Path, tmp_path: Path) -> None:
    (tmp_path / ".torchxconfig").write_text("[cli:run]\nworkspace = code\n")
    done = torchx("run", "-s", "local_cwd", "utils.sh", "ls")
    assert "code" in done.stderr.splitlines()[-1] or "code" in done.stderr
    assert "is ignored without --workspace" in " ".join(done.stderr.split())
