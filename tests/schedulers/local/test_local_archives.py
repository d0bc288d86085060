"""Archives as images: nothing is written outside of the folder or without limit, whatever was packed."""

from __future__ import annotations

import functools
import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from project.sources import ROOT

from torchx.errors import TorchxError, UsageError
from torchx.schedulers.local.archives import unpack
from torchx.schedulers.local.scheduler import create_dir_scheduler
from torchx.specs.app import AppDef, Role
from torchx.workspace import unpacking

Member = tuple[str, dict[str, Any]]


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Member:
    return name, {"type": kind, "linkname": target}


def device(kind: bytes) -> Member:
    return "null", {"type": kind, "devmajor": 1, "devminor": 3}


def pack(path: Path, *members: Member, mode: str = "w", **options: Any) -> Path:
    with tarfile.open(path, mode, **options) as tar:  # type: ignore[call-overload]
        for name, given in members:
            info = tarfile.TarInfo(name)
            data = given.get("data", b"x" if "type" not in given else b"")
            info.size = len(data)
            for key, value in given.items():
                setattr(info, key, value) if key != "data" else None
            tar.addfile(info, io.BytesIO(data))
    return path


def unpacked(archive: Path, **options: int) -> Path:
    folder = archive.parent / "images" / archive.name
    unpack(str(archive), folder, **options)
    return folder


DEEP = "d" * 247
"""The steps of a path that is longer than a path may be: some Pythons lose sight of links there."""


def past_the_longest_path() -> list[Member]:
    """Links through a path that cannot be resolved any more, and a file behind them."""
    members: list[Member] = []
    path = ""
    for step in "abcdefghijklmnop":
        members.append((os.path.join(path, DEEP), {"type": tarfile.DIRTYPE}))
        members.append(link(os.path.join(path, step), DEEP))
        path = os.path.join(path, DEEP)
    through = os.path.join("/".join("abcdefghijklmnop"), "l" * 254)
    members.append(link(through, "../" * 16))
    members.append(link("escape", f"{through}/../../../outside"))
    members.append(link("hard", "escape/target", tarfile.LNKTYPE))
    members.append(("hard", {"data": b"written outside"}))
    return members


