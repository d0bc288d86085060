"""Tests of the recorded source: no secret is in it, and no setting of a repository runs a program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gits import again, commit, git, record, repository, tree

from torchx.errors import StateError
from torchx.provenance.restore import restore
from torchx.provenance.source import remote_of
from torchx.provenance.store import Store
from torchx.provenance.submission import look

CANARY = "hunter2-canary-hunter2"


def kept(store: Store) -> bytes:
    """All bytes of a record, uncompressed."""
    found = store.read()
    assert found is not None
    assert found.source is not None
    contents = [store.content(file) for file in found.source.files if file.digest and not file.omitted]
    return b"\n".join([store.record.read_bytes(), store.diff() or b"", *contents])


def test_no_secret_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(
        tmp_path / "r",
        **{
            ".gitignore": "ignored*\n",
            ".torchxignore": "by_rule\n",
            "gone": "public\n",
            "tracked.key": "x\n",
        },
    )
    (folder / "old").mkdir()
    (folder / "old" / ".env").write_text(CANARY)
    commit(folder)
    git(folder, "remote", "add", "origin", f"https://me:{CANARY}@host/r.git?token={CANARY}")
    key = f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"
    for name in (
        ".env",
        ".env.local",
        "ignored",
        "by_rule",
        "id_rsa",
        ".netrc",
        "venv/pyvenv.cfg",
        "venv/secret",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(CANARY)
    (folder / "server.pem").write_text(key)
    (folder / "tracked.key").write_text(key)
    (folder / "gone").write_text(CANARY)  # untracked from now on, and ignored
    (folder / ".gitignore").write_text("ignored*\ngone\n")
    git(folder, "rm", "-q", "--cached", "gone")
    git(folder, "rm", "-q", "old/.env")
    monkeypatch.setenv("HF_TOKEN", CANARY)
    store = Store(tmp_path / "p")
    source = record(folder, store).source
    assert source is not None
    assert CANARY.encode() not in kept(store)
    assert source.remote == "https://host/r.git"
    assert {file.path for file in source.files if file.omitted} >= {
        ".env", ".env.local", "by_rule", "id_rsa", ".netrc", "server.pem", "tracked.key", "venv/secret",
    }  # fmt: skip
    assert {path.stat().st_mode & 0o777 for path in store.folder.rglob("*") if path.is_file()} == {0o600}


@pytest.mark.parametrize(
    ("facts", "branch", "expected"),
    [
        ({"remote.origin.url": "ssh://git:pw@host/r"}, "", "ssh://host/r"),
        ({"remote.o.x.url": "/folder"}, "", "/folder"),
        ({"remote.origin.url": "a", "remote.up.url": "b", "branch.x.remote": "up"}, "x", "b"),
        ({"remote.origin.url": "https://[bad/r"}, "", "https://[bad/r"),
        ({"remote.origin.url": f"ext::https://{CANARY}@host/r?x={CANARY}"}, "", "ext::https://host/r"),
        ({"remote.origin.url": f"https://me:a#{CANARY}@host/r"}, "", "https://host/r"),
        ({}, "", ""),
    ],
)
def test_remotes_lose_credentials(facts: dict[str, str], branch: str, expected: str) -> None:
    assert remote_of(facts, branch) == expected


@pytest.mark.parametrize("folder", ["a\0b", "/dev/null", "/nowhere"])
def test_a_damaged_repository_prevents_no_submission(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = repository(tmp_path / "r")
    (top / ".git" / "commondir").write_text(folder)
    monkeypatch.chdir(top)
    assert not look().head.commit


def test_the_settings_of_a_repository_run_no_program(tmp_path: Path) -> None:
    """Each setting names a program that would leave a file; plain git runs most of them."""
    folder = repository(tmp_path / "r", x="x\n")
    (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (folder / "changed").write_text("x\n")
    commit(folder)
    trace = tmp_path / "trace"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $* >> {trace}\ncat\n")
    program.chmod(0o755)
    hooks = folder / ".git" / "hooks"
    for hook in ("post-checkout", "post-index-change", "fsmonitor-watchman", "pre-commit"):
        (hooks / hook).write_text(program.read_text())
        (hooks / hook).chmod(0o755)
    for name in (
        "core.fsmonitor", "diff.external", "diff.evil.textconv", "diff.evil.command", "filter.evil.clean",
        "filter.evil.smudge", "filter.evil.process", "core.pager", "core.editor", "core.sshCommand",
        "credential.helper", "gpg.program", "alias.diff-index", "alias.ls-files",
    ):  # fmt: skip
        git(folder, "config", name, str(program))
    git(folder, "config", "core.hooksPath", str(hooks))
    git(folder, "config", "extensions.partialClone", "origin")
    git(folder, "config", "remote.origin.url", f"ext::{program} %S")
    git(folder, "config", "remote.origin.promisor", "true")
    git(folder, "config", "protocol.allow", "always")
    for path in ("changed", "x", "new"):
        (folder / path).write_text("y\n")
    trace.unlink(missing_ok=True)
    store = Store(tmp_path / "provenance")
    provenance = record(folder, store)
    restore(provenance, store, tmp_path / "restored")
    missing = provenance.source._replace(commit="1" * 40) if provenance.source is not None else None
    with pytest.raises(StateError):
        restore(provenance._replace(source=missing), store, tmp_path / "other")
    assert not trace.exists(), trace.read_text()
    assert tree(tmp_path / "restored") == tree(folder)
    git(folder, "diff", check=False)
    assert trace.exists()  # the test would notice


def test_repository_in_unsafe_place_is_read_as_data(tmp_path: Path) -> None:
    """As those of other users, which git rejects by itself: settings such as `core.bare` do not matter."""
    folder = repository(tmp_path / "r")
    git(folder, "config", "core.bare", "true")
    restored, _, provenance = again(folder, tmp_path)
    assert tree(restored) == tree(folder)
    assert provenance.source is not None
    assert provenance.source.complete


def test_nothing_in_the_repository_changes(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    (folder / "a.txt").write_text("b\n")
    os.utime(folder / ".git/index", (1, 1))

    def state() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in (folder / ".git").rglob("*")
        }

    before = state()
    again(folder, tmp_path)
    assert state() == before


def test_the_state_home_is_not_part_of_the_source(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    home = folder / "homes" / ".torchx"
    (home / "jobs").mkdir(parents=True)
    (home / "jobs" / "job.json").write_text("{}")
    (folder / "homes" / ".torchx.py").write_text("own")
    source = record(folder, Store(home / "jobs" / "p"), home=str(home)).source
    assert source is not None
    assert [file.path for file in source.files] == ["homes/.torchx.py"]
