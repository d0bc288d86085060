"""Git repositories of tests: made with git itself, recorded in this process, and compared byte by byte."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from pathlib import Path

from torchx.provenance.git import Deadline
from torchx.provenance.launch import source_of
from torchx.provenance.model import Provenance
from torchx.provenance.restore import restore
from torchx.provenance.source import Reader
from torchx.provenance.store import Store
from torchx.provenance.submission import look

ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(folder: Path, *arguments: str | bytes, check: bool = True) -> str:
    """Runs git in a folder and returns its output."""
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        check=False,
        text=True,
        errors="surrogateescape",
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def repository(folder: Path, **contents: str) -> Path:
    """A repository with one commit of some files."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    for name, text in {"a.txt": "a\n", **contents}.items():
        (folder / name).write_text(text)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    """Commits all files."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x", "--allow-empty")


def record(folder: Path, store: Store, home: str = "/nonexistent") -> Provenance:
    """Records the source of a folder, as the process after a submission does."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        submission = look()
    finally:
        os.chdir(before)
    begun = source_of(submission)
    assert begun is not None
    store.folder.mkdir(exist_ok=True)
    reader = Reader(store, Deadline(300), home, submission.at)
    source = reader.read(begun)
    provenance = Provenance(submission.at, source=source, recorded_at=time.time())
    store.write(provenance)
    assert store.read() == provenance
    return provenance


def tree(folder: Path, *left_out: str) -> dict[str, tuple[str, bytes]]:
    """All files of a folder, with kind, executable bit and content; without repositories."""
    found = {}
    for at, folders, names in os.walk(os.fsencode(folder)):
        folders[:] = [name for name in folders if name != b".git"]
        for name in [*names, *(n for n in folders if os.path.islink(os.path.join(at, n)))]:
            path = os.path.join(at, name)
            shown = os.fsdecode(os.path.relpath(path, os.fsencode(folder)))
            status = os.lstat(path)
            if name == b".git" or shown in left_out:
                continue
            if stat.S_ISLNK(status.st_mode):
                found[shown] = ("link", os.readlink(path))
            else:
                with open(path, "rb") as opened:
                    found[shown] = ("x" if status.st_mode & 0o100 else "-", opened.read())
    return found


def again(folder: Path, place: Path) -> tuple[Path, list[str], Provenance]:
    """Records a folder and restores it; returns the new folder, the notes and the record."""
    store = Store(place / "provenance")
    provenance = record(folder, store)
    target = place / "restored"
    return target, restore(provenance, store, target), provenance