EVIL: dict[str, list[Member]] = {
    "parent": [("../evil", {})],
    "parent in the middle": [("a/../../evil", {})],
    "link up": [link("up", ".."), ("up/evil", {})],
    "absolute link": [link("root", "/tmp"), ("root/evil", {})],
    "link to itself and up": [link("x", "."), link("y", "x/.."), ("y/evil", {})],
    "link by the name of a link": [link("x", "."), link("y", "x/..")],
    "link below a link": [("d", {"type": tarfile.DIRTYPE}), link("l", "d"), ("l/evil", {})],
    "link that leads out later": [link("a/b/c", "../../.."), ("z", {})],
    "file through a link of its name": [link("l", "../outside/target"), ("l", {"data": b"evil"})],
    "hard link out": [link("h", "../outside/target", tarfile.LNKTYPE), ("h", {"data": b"evil"})],
    "absolute hard link": [link("h", "/etc/hostname", tarfile.LNKTYPE)],
    "hard link to a link": [("f", {}), link("l", "f"), link("h", "l", tarfile.LNKTYPE)],
    "hard link through a link": [
        ("d/f", {}),
        link("l", "d"),
        link("h", "l/f", tarfile.LNKTYPE),
    ],
    "a pipe": [("pipe", {"type": tarfile.FIFOTYPE})],
    "a device": [device(tarfile.CHRTYPE)],
    "a disk": [device(tarfile.BLKTYPE)],
    "past the longest path": past_the_longest_path(),
    "a folder that becomes a file": [("d/f", {}), ("d", {})],
    "no name": [("", {})],
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "images" / "outside"
    folder.mkdir(parents=True)
    (folder / "target").write_text("as before")
    return folder


@pytest.mark.parametrize("name", EVIL)
def test_a_tar_that_reaches_out_is_refused(tmp_path: Path, outside: Path, name: str) -> None:
    archive = pack(tmp_path / "evil.tar", *EVIL[name])
    with pytest.raises(UsageError, match="not a valid archive: ") as refused:
        unpacked(archive)
    assert refused.value.message.isprintable()
    assert (outside / "target").read_text() == "as before"
    assert not [path for path in tmp_path.rglob("*") if path.name == "evil"]
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["outside"], "nothing is left behind"


@functools.cache
def pythons() -> dict[str, str]:
    """The Pythons of this machine by version, and the one of the system, which may be an old one."""
    output = subprocess.run(
        [str(ROOT / ".ci" / "pythons")], capture_output=True, text=True, check=True
    ).stdout
    found = dict(line.split(maxsplit=1) for line in output.splitlines())
    return found | ({"system": "/usr/bin/python3"} if os.path.exists("/usr/bin/python3") else {})


EACH = """
import sys
from pathlib import Path
from torchx.errors import UsageError
from torchx.schedulers.local.archives import unpack
from torchx.schedulers.local.scheduler import create_dir_scheduler
from torchx.specs.app import AppDef, Role

if sys.version_info < (3, 10):
    sys.exit("too old")
for archive in sorted(Path(sys.argv[1]).glob("*.tar")):
    try:
        unpack(str(archive), archive.parent / "images" / archive.name)
        print(archive.stem, "is unpacked")
    except UsageError:
        print(archive.stem, "is refused")
"""


@pytest.mark.long
def test_every_python_refuses_the_same(tmp_path: Path, outside: Path) -> None:
    for name, members in EVIL.items():
        pack(tmp_path / f"{name}.tar", *members)
    pack(tmp_path / "good.tar", ("bin", {"type": tarfile.DIRTYPE}), ("bin/a", {}), link("b", "bin/a"))
    paths = [str(ROOT), *(path for path in sys.path if "site-packages" in path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    assert pythons()
    for version, python in pythons().items():
        done = subprocess.run(
            [python, "-W", "error", "-c", EACH, str(tmp_path)],
            capture_output=True, text=True, env=env, timeout=120,
        )  # fmt: skip
        if done.stderr.strip() == "too old":
            continue
        expected = sorted([*(f"{name} is refused" for name in EVIL), "good is unpacked"])
        assert done.stdout.splitlines() == expected, f"{version}: {done.stderr}"
        assert (outside / "target").read_text() == "as before"
        (tmp_path / "images" / "good.tar").rename(tmp_path / f"good of {version}")


def test_what_is_well_formed_is_unpacked_as_it_is(tmp_path: Path) -> None:
    folder = unpacked(
        pack(
            tmp_path / "good.tgz",
            ("./bin", {"type": tarfile.DIRTYPE, "mode": 0o2555}),
            ("./bin/run", {"mode": 0o6775, "data": b"first", "mtime": 1_000_000_000}),
            link("./bin/sh", "../bin/run"),
            ("/etc/conf", {"mode": 0}),
            link("hard", "bin/run", tarfile.LNKTYPE),
            ("bin/run", {"mode": 0o755, "data": b"second"}),
            ("b\udcff\n", {}),
            mode="w:gz",
        )
    )
    assert (folder / "bin" / "sh").read_bytes() == b"second"
    assert (folder / "hard").read_bytes() == b"first", (
        "the name was given to another file, not written through"
    )
    assert stat.S_IMODE((folder / "hard").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "bin").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "etc" / "conf").stat().st_mode) == 0o600
    assert os.stat(os.path.join(os.fsencode(folder), b"b\xff\n")).st_size == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def put(archive: zipfile.ZipFile, name: str, mode: int, data: bytes = b"x") -> None:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    archive.writestr(info, data)


def zipped(path: Path, *members: tuple[str, int, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for member in members:
            put(archive, *member)
    return path


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_lost_set_id_bit_is_noted_at_unpacking(tmp_path: Path, kind: str) -> None:
    program, path = b"#!/bin/sh\n", tmp_path / f"image.{kind}"
    if kind == "zip":
        zipped(path, ("run", stat.S_IFREG | 0o4755, program), ("plain", stat.S_IFREG | 0o755, program))
    else:
        pack(path, ("run", {"mode": 0o2755, "data": program}), ("plain", {"mode": 0o755, "data": program}))
    scheduler = create_dir_scheduler("torchx")
    for expected in ([f"image {path}: run loses its set-user-id or set-group-id bit"], []):
        info = scheduler.submit_dryrun(AppDef("job", [Role("w", image=str(path), entrypoint="plain")]), {})
        before = len(info.notes)
        assert scheduler.wait(scheduler.schedule(info), 60)
        assert info.notes[before:] == expected


def test_members_of_zip_get_no_set_id_bits(tmp_path: Path) -> None:
    file = stat.S_IFREG
    folder = unpacked(
        zipped(
            tmp_path / "good.zip",
            ("run", file | 0o6777, b"#!/bin/sh"),
            ("plain", 0, b"x"),
            ("d/", stat.S_IFDIR | 0o7777, b""),
            ("d/link", stat.S_IFLNK | 0o777, b"../run"),
        )
    )
    assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "plain").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "d").stat().st_mode) == 0o755
    assert (folder / "d" / "link").readlink() == Path("../run")


