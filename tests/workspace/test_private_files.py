"""Keys and passwords stay behind unless a line names them, and a run says what was left out."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from torchx.errors import StateError, UsageError
from torchx.schedulers.local.scheduler import create_dir_scheduler
from torchx.specs.app import AppDef, Role
from torchx.specs.workspace import Workspace
from torchx.workspace.copying import SMALL
from torchx.workspace.remote import Remote
from torchx.workspace.tree import Tree, scan

KEY = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nabc\n"
CERTIFICATES = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n" * 3

SECRETS = [
    "id_rsa", "id_ed25519", "keys/id_ecdsa", ".npmrc", ".pypirc", ".netrc", "_netrc", ".pgpass", "kubeconfig",
    "prod.kubeconfig", "credentials.json", ".env", ".env.prod", "store.p12", "a/b.pfx", "x.ppk",
]  # fmt: skip


def look(folder: Path | str) -> Tree:
    return scan(Workspace({str(folder): ""}))


def paths(tree: Tree) -> set[str]:
    return {entry.path for entry in tree.entries if entry.kind == "file"}


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    put(folder, **dict.fromkeys(SECRETS, "secret"))
    put(
        folder, **{"server.pem": KEY, "tls/server.key": KEY, "cacert.pem": CERTIFICATES, "talk.key": "slides"}
    )
    put(folder, **{"id_rsa.pub": "public", "train.py": "pass"})
    return folder


PUBLIC = {"cacert.pem", "talk.key", "id_rsa.pub", "train.py"}


def test_keys_and_passwords_stay_behind_and_certificates_come_along(project: Path) -> None:
    tree = look(project)
    assert paths(tree) == PUBLIC
    assert set(tree.left["private keys"]) == {
        "id_rsa", "id_ed25519", "keys/id_ecdsa", "store.p12", "a/b.pfx", "x.ppk", "server.pem",
        "tls/server.key",
    }  # fmt: skip


@pytest.mark.parametrize("file", [".dockerignore", ".torchxignore"])
@pytest.mark.parametrize("name", [*SECRETS, "server.pem", "tls/server.key"])
def test_a_line_that_names_one_brings_it_along(project: Path, file: str, name: str) -> None:
    (project / file).write_text(f"!{name}\n")
    assert paths(look(project)) == {*PUBLIC, file, name}


def test_a_line_that_means_any_name_brings_none_along(project: Path) -> None:
    (project / ".dockerignore").write_text("!**\n!*\n!tls\n!tls/**\n!*.*\n")
    assert paths(look(project)) == {*PUBLIC, ".dockerignore"}
    (project / ".dockerignore").write_text("!**/*.key\n!*.pem\nserver.pem\n")
    assert paths(look(project)) == {*PUBLIC, ".dockerignore", "tls/server.key"}


def test_an_address_is_read_in_the_same_way(project: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(project), "/of-a-test", recursive=True)
    try:
        tree = look("memory://of-a-test")
        assert paths(tree) == PUBLIC
        assert {"server.pem", "tls/server.key", "id_rsa"} <= set(tree.left["private keys"])
    finally:
        memory.rm("/of-a-test", recursive=True)


def test_one_line_says_what_was_left_out(tmp_path: Path) -> None:
    put(
        tmp_path,
        **{"a.py": "x" * 1000, "id_rsa": "", "x.log": "", "y.log": "", ".git/config": "", "b/c.tmp": ""},
    )
    put(tmp_path, **{".dockerignore": "*.log", ".torchxignore": "*.tmp\n.dockerignore\n.torchxignore"})
    assert look(tmp_path).notes == [
        f"workspace `{tmp_path}`: 1 file, 1.0 kB; left out: 2 by .dockerignore, 3 by .torchxignore, "
        "1 private key (id_rsa), 1 built in (.git/)"
    ]
    for name in ("id_rsa", "x.log", "y.log", ".git/config", "b/c.tmp", ".dockerignore", ".torchxignore"):
        (tmp_path / name).unlink()
    (tmp_path / ".git").rmdir()
    assert look(tmp_path).notes == []


def test_an_exception_that_does_not_reach_far_is_named(tmp_path: Path) -> None:
    put(tmp_path, **{"a.txt": "", "sub/b.txt": "", ".dockerignore": "*\n!**/*.txt"})
    tree = look(tmp_path)
    assert paths(tree) == {"a.txt"}
    assert any("`!**/*.txt` in .dockerignore does not apply in sub/" in note for note in tree.notes)
    assert any("!sub/*.txt" in note for note in tree.notes)
    (tmp_path / ".dockerignore").write_text("*\n!**/*.txt\n!sub/*.txt\n")
    assert paths(look(tmp_path)) == {"a.txt", "sub/b.txt"}


def test_the_loss_of_set_id_bits_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    put(folder, run="", group="", plain="")
    (folder / "run").chmod(0o4755)
    (folder / "group").chmod(0o2755)
    (folder / "sub").mkdir()
    (folder / "sub").chmod(0o2775)
    tree = look(folder)
    assert any("group and 1 more lose their set-user-id" in note for note in tree.notes)
    tree.write_to(tmp_path / "copy")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "copy").iterdir()}
    assert modes["run"] == modes["group"] == 0o755
    assert not modes["sub"] & stat.S_ISGID
    assert not any(entry.mode & 0o6000 for entry in tree.entries), "an archive of it holds none either"


def test_loss_of_set_id_bits_of_image_is_reported(tmp_path: Path) -> None:
    image, project = tmp_path / "image", tmp_path / "project"
    put(image, tool="#!/bin/sh\n")
    (image / "tool").chmod(0o4755)
    put(project, data="x")
    scheduler = create_dir_scheduler("torchx")
    app = AppDef("job", [Role("w", image=str(image), entrypoint="./tool")])
    info = scheduler.submit_dryrun(app, {}, str(project))
    lines: list[str] = []
    info.on_progress = lines.append
    assert scheduler.wait(scheduler.schedule(info), 60)
    assert any(line == f"image {image}: tool loses its set-user-id or set-group-id bit" for line in lines), (
        lines
    )


@pytest.mark.parametrize("size", [10, SMALL + 10])
def test_link_in_place_of_file_is_not_followed(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "project"
    put(folder, file="a" * size)
    put(tmp_path, secret="b" * size)
    tree = look(folder)
    (folder / "file").unlink()
    (folder / "file").symlink_to("../secret")
    with pytest.raises(StateError, match="`file` of workspace"):
        tree.write_to(tmp_path / "copy")
    with pytest.raises(StateError, match="`file` of workspace"):
        tree.read(tree.entries[0])
    copy = tmp_path / "copy" / "file"
    assert not copy.exists() or "b" not in copy.read_text()


@pytest.mark.parametrize("name", [".dockerignore", ".torchxignore", "key.pem"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    if name == "key.pem":
        assert any("key.pem is neither a file nor a folder" in note for note in look(tmp_path).notes)
    else:
        with pytest.raises(StateError, match="not a regular file"):
            look(tmp_path)


def test_an_ignore_file_of_any_size_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, **{".dockerignore": "a\n" * 600_000})
    with pytest.raises(UsageError, match="more than the maximum of 1,048,576"):
        look(tmp_path)


@pytest.mark.parametrize("path", ["../evil", "a/../../evil", ".."])
def test_a_remote_listing_cannot_name_places_outside(path: str) -> None:
    """A server may answer with any names."""
    remote = Remote.__new__(Remote)
    remote.__init__("memory://of-a-test", "memory://of-a-test")  # type: ignore[misc]

    def find(root: str, **options: Any) -> dict[str, dict[str, Any]]:
        return {f"{root}/{path}": {"type": "file", "size": 1}, f"{root}/a": {"type": "file", "size": 1}}

    remote._fs = SimpleNamespace(find=find, cat_file=lambda path: b"")
    with pytest.raises(UsageError, match="is outside of it"):
        list(remote.entries())


def test_copies_are_private_whatever_the_umask(tmp_path: Path) -> None:
    put(tmp_path / "project", **{"sub/file": "x"})
    old = os.umask(0)
    try:
        look(tmp_path / "project").write_to(tmp_path / "home" / "jobs" / "copy")
    finally:
        os.umask(old)
    for folder in ("home", "home/jobs", "home/jobs/copy"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700, folder
