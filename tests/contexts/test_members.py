"""Members of archives: they arrive exactly, only within the target, and an interrupted copy continues."""

from __future__ import annotations

import io
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from torchx.errors import StateError, TorchxError, UsageError
from torchx_cli.contexts import members
from torchx_cli.contexts.members import Archive, Log, Member


def copy(source: Path, target: Path, *, by_archive: bool = True) -> Log:
    """Copies a file or folder, through an archive or directly."""
    log = Log()
    if not by_archive:
        members.receive(members.walk(source, log), target, log)
        return log
    archive = io.BytesIO()
    members.write(members.walk(source, log), archive, Log())
    archive.seek(0)
    members.receive(Archive(archive), target, log)
    return log


def entries(folder: Path) -> dict[str, object]:
    """Returns all entries of a folder, with their content, modes and links."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name, status = str(path.relative_to(folder)), path.lstat()
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_dir():
            found[name] = status.st_mode
        else:
            found[name] = (status.st_mode, round(status.st_mtime, 3), path.read_bytes())
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with all kinds of names, sizes and modes."""
    folder = tmp_path / "tree"
    (folder / "a b/deep").mkdir(parents=True)
    (folder / "empty").mkdir(mode=0o750)
    rng = random.Random(0)
    for number, size in enumerate((0, 1, 511, 512, 513, 70_000, 3 << 20)):
        path = folder / "a b" / f"{number}\n'\"\\é"
        path.write_bytes(rng.randbytes(size))
        path.chmod(0o600 | number)
        os.utime(path, (number, 1_700_000_000.25 + number))
    Path(os.fsdecode(os.fsencode(folder) + b"/not-utf8-\xff")).write_text("x")
    (folder / "a b/deep" / ("n" * 200)).write_text("long")
    (folder / "link").symlink_to("a b/deep")
    (folder / "a b/up").symlink_to("../empty")
    (folder / "read-only").mkdir()
    (folder / "read-only/file").write_text("ro")
    (folder / "read-only").chmod(0o555)
    return folder


@pytest.mark.parametrize("by_archive", [True, False])
def test_a_copy_is_exact(tree: Path, tmp_path: Path, by_archive: bool) -> None:
    log = copy(tree, tmp_path / "copy", by_archive=by_archive)
    assert entries(tmp_path / "copy") == entries(tree)
    assert (log.files, log.notes) == (10, [])
    copy(tree, tmp_path / "copy", by_archive=by_archive)
    assert entries(tmp_path / "copy") == entries(tree)


def test_one_file_is_copied(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "new").symlink_to(tree / "not-there")
    copy(tree / "read-only/file", tmp_path / "new")
    assert (tmp_path / "new").read_text() == "ro"
    assert not (tmp_path / "new").is_symlink()
    with pytest.raises(UsageError, match="is a folder"):
        copy(tree / "read-only/file", tree / "empty")
    with pytest.raises(UsageError, match="no such file"):
        copy(tree / "missing", tmp_path / "other")


def test_hard_links_arrive(tmp_path: Path) -> None:
    archive = archive_of(file("a"), link("b", "a", tarfile.LNKTYPE))
    members.receive(Archive(archive), tmp_path / "copy", Log())
    assert (tmp_path / "copy/b").samefile(tmp_path / "copy/a")


def test_special_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree/fifo")
    (tmp_path / "tree/file").write_text("x")
    log = copy(tmp_path / "tree", tmp_path / "copy")
    assert log.notes == ["fifo is not copied: it is neither a file, a folder nor a link"]
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["file"]


# --- hostile archives ------------------------------------------------------------------------------


