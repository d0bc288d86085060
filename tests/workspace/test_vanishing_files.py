"""A file or folder that is removed while a workspace is read is left out with a note; the rest is taken."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import torchx

from torchx.errors import StateError
from torchx.schedulers import create_scheduler
from torchx.specs import AppDef, Role, Workspace
from torchx.workspace.tree import Tree, scan

NOTE = "was removed while the workspace was read: left out"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (root / name).write_text(name * 100_000)  # large files are copied by the kernel
    return root


def without_b(folder: Path) -> Tree:
    tree = scan(Workspace({str(folder): ""}))
    (folder / "b").unlink()
    return tree


def packed(tree: Tree) -> list[str]:
    out = io.BytesIO()
    tree.write_tar(out)
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        return sorted(archive.getnames())


def copied(tree: Tree, folder: Path) -> list[str]:
    tree.write_to(folder / "copy")
    return sorted(str(path.relative_to(folder / "copy")) for path in (folder / "copy").rglob("*"))


@pytest.mark.parametrize("reads", ["tar", "copy", "digest"])
def test_a_removed_file_is_left_out(reads: str, folder: Path, tmp_path: Path) -> None:
    tree = without_b(folder)
    if reads == "digest":
        assert tree.digest == scan(Workspace({str(folder): ""})).digest
        assert packed(tree) == ["a", "sub", "sub/c"]
    else:
        found = packed(tree) if reads == "tar" else copied(tree, tmp_path)
        assert found == ["a", "sub", "sub/c"]
    assert [line for line in tree.notes if NOTE in line] == tree.vanished
    assert f": b {NOTE}" in tree.vanished[0]


def test_files_and_folders_may_vanish_during_the_scan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    class Gone:
        """A list of a folder; after it, the folder `sub` and the file `b` are removed."""

        def __enter__(self) -> list[os.DirEntry[str]]:
            with listed(folder) as entries:
                found = list(entries)
            (folder / "sub/c").unlink()
            (folder / "sub").rmdir()
            (folder / "b").unlink()
            return found

        def __exit__(self, *exception: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda path: Gone() if path == str(folder) else listed(path))
    tree = scan(Workspace({str(folder): ""}))
    assert [entry.path for entry in tree.entries] == ["a"]
    assert sorted(line.partition(": ")[2] for line in tree.notes) == [f"b {NOTE}", f"sub {NOTE}"]


@pytest.fixture
def churn(folder: Path) -> Iterator[None]:
    """Writes and removes files in the workspace all the time."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            for name in (f"t{number}", f"sub/t{number}"):
                (folder / name).write_text("x")
            for name in (f"t{number - 20}", f"sub/t{number - 20}"):
                (folder / name).unlink(missing_ok=True)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_a_local_job_starts_from_a_folder_that_changes(folder: Path, churn: None) -> None:
    for _ in range(5):
        program = ["utils.sh", "test", "-e", "a", "-a", "-e", "sub/c"]
        done = torchx("run", "-s", "local_cwd", "--workspace", str(folder), *program)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("scheduler", ["local_docker", "slurm", "kubernetes"])
def test_requests_are_made_from_a_folder_that_changes(scheduler: str, folder: Path, churn: None) -> None:
    engine = create_scheduler(scheduler, "s")
    cfg = {"kubernetes": {"namespace": "default"}}.get(scheduler, {})
    for _ in range(10):
        role = Role("r", "img", entrypoint="true", workspace=Workspace({str(folder): ""}))
        engine.submit_dryrun(AppDef("a", [role]), cfg)


def test_a_file_of_the_digest_must_not_vanish(folder: Path) -> None:
    tree = scan(Workspace({str(folder): ""}))
    _ = tree.digest
    (folder / "b").unlink()
    with pytest.raises(StateError, match=r"`b` of workspace .* changed while it was read"):
        packed(tree)


def test_a_small_file_stays_as_its_digest(folder: Path) -> None:
    (folder / "small").write_text("before")
    tree = scan(Workspace({str(folder): ""}))
    _ = tree.digest
    (folder / "small").unlink()
    assert packed(tree) == ["a", "b", "small", "sub", "sub/c"]
    entry = tree.find("small")
    assert entry is not None
    assert tree.read(entry) == b"before"
