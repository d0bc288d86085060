"""The tracker that keeps all in files: on a disk, in memory, and in a folder that TorchX has written."""

from __future__ import annotations

import multiprocessing
import shutil
import time
import uuid
from pathlib import Path

import fsspec
import pytest
from project.sources import ROOT

from torchx.errors import StateError, UsageError
from torchx.tracker.api import AppRun, LineageEdge, TrackerArtifact, TrackerBase, TrackerSource
from torchx.tracker.backend.fsspec import FsspecTracker, create


@pytest.fixture(params=["file", "memory"])
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> FsspecTracker:
    root = str(tmp_path / "runs") if request.param == "file" else f"/{uuid.uuid4()}"
    return FsspecTracker(fsspec.filesystem(request.param), root)


def test_values_are_kept_and_the_later_one_counts(tracker: FsspecTracker) -> None:
    tracker.add_metadata("a", lr=0.1, name="é", n=3, yes=True, nothing=None, many=[1, 2], inner={"a": 1})
    for step in range(20):
        tracker.add_metadata("a", step=step)
    kept = tracker.metadata("a")
    assert kept["step"] == 19
    assert (kept["lr"], kept["name"], kept["n"], kept["yes"]) == (0.1, "é", 3, True)
    assert (kept["nothing"], kept["many"], kept["inner"]) == (None, [1, 2], {"a": 1})


def test_earlier_values_are_kept_with_their_times(tracker: FsspecTracker) -> None:
    before = time.time()
    for step in range(3):
        tracker.add_metadata("a", step=step)
    times, reports = zip(*tracker.history("a"), strict=True)
    assert reports == ({"step": 0}, {"step": 1}, {"step": 2})
    assert before - 0.001 <= times[0] <= times[1] <= times[2] <= time.time() + 0.001
    assert list(tracker.history("b")) == []


def test_a_tracker_without_times_has_its_last_values(tracker: FsspecTracker) -> None:
    tracker.add_metadata("a", step=1)
    assert list(TrackerBase.history(tracker, "a")) == [(0.0, {"step": 1})]


def test_what_json_lacks_is_kept_as_text(tracker: FsspecTracker) -> None:
    tracker.add_metadata("a", where=Path("x/y"))
    assert tracker.metadata("a") == {"where": "x/y"}


def test_artifacts_are_kept_by_name(tracker: FsspecTracker) -> None:
    tracker.add_artifact("a", "model", "s3://b/1.pt")
    tracker.add_artifact("a", "model", "s3://b/2.pt", {"acc": 0.9})
    tracker.add_artifact("a", "log", "/tmp/log")
    assert tracker.artifacts("a") == {
        "model": TrackerArtifact("model", "s3://b/2.pt", {"acc": 0.9}),
        "log": TrackerArtifact("log", "/tmp/log", None),
    }


def test_sources_are_kept_each_once(tracker: FsspecTracker) -> None:
    for _ in range(2):
        tracker.add_source("b", "a", "model")
        tracker.add_source("b", "a")
        tracker.add_source("b", "s3://bucket/data")
    whole, part, data = TrackerSource("a"), TrackerSource("a", "model"), TrackerSource("s3://bucket/data")
    assert set(tracker.sources("b")) == {whole, part, data}
    assert list(tracker.sources("b", "model")) == [part]
    with pytest.raises(UsageError, match="one line"):
        tracker.add_source("b", "a", "two\nlines")


def test_an_unknown_run_has_no_data(tracker: FsspecTracker) -> None:
    assert (tracker.metadata("x"), tracker.artifacts("x"), list(tracker.sources("x"))) == ({}, {}, [])
    assert list(tracker.run_ids()) == []
    assert tracker.lineage("x").edges == ()


def test_runs_are_found_by_what_they_were_made_from(tracker: FsspecTracker) -> None:
    tracker.add_metadata("a", x=1)
    tracker.add_source("b", "a")
    tracker.add_source("c", "other")
    assert list(tracker.run_ids()) == ["a", "b", "c"]
    assert list(tracker.run_ids(parent_run_id="a")) == ["b"]
    assert [child.id for child in AppRun("a", [tracker]).children()] == ["b"]
    with pytest.raises(UsageError, match="parent_run"):
        tracker.run_ids(parent_run="a")