def file(name: str, content: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(content), 1_700_000_000
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def archive_of(*entries: tuple[tarfile.TarInfo, bytes], top: str = ".") -> io.BytesIO:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        if top:
            info = tarfile.TarInfo(top)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(info)
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    data.seek(0)
    return data


HOSTILE = {
    "up": [file("../out")],
    "up later": [file("a/../../out")],
    "through a link": [link("a", "b"), link("b", "."), file("a/../../out")],
    "through a folder link": [link("a", "/tmp"), file("a/out")],
    "hard link outside": [link("a", "../secret", tarfile.LNKTYPE)],
    "hard link of a link": [link("s", "x"), link("a", "s", tarfile.LNKTYPE)],
    "reserved name": [file(f"{members.PART}x")],
    "file below a file": [file("a"), file("a/b")],
    "folder becomes a file": [file("a/b"), file("a")],
    "part that is missing": [file("a", pax_headers={members.OFFSET: "5"})],
    "the offset is not a number": [file("a", pax_headers={members.OFFSET: "-5"})],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_is_written_outside(kind: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    target = tmp_path / "copy"
    try:
        members.receive(Archive(archive_of(*HOSTILE[kind])), target, Log())
    except StateError as error:
        assert "\n" not in error.message
    else:
        assert kind == "through a folder link"
    assert {p: p.stat().st_mtime_ns for p in tmp_path.iterdir() if p != target} == before
    assert not Path("/tmp/out").exists()


def test_links_that_lead_outside_are_named(tmp_path: Path) -> None:
    log = Log()
    archive = archive_of(link("a", "/etc/passwd"), link("d/b", "../../x"), file("c"))
    members.receive(Archive(archive), tmp_path / "copy", log)
    assert log.notes == [
        "a is not copied: it is a link that may lead outside: /etc/passwd",
        "d/b is not copied: it is a link that may lead outside: ../../x",
    ]


def test_set_id_bits_do_not_arrive(tmp_path: Path) -> None:
    members.receive(Archive(archive_of(file("a", mode=0o6755))), tmp_path / "copy", Log())
    assert (tmp_path / "copy/a").stat().st_mode & 0o7777 == 0o755


def test_an_archive_that_is_no_archive(tmp_path: Path) -> None:
    huge = tarfile.TarInfo("x")
    huge.type, huge.size = tarfile.XHDTYPE, 1 << 40
    for data in (b"", b"motd\n" * 200, bytes(100), huge.tobuf(tarfile.GNU_FORMAT) + bytes(4096)):
        with pytest.raises(StateError, match="the files cannot be copied"):
            members.receive(Archive(io.BytesIO(data)), tmp_path / "copy", Log())
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_archive_never_escapes(tmp_path: Path) -> None:
    rng = random.Random(1)
    whole = archive_of(file("a"), link("b", "a"), file("d/c", b"y" * 600)).getvalue()
    for number in range(300):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        target = tmp_path / "inside" / str(number)
        target.parent.mkdir(exist_ok=True)
        try:
            members.receive(Archive(io.BytesIO(bytes(data))), target, Log())
        except TorchxError as error:
            assert "\n" not in error.message
    assert {path.name for path in tmp_path.iterdir()} == {"inside"}


# --- interruptions ---------------------------------------------------------------------------------


class Cut:
    """An archive that ends after some bytes, as when the connection is lost."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data = io.BytesIO(data[:size])

    def read(self, size: int, /) -> bytes:
        return self._data.read(size)


def resumed(tree: Path, target: Path, size: int) -> tuple[bytes, int]:
    """Sends a folder up to a cut, then the missing part; returns the whole and the size of the part."""
    whole = io.BytesIO()
    members.write(members.walk(tree, Log()), whole, Log())
    with pytest.raises(StateError, match="ends too early"):
        members.receive(Archive(Cut(whole.getvalue(), size)), members.target_of(target, tree.name), Log())
    rest = io.BytesIO()
    known = members.have(members.target_of(target, tree.name))
    members.write(members.walk(tree, Log()), rest, Log(), have=known)
    rest.seek(0)
    members.receive(Archive(rest), members.target_of(target, tree.name), Log())
    return whole.getvalue(), len(rest.getvalue())


@pytest.mark.parametrize("size", [600, 40_000, 2_000_000, 3_150_000])
def test_a_cut_copy_continues(tree: Path, tmp_path: Path, size: int) -> None:
    (tree / "read-only").chmod(0o755)
    whole, rest = resumed(tree, tmp_path / "copy", size)
    assert entries(tmp_path / "copy") == entries(tree)
    if size > 2_000_000:
        assert rest < len(whole) - 1_800_000


def test_a_changed_file_is_sent_again(tmp_path: Path) -> None:
    source, target = tmp_path / "big", tmp_path / "copy"
    source.write_bytes(b"a" * (2 << 20))
    whole = io.BytesIO()
    members.write(members.walk(source, Log()), whole, Log())
    with pytest.raises(StateError):
        members.receive(Archive(Cut(whole.getvalue(), 1_500_000)), target, Log())
    assert not target.exists()
    source.write_bytes(b"b" * (2 << 20))
    copy(source, target)
    assert target.read_bytes() == b"b" * (2 << 20)


def test_two_files_do_not_share_a_part(tmp_path: Path) -> None:
    for name, byte in (("one", b"1"), ("two", b"2")):
        (tmp_path / name).write_bytes(byte * (2 << 20))
        os.utime(tmp_path / name, (1, 1))
    whole = io.BytesIO()
    members.write(members.walk(tmp_path / "one", Log()), whole, Log())
    with pytest.raises(StateError):
        members.receive(Archive(Cut(whole.getvalue(), 1_500_000)), tmp_path / "copy-one", Log())
    copy(tmp_path / "two", tmp_path / "copy-two")
    assert (tmp_path / "copy-two").read_bytes() == b"2" * (2 << 20)


def test_a_full_disk_keeps_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "big", tmp_path / "copy"
    source.write_bytes(os.urandom(3 << 20))
    write, left = os.write, [2]

    def fills(descriptor: int, data: memoryview) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", fills)
    with pytest.raises(StateError, match="No space left on device") as raised:
        copy(source, target)
    assert "repeat the command" in (raised.value.hint or "")
    monkeypatch.setattr(os, "write", write)
    assert list(members.have(target).values()) == [2 * members.BLOCK]
    copy(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(b"a" * 100_000)

    def shrinking() -> Callable[[], list[Member]]:
        for member in members.walk(source, Log()):
            os.truncate(source, 10)
            yield member

    with pytest.raises(StateError, match="became shorter"):
        members.write(shrinking(), io.BytesIO(), Log())
    assert not (tmp_path / "copy").exists()
