"""Tests of the record of a submission's source: format, limits, reading."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from torchx.errors import StateError
from torchx.machine import locks
from torchx.provenance.model import (
    ADDED,
    DELETED,
    EXECUTABLE,
    LINK,
    PROGRAM,
    Editable,
    File,
    Machine,
    Provenance,
    Python,
    Source,
    Submodule,
)
from torchx.provenance.store import INTERRUPTED, Store

FULL = Provenance(
    submitted_at=1.5,
    torchx_version="1.0",
    command_line="torchx run utils.echo",
    directory="/home/me",
    live=True,
    recorded_at=2.5,
    source=Source(
        folder="/home/me/r\udcff",
        commit="a" * 40,
        branch="main",
        remote="https://host/r.git",
        objects="/home/me/r/.git/objects",
        files=(
            File("a\nb", ADDED, EXECUTABLE, 3, "b" * 64),
            File("-x\udcff", DELETED),
            File("link", ADDED, LINK, 9, "", "too large"),
        ),
        diff_size=10,
        submodules=(Submodule("sub", "c" * 64, "/objects"), Submodule("other")),
        notes=("a note",),
        complete=True,
    ),
    python=Python("3.11.1", "/bin/python", PROGRAM, {"a": "1"}, {"b": Editable("/b", "d" * 40, True)}),
    machine=Machine("host", "me", "Linux", ("GPU",), "555"),
    notes=("another",),
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "p").mkdir()
    return Store(tmp_path / "p")


def test_a_record_survives_its_file(store: Store) -> None:
    store.write(FULL)
    assert store.read() == FULL
    assert store.record.stat().st_mode & 0o777 == 0o600


def test_a_missing_record_is_none(tmp_path: Path, store: Store) -> None:
    assert store.read() is None
    assert store.diff() is None
    assert Store(tmp_path / "none").read() is None


def test_unknown_fields_are_ignored_and_missing_ones_have_defaults() -> None:
    assert Provenance.from_json({"schema": 1, "submitted_at": 1, "new": 2}) == Provenance(1)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../b", "a//b", "", ".git/config", "a/.git/hooks", "a\0"]
)
def test_paths_that_leave_the_folder_are_rejected(path: str) -> None:
    data = FULL.to_json()
    data["source"]["files"][0]["path"] = path
    with pytest.raises(ValueError, match="path"):
        Provenance.from_json(data)
    data = FULL.to_json()
    data["source"]["submodules"][0]["path"] = path
    with pytest.raises(ValueError, match="path"):
        Provenance.from_json(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [("commit", "--upload-pack=x"), ("files", {}), ("diff_size", -1), ("complete", 1), ("folder", None)],
)
def test_invalid_values_are_errors_of_the_record(store: Store, key: str, value: Any) -> None:
    data = FULL.to_json()
    data["source"][key] = value
    store.record.write_text(json.dumps(data))
    with pytest.raises(StateError, match=r"recorded source .* cannot be read"):
        store.read()


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"schema": 99, "submitted_at": 1}'])
def test_damaged_records_are_errors(store: Store, text: str) -> None:
    store.record.write_text(text)
    with pytest.raises(StateError, match=r"recorded source .* cannot be read"):
        store.read()


def test_a_pipe_is_not_read(store: Store) -> None:
    os.mkfifo(store.record)
    with pytest.raises(StateError, match="cannot be read"):
        store.read()


def test_a_killed_recording_is_noted(store: Store) -> None:
    held = locks.acquire(store.lock)
    assert held is not None
    store.write(FULL._replace(recording=True))
    found = store.read()
    assert found is not None
    assert found.recording
    os.close(held)
    found = store.read()
    assert found is not None
    assert not found.recording
    assert found.notes == ("another", INTERRUPTED)


def test_contents_are_kept_once_and_checked(store: Store) -> None:
    digest = store.keep(b"content" * 1000)
    assert store.keep(b"content" * 1000) == digest
    path = store.content_file(digest)
    assert path.stat().st_mode & 0o777 == 0o600
    assert store.content(File("a", ADDED, digest=digest)) == b"content" * 1000
    path.write_bytes(store.content_file(store.keep(b"other")).read_bytes())
    with pytest.raises(StateError, match="another content"):
        store.content(File("a", ADDED, digest=digest))
    with pytest.raises(StateError, match=r"not kept: too large"):
        store.content(File("a", ADDED, omitted="too large"))