def test_lineage_follows_both_directions_and_a_circle_once(tracker: FsspecTracker) -> None:
    tracker.add_source("model", "data", "images")
    tracker.add_source("tuned", "model")
    tracker.add_source("served", "tuned")
    tracker.add_source("data", "served")  # a circle, as a mistake would make it
    result = tracker.lineage("model")
    assert result.sources() == [LineageEdge("data", "model", "images")]
    assert result.descendants() == [LineageEdge("model", "tuned")]
    assert {(e.source_id, e.run_id) for e in result.edges} == {
        ("data", "model"), ("model", "tuned"), ("tuned", "served"), ("served", "data"),
    }  # fmt: skip
    assert len(result.edges) == 4


def test_what_torchx_has_kept_is_read_and_added_to(tmp_path: Path) -> None:
    """The files were written by TorchX itself."""
    shutil.copytree(ROOT / "tests" / "resources" / "tracker-of-torchx", tmp_path / "runs")
    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path / "runs"))
    a, c = "local_cwd://torchx/run-a", "local_cwd://torchx/run-c"
    assert list(tracker.run_ids()) == [a, c]
    assert tracker.metadata(a)["lst"] == [1, 2]
    assert tracker.artifacts(a)["model"] == TrackerArtifact("model", "s3://b/model.pt", {"acc": 0.9})
    assert set(tracker.sources(c)) == {
        TrackerSource(a, "model"), TrackerSource(a), TrackerSource("s3://other"),
    }  # fmt: skip
    tracker.add_metadata(a, lr=0.2)
    assert tracker.metadata(a)["lr"] == 0.2


def report(root: str, number: int) -> None:
    tracker = FsspecTracker(fsspec.filesystem("file"), root)
    for step in range(20):
        tracker.add_metadata("run", **{f"replica{number}_{step}": step})
        tracker.add_source("run", f"shard-{number}")


def test_many_replicas_at_once_lose_nothing(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    replicas = [spawn.Process(target=report, args=(str(tmp_path), number)) for number in range(3)]
    for replica in replicas:
        replica.start()
    for replica in replicas:
        replica.join()
    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path))
    assert len(tracker.metadata("run")) == 60
    assert len(list(tracker.sources("run"))) == 3


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path))
    tracker.add_metadata("run", a=1)
    (file,) = tmp_path.glob("*/metadata/*")
    file.write_text("{")
    with pytest.raises(StateError, match=file.name):
        tracker.metadata("run")


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path / "taken"))
    with pytest.raises(StateError, match="cannot write"):
        tracker.add_metadata("run", a=1)


def test_a_file_says_where_all_is_kept(tmp_path: Path) -> None:
    config = tmp_path / "tracker.conf"
    config.write_text(f"# where\nprotocol = file\n\nroot_path={tmp_path / 'runs'}\nauto_mkdir=true\n")
    create(str(config)).add_metadata("run", a=1)
    assert list((tmp_path / "runs").iterdir())
    assert create(str(tmp_path / "runs")).metadata("run") == {"a": 1}


def test_the_folder_is_made_when_something_is_kept(tmp_path: Path) -> None:
    tracker = create(str(tmp_path / "not" / "yet"))
    assert list(tracker.run_ids()) == []
    tracker.add_metadata("run", a=1)
    assert create(str(tmp_path / "not" / "yet")).metadata("run") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("protocol=file\n", "lacks a line root_path"),
        ("root_path\n", "line 1 is `root_path`"),
        ("root_path=/x\nprotocol=nosuch\n", "no file system `nosuch`"),
    ],
)
def test_a_file_that_cannot_be_right_is_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "conf").write_text(text)
    with pytest.raises(UsageError, match=why):
        create(str(tmp_path / "conf"))
    for missing in (None, str(tmp_path / "nowhere.conf")):
        with pytest.raises(UsageError):
            create(missing)
