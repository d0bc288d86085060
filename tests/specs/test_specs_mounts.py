"""Mounts as written on a command line."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.errors import UsageError
from torchx.specs import BindMount, DeviceMount, TmpfsMount, VolumeMount, parse_mounts
from torchx.specs.mounts import Mount


@pytest.mark.parametrize(
    ("words", "mount"),
    [
        ("type=bind src=/a dst=/b", BindMount("/a", "/b")),
        ("type=bind source=/a target=/b readonly", BindMount("/a", "/b", True)),
        ("type=bind source=/a destination=/b read_only=true", BindMount("/a", "/b", True)),
        ("type=bind src=/a dst=/b readonly=false", BindMount("/a", "/b", False)),
        ("type=bind,src=/a=b,dst=/b", BindMount("/a=b", "/b")),
        ("type=bind src=/a,b dst=/b", BindMount("/a,b", "/b")),
        ("type=volume src=v dst=/b", VolumeMount("v", "/b")),
        ("/a:/b", BindMount("/a", "/b")),
        ("/a=x:/b:ro", BindMount("/a=x", "/b", True)),
        ("cache:/b:rw", VolumeMount("cache", "/b")),
        ("type=bind src=${img_root}/a dst=/b", BindMount("${img_root}/a", "/b")),
        ("type=bind src=/a:b dst=/b", BindMount("/a:b", "/b")),
        ("type=tmpfs dst=/b", TmpfsMount("/b")),
        ("type=tmpfs target=/b size=64M", TmpfsMount("/b", 64)),
        ("type=tmpfs dst=/b tmpfs-size=2g", TmpfsMount("/b", 2048)),
        ("type=volume src=~v dst=/b readonly", VolumeMount("~v", "/b", True)),
        ("type=device src=/dev/x", DeviceMount("/dev/x", "/dev/x", "rwm")),
        ("type=device src=/dev/x dst=/dev/y perm=r", DeviceMount("/dev/x", "/dev/y", "r")),
    ],
)
def test_a_mount(words: str, mount: Mount) -> None:
    assert parse_mounts(words.split()) == [mount]


def test_the_home_folder_is_meant_by_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert parse_mounts(["type=bind", "src=~/data", "dst=/b"]) == [BindMount("/home/me/data", "/b")]


def test_source_is_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_mounts([".:/b", "../x:/c:ro"]) == [
        BindMount(str(tmp_path), "/b"),
        BindMount(str(tmp_path.parent / "x"), "/c", True),
    ]
    assert parse_mounts(["type=bind,src=data,dst=/b"]) == [BindMount(str(tmp_path / "data"), "/b")]


def test_several_mounts_in_a_row() -> None:
    words = ["type=bind", "src=/a", "dst=/b", "readonly", "type=volume", "src=v", "dst=/c"]
    assert parse_mounts(words) == [BindMount("/a", "/b", True), VolumeMount("v", "/c")]
    assert parse_mounts([]) == []
    assert words[0] == "type=bind"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("src=/a", "must begin with its type, got `src=/a`"),
        ("type=bind src=/a", "a bind mount needs `dst=`"),
        ("type=volume dst=/a", "a volume mount needs `src=`"),
        ("type=bind src= dst=/a", "a bind mount needs `src=`"),
        ("type=bnd src=/a dst=/b", r"unknown mount type `bnd`.*\n.*did you mean `bind`"),
        ("type=bind sorce=/a dst=/b", r"unknown mount option `sorce`.*\n.*did you mean `source`"),
        ("type=bind src=/a source=/c dst=/b", "repeated mount option `source`"),
        ("type=bind src=/a dst=/b readonly=maybe", "true or false, got `maybe`"),
        ("type=device src=/dev/x perm=rx", "letters of r, w and m; got `rx`"),
        ("type=device src=/dev/x perm=", "letters of r, w and m; got ``"),
        ("type=tmpfs src=/a dst=/b", "`src` is not an option of a tmpfs mount"),
        ("type=tmpfs dst=/b size=lots", "such as 512m; got `lots`"),
        ("type=tmpfs dst=/b size=0m", "such as 512m; got `0m`"),
        ("type=bind src=/a dst=/b size=1g", "`size` is not an option of a bind mount"),
        ("type=device src=/dev/x readonly", "`readonly` is not an option of a device mount"),
        ("type=bind src=/a dst=/b perm=r", "`perm` is not an option of a bind mount"),
    ],
)
def test_what_is_no_mount_is_reported_why(words: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        parse_mounts(words.split())
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, KeyError)


_paths = st.text("abc/=._-", min_size=1).map(lambda t: f"/{t}")
_mounts = st.one_of(
    st.builds(BindMount, _paths, _paths, st.booleans()),
    st.builds(VolumeMount, st.text("abc-", min_size=1), _paths, st.booleans()),
    st.builds(DeviceMount, _paths, _paths, st.sampled_from(["r", "rw", "rwm"])),
    st.builds(TmpfsMount, _paths, st.none() | st.integers(1, 1 << 20)),
)


def _words(mount: Mount) -> list[str]:
    if isinstance(mount, DeviceMount):
        perm = f"perm={mount.permissions}"
        return ["type=device", f"src={mount.src_path}", f"dst={mount.dst_path}", perm]
    if isinstance(mount, TmpfsMount):
        size = [] if mount.size_mb is None else [f"size={mount.size_mb}m"]
        return ["type=tmpfs", f"dst={mount.dst_path}", *size]
    src = mount.src_path if isinstance(mount, BindMount) else mount.src
    kind = "bind" if isinstance(mount, BindMount) else "volume"
    return [f"type={kind}", f"src={src}", f"dst={mount.dst_path}", f"readonly={str(mount.read_only).lower()}"]


@settings(max_examples=60)
@given(st.lists(_mounts, max_size=4), st.booleans())
def test_what_is_written_is_read_back(mounts: list[Mount], joined: bool) -> None:
    words = [word for mount in mounts for word in _words(mount)]
    assert parse_mounts([",".join(words)] if joined else words) == mounts


@settings(max_examples=60)
@given(st.lists(st.text("typebindsrcvolume=,/~ ", max_size=12), max_size=5))
def test_nonsense_is_a_usage_error_or_mounts(words: list[str]) -> None:
    with contextlib.suppress(UsageError):
        assert len(parse_mounts(words)) <= sum(word.count("type") for word in words)
