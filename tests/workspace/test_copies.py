"""Copies: unusual files, and errors of those that cannot be copied."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from program import torchx

from torchx.errors import StateError, TorchxError, UsageError
from torchx.jobs.removal import remove
from torchx.specs.workspace import Workspace
from torchx.workspace.tree import Tree, scan, scan_unfiltered


def look(*folders: Path | str) -> Tree:
    return scan(Workspace({str(folder): "" for folder in folders}))


@pytest.fixture
def src(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    return folder


def test_links_stay_links_and_mean_same_in_copy(src: Path, tmp_path: Path) -> None:
    (src / "deep").mkdir()
    (src / "deep" / "file").write_text("here")
    (src / "deep" / "absolute").symlink_to(src / "deep" / "file")
    (src / "folder").symlink_to(src / "deep", target_is_directory=True)
    (src / "circle").symlink_to("circle")
    (src / "nowhere").symlink_to("gone")
    (src / "up").symlink_to("../elsewhere")
    tree = look(src)
    assert [note for note in tree.notes if "up links to " in note] == tree.notes
    copy = tmp_path / "copy"
    tree.write_to(copy)
    shutil.rmtree(src)
    assert (copy / "deep" / "absolute").read_text() == (copy / "folder" / "file").read_text() == "here"
    assert {p.name: os.readlink(p) for p in copy.iterdir() if p.is_symlink()} == {
        "folder": "deep", "circle": "circle", "nowhere": "gone", "up": "../elsewhere",
    }  # fmt: skip


def test_names_of_any_bytes_and_permissions_are_kept(src: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"latin-\xe9\nline")
    (src / odd).write_text("odd")
    (src / ("long" * 60)).write_text("long")
    (src / "script").write_text("#!/bin/sh\n")
    (src / "script").chmod(0o750)
    (src / "locked").mkdir()
    (src / "locked" / "f").write_text("x")
    (src / "locked").chmod(0o555)
    tree = look(src)
    tree.write_to(tmp_path / "copy")
    assert (tmp_path / "copy" / odd).read_text() == "odd"
    assert (tmp_path / "copy" / "script").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "copy" / "locked").stat().st_mode & 0o777 == 0o555
    packed = io.BytesIO()
    tree.write_tar(packed)
    packed.seek(0)
    with tarfile.open(fileobj=packed, encoding="utf-8", errors="surrogateescape") as tar:
        assert sorted(tar.getnames()) == sorted(entry.path for entry in tree.entries)
    (src / "locked").chmod(0o755)


def test_read_only_files_are_removed_too(tmp_path: Path) -> None:
    """As a user for whom permissions count: for root they do not."""
    nested = tmp_path / "a" / "b"
    nested.mkdir(parents=True)
    (nested / "f").write_text("x")
    nested.chmod(0o500)
    nested.parent.chmod(0o500)
    user = None if os.geteuid() else 65534
    if user is not None:
        for place in (tmp_path, tmp_path / "a", nested, nested / "f"):
            os.chown(place, user, user)
        code = (
            f"import os, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
            "from pathlib import Path; from torchx.jobs.removal import remove\n"
            f"os.chdir({str(tmp_path)!r}); os.setuid({user}); remove(Path('a'))"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
    else:
        remove(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_replaced_or_shrunken_file_is_reported(src: Path, tmp_path: Path) -> None:
    (src / "log").write_text("one\n")
    grown, shrunk = look(src), look(src)
    with (src / "log").open("a") as log:
        log.write("two\n")
    grown.write_to(tmp_path / "copy")
    assert (tmp_path / "copy" / "log").read_text() == "one\n"
    (src / "log").write_text("1")
    with pytest.raises(StateError, match=r"`log` of workspace .* changed while it was read"):
        shrunk.write_to(tmp_path / "other")


def test_large_files_are_copied_whole_as_separate_files(src: Path, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 3 + b"end"
    (src / "large").write_bytes(data)
    look(src).write_to(tmp_path / "copy")
    (src / "large").write_bytes(b"changed")
    assert (tmp_path / "copy" / "large").read_bytes() == data


def test_projects_that_do_not_fit_together_are_refused(src: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "x").mkdir(parents=True)
    (other / "x" / "passwd").write_text("x")
    (src / "x").symlink_to("/etc")
    assert [entry.kind for entry in look(src, other).entries] == ["dir", "file"], "the later one wins"
    with pytest.raises(UsageError, match=r"`x` is a link in workspace .*, but a folder in "):
        look(other, src)


def test_copy_over_folder_never_goes_through_its_links(src: Path, tmp_path: Path) -> None:
    outside, image = tmp_path / "outside", tmp_path / "image"
    outside.mkdir()
    (src / "x").mkdir()
    (src / "x" / "f").write_text("mine")
    (src / "y").write_text("mine")
    image.mkdir()
    (image / "x").symlink_to(outside, target_is_directory=True)
    (image / "y").mkdir()
    (image / "y" / "gone").touch()
    (image / "kept").touch()
    (image / ".git").mkdir()
    place = tmp_path / "copy"
    scan_unfiltered(str(image)).write_to(place)
    look(src).write_to(place, into_existing=True)
    assert not list(outside.iterdir())
    assert (place / "x" / "f").read_text() == (place / "y").read_text() == "mine"
    assert sorted(p.name for p in place.iterdir()) == [".git", "kept", "x", "y"]


def test_the_state_home_is_never_copied_into_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state" / "jobs").mkdir(parents=True)
    (tmp_path / "a.py").touch()
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "state"))
    assert [entry.path for entry in look(tmp_path).entries] == ["a.py"]


def test_an_archive_is_a_folder_like_any_other(src: Path, tmp_path: Path) -> None:
    (src / "pkg").mkdir()
    (src / "pkg" / "run.sh").write_text("run")
    (src / "pkg" / "run.sh").chmod(0o755)
    archive = tmp_path / "src.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(src / "pkg" / "run.sh", "pkg/run.sh")
    for address in (f"zip::{archive}", f"zip://::{archive}", f"zip::file://{archive}"):
        assert look(address).digest == look(src).digest == look(f"file://{src}").digest
    assert [entry.path for entry in look(f"zip://pkg::{archive}").entries] == ["run.sh"]


def test_a_mapping_on_the_command_line(src: Path, tmp_path: Path) -> None:
    (src / "a").write_text("1")
    (tmp_path / "one file").write_text("2")
    words = json.dumps({str(src): "lib/src", str(tmp_path / "one file"): ""})
    done = torchx("run", "--workspace", words, "utils.sh", "cat lib/src/a 'one file'")
    assert (done.returncode, done.stderr) == (0, "sh/0 │ 12\n")


def test_passwords_in_addresses_are_not_printed(src: Path) -> None:
    for words in (["ftp://me:hunter22@127.0.0.1:1/x"], ["memori://me:hunter22@x/y"]):
        done = torchx("run", "--workspace", *words, "utils.echo")
        assert done.returncode in (1, 2)
        assert "hunter22" not in done.stderr
    with pytest.raises(TorchxError) as caught:
        look("ftp://me:hunter22@127.0.0.1:1/x")
    assert "me:***@" in caught.value.message
