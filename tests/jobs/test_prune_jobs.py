"""What a prune removes and what it leaves: sizes, leftovers, images, and folders that are not of a job."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from jobhome import change, job

from torchx.errors import StateError
from torchx.jobs import ended, pruning
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.removal import remove
from torchx.machine import locks
from torchx.runner import provenance

HOUR = 3600.0


def age(path: Path, seconds: float = 2 * HOUR) -> None:
    """Makes a file or a folder, with all that is in it, look unchanged for some time."""
    then = time.time() - seconds
    for each in [path, *path.rglob("*")]:
        os.utime(each, (then, then), follow_symlinks=False)


def pruned(home: Home, *app_ids: str) -> list[str]:
    """Prunes; a dry-run before finds the same, and removes nothing."""
    before = sorted(home.path.rglob("*"))
    plan = list(pruning.prune(home, app_ids, dryrun=True))
    assert sorted(home.path.rglob("*")) == before
    done = list(pruning.prune(home, app_ids))
    assert done == plan
    assert not any(os.path.lexists(each.path) for each in done)
    return [str(Path(each.path).relative_to(home.path)) for each in done]


def test_the_size_is_the_usage_of_the_disk(tmp_path: Path) -> None:
    def used(path: Path) -> int:
        return path.lstat().st_blocks * 512

    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "file").write_bytes(b"x" * 100_000)
    (folder / "other").write_bytes(b"x" * 10_000)
    (folder / "link").symlink_to(tmp_path)
    (tmp_path / "outside").write_bytes(b"x" * 1_000_000)
    assert pruning.size(folder) == used(folder) + sum(used(path) for path in folder.rglob("*"))
    assert pruning.size(folder) >= 110_000
    assert pruning.size(folder / "other") == used(folder / "other") >= 10_000
    assert pruning.size(tmp_path / "missing") == 0


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], ""),
        (["log.index", "thesis.tex"], ""),
        (["SUCCESS"], ""),
        (["torchelastic/x"], ""),
        (["thesis.tex", "w/0/combined.log"], ""),
        (["w/x"], "has no file of a job"),
        (["thesis.tex"], "has no file of a job"),
    ],
)
def test_a_log_tree_is_known_by_its_files(tmp_path: Path, names: list[str], why: str) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    assert pruning.why_not_removable(folder) == why


def test_link_to_folders_with_numbers_is_no_log_tree(tmp_path: Path) -> None:
    (tmp_path / "w" / "0").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "w").symlink_to(tmp_path / "w")
    assert pruning.why_not_removable(tmp_path / "logs") == "has no file of a job"
    (tmp_path / "file").touch()
    assert pruning.why_not_removable(tmp_path / "file") == "is not a folder"
    assert pruning.why_not_removable(tmp_path / "missing") == ""


def test_job_is_removed_with_its_logs_and_both_count(home: Home) -> None:
    job(home, "a-1")
    (home.logs / "torchx" / "a-1" / "w" / "0" / "combined.log").write_bytes(b"x" * 100_000)
    sizes = pruning.size(home.jobs / "a-1") + pruning.size(home.logs / "torchx" / "a-1")
    (planned,) = pruning.prune(home, ["a-1"], dryrun=True)
    assert (planned.bytes, planned.app_id) == (sizes, "a-1")
    assert pruned(home, "a-1", "never-1") == ["jobs/a-1"]
    assert not (home.logs / "torchx" / "a-1").exists()
    assert ended.lines(home) == {}


def test_a_job_that_is_not_at_its_end_stays(home: Home) -> None:
    held_1, killed = job(home, "held-1"), job(home, "killed-1")
    killed.events.write_bytes(b"")  # its supervisor was killed: the next query finalizes it
    held = locks.acquire(held_1.lock)
    assert held is not None
    try:
        assert pruned(home, "held-1", "killed-1") == []
    finally:
        os.close(held)
    assert not locks.is_held(killed.lock)
    assert pruned(home, "held-1") == ["jobs/held-1"]


def test_immovable_job_stays_whole_and_others_are_removed(home: Home) -> None:
    for name in ("a-1", "b-1"):
        job(home, name)
    (home.jobs / ".a-1" / "in the way").mkdir(parents=True)
    gone = []
    with pytest.raises(StateError, match=r"a-1 cannot be removed: Directory not empty"):
        for each in pruning.prune(home, ["a-1", "b-1"]):
            gone.append(each.app_id)
    assert gone == ["b-1"]
    assert (home.jobs / "a-1" / "job.json").exists()
    assert (home.logs / "torchx" / "a-1" / "w").exists()


def test_unreadable_job_goes_with_its_logs_of_any_session(home: Home) -> None:
    paths = job(home, "bad-1")
    other = home.logs / "session" / "bad-1"
    (other / "w" / "0").mkdir(parents=True)
    precious = home.logs / "third" / "bad-1"
    precious.mkdir(parents=True)
    (precious / "thesis.tex").touch()
    paths.record.write_text("{")
    sizes = sum(map(pruning.size, (paths.folder, home.logs / "torchx" / "bad-1", other)))
    (planned,) = pruning.prune(home, ["bad-1"], dryrun=True)
    assert planned.bytes == sizes
    assert pruned(home, "bad-1") == ["jobs/bad-1"]
    assert not other.exists()
    assert not (home.logs / "torchx" / "bad-1").exists()
    assert (precious / "thesis.tex").exists()


def test_unreadable_job_with_unknown_supervisor_is_not_deleted(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = job(home, "bad-1")
    paths.record.write_text("{")
    paths.events.unlink()
    monkeypatch.setattr(pruning, "FREE_WITHIN", 0.05)
    held = locks.acquire(paths.lock)
    assert held is not None
    try:
        with pytest.raises(StateError, match="bad-1 is not removed: its supervisor runs with an unknown pid"):
            pruning.remove_unreadable(home, paths)
    finally:
        os.close(held)
    pruning.remove_unreadable(home, paths)
    assert not paths.folder.exists()


def test_only_what_nothing_has_changed_for_hour_is_leftover(home: Home) -> None:
    for name in (".young", ".old", ".inside"):
        (home.jobs / name / "below").mkdir(parents=True)
        (home.jobs / name / "below" / "file").touch()
        age(home.jobs / name)
    age(home.jobs / ".young", 0.9 * HOUR)
    os.utime(home.jobs / ".inside" / "below" / "file")
    for name, seconds in (("a.partial", 0.9 * HOUR), ("b.partial", 1.1 * HOUR)):
        (home.path / name).touch()
        age(home.path / name, seconds)
    for name in (".unpacking-a", ".unpacking-b"):
        (home.images / name).mkdir(parents=True)
    age(home.images / ".unpacking-b")
    assert pruned(home) == ["jobs/.old", "b.partial", "images/.unpacking-b"]
    age(home.path)
    assert pruned(home) == ["jobs/.inside", "jobs/.young", "a.partial", "images/.unpacking-a"]


def test_restored_tree_that_was_never_submitted_is_leftover(home: Home) -> None:
    for name in ("owned", "lost", "young", ".lost.git"):
        (home.restored / name / "sub").mkdir(parents=True)
    home.owner_of("owned").touch()
    age(home.path)
    os.utime(home.restored / "young" / "sub")
    assert pruned(home) == ["restored/.lost.git", "restored/lost"]
    assert sorted(path.name for path in home.restored.iterdir()) == [".handle-owned", "owned", "young"]


def test_a_leftover_link_is_removed_itself(home: Home, tmp_path: Path) -> None:
    home.jobs.mkdir()
    (tmp_path / "precious").mkdir()
    (home.jobs / ".link").symlink_to(tmp_path / "precious")
    age(home.jobs)
    age(tmp_path / "precious")
    assert pruned(home) == ["jobs/.link"]
    assert (tmp_path / "precious").exists()


def test_logs_go_with_half_removed_job_or_without_one(home: Home) -> None:
    half, whole = job(home, "half-1"), job(home, "whole-1")
    hidden = half.folder.rename(home.jobs / ".half-1")
    for name in ("lost-1", "young-1"):
        (home.logs / "torchx" / name).mkdir()
    age(home.path)
    os.utime(home.logs / "torchx" / "young-1")
    held = locks.acquire(JobPaths(hidden).lock)  # its removal goes on
    assert held is not None
    try:
        age(home.path)
        os.utime(home.logs / "torchx" / "young-1")
        assert pruned(home) == ["logs/torchx/lost-1"]
    finally:
        os.close(held)
    assert pruned(home) == ["logs/torchx/half-1", "jobs/.half-1"]
    assert whole.folder.exists()
    assert (home.logs / "torchx" / "young-1").exists()


def test_logs_of_a_job_that_exists_again_stay(home: Home) -> None:
    paths = job(home, "again-1")
    change(paths)
    (home.jobs / ".again-1").mkdir()
    (home.jobs / ".again-1" / "job.json").write_bytes(paths.record.read_bytes())
    age(home.path)
    assert pruned(home) == ["jobs/.again-1"]
    assert (home.logs / "torchx" / "again-1" / "w").exists()


def image(home: Home, name: str) -> Path:
    folder = home.images / name
    folder.mkdir(parents=True)
    return folder


def test_unused_images_go_unless_submission_may_just_use_them(home: Home) -> None:
    user, other = job(home, "user-1"), job(home, "other-1")
    used, unused, young = (image(home, name * 16) for name in "abc")
    for paths, folder in ((user, used), (other, unused)):
        change(paths, app={"image": str(folder)})
    age(home.path)
    os.utime(young, (time.time() - 0.9 * HOUR,) * 2)
    os.utime(unused, (1, 1))
    (home.images / "unknown").symlink_to("nothing")  # it cannot be seen when it was used last
    (home.jobs / "broken-1").mkdir()  # no record, and no supervisor: it uses nothing
    assert pruned(home, "other-1") == ["jobs/other-1", f"images/{unused.name}"]
    assert pruned(home) == []
    assert used.exists()
    assert young.exists()


def test_no_image_goes_while_job_without_readable_record_runs(home: Home) -> None:
    paths, folder = job(home, "bad-1"), image(home, "a" * 16)
    paths.record.unlink()
    age(home.path)
    held = locks.acquire(paths.lock)
    assert held is not None
    try:
        assert pruned(home) == []
    finally:
        os.close(held)
    assert pruned(home) == [f"images/{folder.name}"]


def test_image_that_is_used_while_it_is_removed_stays(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = image(home, "a" * 16)
    age(folder)

    def rename(self: Path, target: Path) -> Path:
        os.utime(folder) if self == folder else None  # the submission comes at the last moment
        os.rename(self, target)
        return target

    monkeypatch.setattr(Path, "rename", rename)
    assert list(pruning.prune(home, [])) == []
    assert folder.exists()


def test_read_only_folders_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "below" / "deep").mkdir(parents=True)
    (folder / "below" / "deep" / "file").touch()
    (tmp_path / "outside").mkdir(mode=0o500)
    (folder / "link").symlink_to(tmp_path / "outside")
    for path in (folder / "below" / "deep", folder / "below", folder):
        path.chmod(0o500)
    pid = os.fork()
    if pid == 0:  # root may write to a read-only folder
        code = 1
        try:
            if not os.geteuid():
                for path in (tmp_path, tmp_path / "outside", *folder.rglob("*"), folder):
                    os.chown(path, 65534, 65534, follow_symlinks=False)
                os.chdir(tmp_path)  # the folders above are private
                os.setresuid(65534, 65534, 65534)
            remove(Path("folder"))
            code = int(os.path.lexists("folder"))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o500


def test_no_session_folder_is_left_in_folder_of_user(home: Home, tmp_path: Path) -> None:
    """One that is not empty, or that the user has made, stays."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes").touch()
    for session, mode, more in (("torchx", 0o700, ""), ("made", 0o755, ""), ("full", 0o700, "file")):
        paths = job(home, f"job-{session}")
        logs = mine / session / paths.folder.name
        logs.parent.mkdir(mode=mode)
        (home.logs / "torchx" / paths.folder.name).rename(logs)
        change(paths, log_dir=str(logs))
        if more:
            (logs.parent / more).touch()
        pruning.remove_job(paths, logs)
        assert not logs.exists()
    assert sorted(path.name for path in mine.iterdir()) == ["full", "made", "notes"]
    assert (home.logs / "torchx").exists()


