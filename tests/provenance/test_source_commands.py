"""Tests of the commands that record, show and restore the source of an application."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from gits import commit, git, repository, tree
from memory_scheduler import MemoryScheduler
from program import answer, torchx

from torchx import settings
from torchx.jobs.paths import Home
from torchx.machine import locks
from torchx.provenance.store import INTERRUPTED, Store
from torchx.provenance.submission import look, small_facts
from torchx.runner import provenance
from torchx.runner.api import Runner, get_runner
from torchx.schedulers.docker.record import job_data, label_data
from torchx.specs.app import AppDef, Role
from torchx.specs.status import AppState
from torchx_cli.applications import find
from torchx_cli.rerun import restored
from torchx_cli.resubmission import from_record
from torchx_cli.run_request import RunRequest

SCRIPT = "from pathlib import Path; print(Path('../a.txt').read_text(), Path.cwd())\n"


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.TORCHX_PROVENANCE, "1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with changes; the working directory is a folder of it."""
    folder = repository(tmp_path / "r", **{".gitignore": "data\n"})
    (folder / "sub").mkdir()
    (folder / "sub" / "t.py").write_text(SCRIPT)
    commit(folder)
    (folder / "a.txt").write_text("as it was\n")
    (folder / "new").write_text("new\n")
    (folder / "data").mkdir()
    (folder / "data" / "x").write_text("x")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without packages
    (programs / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.chdir(folder / "sub")
    return folder


def home() -> Home:
    return Home(Path(os.environ[settings.TORCHX_HOME]))


def submit(*words: str) -> str:
    """Submits an application, waits until its source is recorded, and returns its id."""
    done = torchx(*(words or ("run", "-d", "utils.python", "--script", "t.py")))
    assert done.returncode == 0, done.stderr
    return recorded(done.stdout.split("\n")[0])


def recorded(handle: str) -> str:
    """Waits until the source of an application is recorded, and returns its id."""
    app_id = handle.strip().rpartition("/")[2]
    lock = Store(home().job(app_id).provenance).lock
    assert lock.exists()
    assert locks.wait_free(lock, 120)
    return app_id


def test_a_submission_records_its_source(folder: Path) -> None:
    app_id = submit()
    data = answer("describe", "--source", app_id, "-o", "json")
    source = data["source"]
    assert source["commit"] == git(folder, "rev-parse", "HEAD")
    assert [(file["path"], file["change"]) for file in source["files"]] == [
        ("a.txt", "modified"),
        ("new", "untracked"),
    ]
    assert (source["dirty"], source["complete"], source["ignored"]) == (True, True, ["data/"])
    assert data["directory"] == str(folder / "sub")
    assert data["live"] is True
    assert data["command_line"].endswith("run -d utils.python --script t.py")
    assert data["python"]["origin"] == "program"
    assert data["machine"]["host"]
    text = torchx("describe", "--source", app_id).stdout
    assert f"git {source['commit'][:12]} (main) + 2 changed files\n" in text
    assert "a.txt  10 B\n" in text
    described = answer("describe", app_id, "-o", "json")
    assert described["app"]["metadata"] == {}
    assert "source" not in described
    with Runner("torchx") as runner:
        handle = f"local_cwd://torchx/{app_id}"
        assert b"+as it was\n" in (runner.source_diff(handle) or b"")
        found = runner.provenance(handle)
        assert found is not None
        assert found.source is not None
        assert [runner.source_file(handle, file) for file in found.source.files] == [b"as it was\n", b"new\n"]


def test_rerun_as_it_was_runs_in_restored_source(folder: Path) -> None:
    app_id = submit()
    (folder / "a.txt").write_text("changed since\n")
    (folder / "sub" / "t.py").write_text("raise SystemExit('changed since')\n")
    commit(folder)
    before = tree(folder)
    done = torchx("rerun", "--as-it-was", app_id)
    assert done.returncode == 0, done.stderr
    assert "as it was" in done.stderr
    assert "note: data/ is not restored: git ignores it" in done.stderr
    assert tree(folder) == before
    again = recorded(done.stdout)
    (restored,) = [path for path in home().restored.iterdir() if path.is_dir()]
    assert str(restored / "sub") in done.stderr
    assert (restored / "new").read_text() == "new\n"
    data = answer("describe", "--source", again, "-o", "json")
    first = answer("describe", "--source", app_id, "-o", "json")
    assert data["source"] == first["source"]
    assert data["notes"][0] == f"it reuses the source of local_cwd://torchx/{app_id}"
    # also without the first one, since the record is complete in itself
    assert torchx("delete", "--force", app_id).returncode == 0
    third = torchx("rerun", "--as-it-was", again)
    assert "as it was" in third.stderr
    recorded(third.stdout)
    assert torchx("delete", "--force", again).returncode == 0
    assert not restored.exists()
    assert torchx("prune", "--yes", "--keep", "0").returncode == 0
    assert [*home().restored.iterdir()] == []


def test_without_a_submission_no_tree_is_left(folder: Path) -> None:
    app_id = submit()
    assert torchx("describe", "--source", "--watch", app_id).returncode == 2
    done = torchx("rerun", "--as-it-was", "--dryrun", app_id)
    assert done.returncode == 0, done.stderr
    assert [*home().restored.iterdir()] == []
    record = home().job(app_id).record
    data = json.loads(record.read_text())
    data["app"]["roles"][0]["entrypoint"] = "no-such-program"
    record.write_text(json.dumps(data))
    assert torchx("rerun", "--as-it-was", app_id).returncode == 2
    assert [*home().restored.iterdir()] == []


def test_prune_leaves_a_tree_that_is_being_submitted(folder: Path) -> None:
    app_id = submit()
    with get_runner() as runner:
        submission = from_record(*find(runner, app_id, full=True))
        with restored.source_of(submission, RunRequest(), runner):
            tree = Path.cwd().parent
            assert tree.parent == home().restored
            assert home().owner_of(tree.name).read_text() == ""
    assert [*home().restored.iterdir()] == []


def test_killed_submission_keeps_its_tree_beside_damaged_owner(folder: Path) -> None:
    app_id = submit()
    done = torchx("rerun", "--as-it-was", app_id)
    again = recorded(done.stdout)
    (tree,) = [path for path in home().restored.iterdir() if path.is_dir()]
    os.mkfifo(home().owner_of("0"))
    os.mkfifo(home().owner_of("z"))
    provenance.give(tree, "")  # as before the submission
    assert torchx("delete", "--force", app_id).returncode == 0
    assert tree.exists()
    provenance.give(tree, done.stdout.split("\n")[0])
    assert torchx("delete", "--force", again).returncode == 0
    assert not tree.exists()


@pytest.mark.parametrize("directory", ["", "{}/../outside", "{}2/outside"])
def test_a_damaged_record_creates_no_folder_elsewhere(directory: str, folder: Path) -> None:
    app_id = submit()
    store = Store(home().job(app_id).provenance)
    found = store.read()
    assert found is not None
    store.write(found._replace(directory=directory.format(folder)))
    done = torchx("rerun", "--as-it-was", app_id)
    assert done.returncode == 1
    assert "is not in the recorded source" in done.stderr
    assert [*home().restored.iterdir()] == []


def test_a_workspace_that_is_gone_is_restored(folder: Path) -> None:
    app_id = submit("run", "-d", "--workspace", "..", "utils.sh", "cat a.txt")
    copy = home().job(app_id).workspaces
    assert answer("describe", "--source", app_id, "-o", "json")["live"] is False
    (folder / "a.txt").write_text("changed since\n")
    kept = torchx("rerun", "--as-it-was", app_id)
    assert "as it was" in kept.stderr
    assert not home().restored.exists()  # the copy is the source
    copy.rename(copy.with_name("gone"))
    restored = torchx("rerun", "--as-it-was", app_id)
    assert "as it was" in restored.stderr
    assert [*home().restored.iterdir()] == []
    plain = torchx("rerun", app_id)
    assert "changed since" in plain.stderr
    for done in (kept, restored, plain):
        recorded(done.stdout)


def test_a_submission_does_not_wait_for_the_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that never answers; the application ends, and the record then says what is missing."""
    programs = folder.parent / "bin"
    os.mkfifo(programs / "pid")
    (programs / "git").write_text(f"#!/bin/sh\necho $PPID $$ > {programs}/pid\nexec sleep 600\n")
    (programs / "git").chmod(0o755)
    done = torchx("run", "utils.echo", "--msg", "hi")
    assert "hi" in done.stderr
    app_id = done.stdout.strip().rpartition("/")[2]
    recorder, waiting = map(int, (programs / "pid").read_text().split())
    data = answer("describe", "--source", app_id, "-o", "json")
    assert (data["recording"], data["recorded_at"]) == (True, None)
    assert len(data["source"]["commit"]) == 40
    assert "still being recorded" in torchx("rerun", "--as-it-was", app_id).stderr
    os.kill(recorder, signal.SIGKILL)
    os.kill(waiting, signal.SIGKILL)
    recorded(done.stdout)
    data = answer("describe", "--source", app_id, "-o", "json")
    assert data["recording"] is False
    assert data["notes"] == [INTERRUPTED]


def test_nothing_is_recorded_if_it_is_disabled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.TORCHX_PROVENANCE, "0")
    app_id = torchx("run", "utils.echo").stdout.strip().rpartition("/")[2]
    assert not home().job(app_id).provenance.exists()
    for words in (("describe", "--source"), ("rerun", "--as-it-was")):
        done = torchx(*words, app_id)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: the source of local_cwd://torchx/{app_id} is not recorded\n")


def test_without_a_repository_the_reason_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app_id = submit("run", "-d", "utils.echo")
    data = answer("describe", "--source", app_id, "-o", "json")
    assert data["source"] is None
    assert data["notes"] == ["the working directory is not in a git repository"]
    done = torchx("rerun", "--as-it-was", app_id)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: no source is recorded: the working directory is not in a git repository"
    )


# --- other engines ----------------------------------------------------------------------------------


def memory() -> tuple[Runner, MemoryScheduler]:
    engine = MemoryScheduler("s")
    return Runner("s", {"memory": lambda session, **params: engine}), engine


def app(**metadata: Any) -> AppDef:
    return AppDef("a", [Role("r", "image", entrypoint="x")], metadata)


def test_records_of_other_engines_are_in_state_home(folder: Path) -> None:
    runner, _ = memory()
    with runner:
        handle = runner.run(app(), "memory")
        store = Store(home().provenance / "memory" / handle.rpartition("/")[2])
        assert locks.wait_free(store.lock, 120)
        found = runner.provenance(handle)
        assert found is not None
        assert found.source is not None
        assert found.source.complete
        assert not found.live
        assert found.python is not None
        assert found.python.origin == "launcher"
        assert (store.folder.stat().st_mode & 0o777) == 0o700
        runner.delete(handle)
        assert not store.folder.exists()


def test_a_failed_record_is_a_note_and_no_error(folder: Path) -> None:
    home().path.mkdir(exist_ok=True)
    home().provenance.write_text("not a folder")
    runner, _ = memory()
    with runner:
        info = runner.dryrun(app(), "memory")
        runner._schedule_recorded(info)
        assert [note.partition(" at ")[0].partition(":")[0] for note in info.notes] == [
            "its source is not recorded"
        ]


def test_the_commit_and_the_branch_travel_with_the_application(folder: Path) -> None:
    facts = small_facts(look())
    name = git(folder, "rev-parse", "HEAD")
    assert facts == {settings.SOURCE: f"{name} main"}
    labels = label_data(job_data(app(**facts), {}, "s"))
    assert labels["app"]["metadata"] == facts
    runner, engine = memory()
    with runner:
        handle = runner.schedule(runner.dryrun(app(**facts), "memory"))
        found = runner.provenance(handle)
        assert found is not None
        assert found.source is not None
        assert (found.source.commit, found.source.branch) == (name, "main")
        assert found.notes == (provenance.ELSEWHERE,)
        other = runner.schedule(runner.dryrun(app(**{settings.SOURCE: "--option x"}), "memory"))
        assert runner.provenance(other) is None
        engine.jobs[handle.rpartition("/")[2]].end(AppState.SUCCEEDED)