@pytest.mark.parametrize(
    "member",
    [
        ("../evil", stat.S_IFREG, b""),
        ("a/../../evil", stat.S_IFREG, b""),
        ("up", stat.S_IFLNK, b".."),
        ("root", stat.S_IFLNK, b"/tmp"),
        ("pipe", stat.S_IFIFO, b""),
        ("disk", stat.S_IFBLK, b""),
        ("long", stat.S_IFLNK, b"a/" * 5000),
    ],
    ids=str,
)
def test_a_zip_that_reaches_out_is_refused(tmp_path: Path, member: tuple[str, int, bytes]) -> None:
    with pytest.raises(UsageError, match="not a valid archive: "):
        unpacked(zipped(tmp_path / "evil.zip", member))
    assert not list(tmp_path.rglob("evil"))


def test_zip_that_writes_through_its_own_link_is_refused(tmp_path: Path) -> None:
    members = [("l", stat.S_IFLNK, b"d"), ("d/", stat.S_IFDIR, b""), ("l/f", stat.S_IFREG, b"x")]
    with pytest.raises(UsageError, match="is below a link"):
        unpacked(zipped(tmp_path / "evil.zip", *members))


def test_too_large_archive_is_rejected_before_disk_is_full(tmp_path: Path) -> None:
    for name, mode in (("bomb.tar", "w"), ("bomb.tar.gz", "w:gz"), ("bomb.tar.xz", "w:xz")):
        bomb = pack(tmp_path / name, ("zeros", {"data": bytes(3_000_000)}), mode=mode)
        with pytest.raises(UsageError, match="image_limit_mb=2"):
            unpacked(bomb, limit_mb=2)
        assert (unpacked(bomb, limit_mb=4) / "zeros").stat().st_size == 3_000_000
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(3_000_000))
    with pytest.raises(UsageError, match="image_limit_mb=2"):
        unpacked(bomb, limit_mb=2)
    data = bomb.read_bytes().replace((3_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    (tmp_path / "liar.zip").write_bytes(data)
    with pytest.raises(UsageError):
        unpacked(tmp_path / "liar.zip", limit_mb=2)
    large = pack(tmp_path / "large.tar", ("random", {"data": os.urandom(2_500_000)}))
    with pytest.raises(UsageError, match="the archive itself is too large"):
        unpacked(large, limit_mb=2)


def test_a_header_that_is_larger_than_memory_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    with gzip.open(tmp_path / "header.tar.gz", "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    with pytest.raises(UsageError, match="a header that is too large"):
        unpacked(tmp_path / "header.tar.gz")


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MOST", 3)
    with pytest.raises(UsageError, match="more than 3 files"):
        unpacked(pack(tmp_path / "many.tar", *((str(n), {}) for n in range(4))))


def test_damaged_archives_are_one_sentence(tmp_path: Path) -> None:
    good = pack(tmp_path / "good.tar.gz", ("a", {"data": os.urandom(5000)}), mode="w:gz").read_bytes()
    plain = zipped(tmp_path / "good.zip", ("a", 0, b"text" * 1000)).read_bytes()
    encrypted = bytearray(plain)
    for at in (plain.index(b"PK\1\2") + 8, 6):
        encrypted[at] |= 1
    method = bytearray(plain)
    for at in (plain.index(b"PK\1\2") + 10, 8):
        method[at] = 99
    broken = {
        "short.tar.gz": good[:-3000],
        "bits.tar.gz": good[:2000] + b"\0" * 500 + good[2500:],
        "empty.tar.gz": b"\x1f\x8b",
        "empty.tar.xz": b"\xfd7zXZ\0",
        "empty.tar.bz2": b"BZh",
        "none.tar": b"no tar",
        "short.zip": plain[:-10],
        "bits.zip": plain.replace(b"text", b"tent", 3),
        "encrypted.zip": bytes(encrypted),
        "method.zip": bytes(method),
    }
    for name, data in broken.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TorchxError, match=name) as refused:
            unpacked(tmp_path / name)
        assert "\n" not in refused.value.message, name


def test_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        archive = pack(tmp_path / "a.tar", ("d/f", {"mode": 0o666}))
        unpack(str(archive), tmp_path / "home" / "images" / "a")
    finally:
        os.umask(old)
    modes = {
        str(p.relative_to(tmp_path)): oct(p.stat().st_mode & 0o777) for p in (tmp_path / "home").rglob("*")
    }
    assert modes == {"home/images": "0o700", "home/images/a": "0o700", "home/images/a/d": "0o700",
                     "home/images/a/d/f": "0o644"}  # fmt: skip
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


def test_pipe_of_name_of_archive_is_not_waited_for(tmp_path: Path) -> None:
    from torchx.schedulers.local.archives import version_of

    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(UsageError, match="is not a file"):
        version_of(str(tmp_path / "pipe.tar"))