def deep(top: Path, depth: int) -> Path:
    """Makes folders below each other, deeper than a path can name; each has a file, some are read-only."""
    before = Path.cwd()
    try:
        os.chdir(top)
        for number in range(depth):
            Path("n" * 100).mkdir()
            Path("file").touch()
            if number % 50 == 0:
                Path().chmod(0o500)
            os.chdir("n" * 100)
    finally:
        os.chdir(before)
    return top


def test_a_deep_tree_is_removed(home: Home) -> None:
    """Deeper than recursion, paths and open files allow."""
    paths = job(home, "job-a")
    (paths.folder / "checkpoints").mkdir()
    deep(paths.folder / "checkpoints", 3000)
    leftover = home.path / "x.partial"
    leftover.mkdir()
    deep(leftover, 3000)
    assert pruning.size(paths.folder) > 0
    then = time.time() - 2 * HOUR
    os.utime(leftover, (then, then))
    assert not pruning._is_stale(leftover), "its parts are new"
    removed = [each.path for each in pruning.prune(home, ["job-a"])]
    assert str(paths.folder) in map(str, removed)
    assert not paths.folder.exists()
    remove(leftover)
    assert not leftover.exists()


def test_a_deep_tree_that_was_restored_is_removed(home: Home) -> None:
    """A program may have run in it."""
    tree = home.restored / "abc"
    tree.mkdir(parents=True)
    provenance.give(deep(tree, 3000), "")
    provenance.discard(tree)
    provenance.discard(tree)  # it is removed
    assert list(home.restored.iterdir()) == []


def test_a_link_in_a_removed_tree_is_not_followed(tmp_path: Path) -> None:
    mine, top = tmp_path / "mine", tmp_path / "top"
    mine.mkdir()
    (mine / "file").touch()
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "link").symlink_to(mine)
    (top / "link").symlink_to(mine)
    remove(top)
    assert (mine / "file").exists()
    assert not top.exists()


def test_what_is_removed_in_meantime_or_is_no_folder(tmp_path: Path) -> None:
    remove(tmp_path / "missing")
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    with pytest.raises(StateError, match="file/x cannot be removed: Not a directory"):
        (tmp_path / "file").touch()
        remove(tmp_path / "file" / "x")


def test_a_list_that_names_removed_jobs_is_shortened(home: Home) -> None:
    job(home, "a-1")
    line = json.loads(home.ended.read_text())
    home.ended.write_text(
        "".join(json.dumps({**line, "app_id": name}, separators=(",", ":")) + "\n" for name in ("a-1", "b-1"))
    )
    list(pruning.prune(home, [], dryrun=True))
    assert set(ended.lines(home)) == {b"a-1", b"b-1"}
    list(pruning.prune(home, []))
    assert set(ended.lines(home)) == {b"a-1"}
