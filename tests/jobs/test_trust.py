"""A path in a record is removed, written to or read only if it is the job's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jobhome import change, job, jobs, states

from torchx.errors import StateError
from torchx.jobs import pruning
from torchx.jobs.paths import Home
from torchx.jobs.view import load
from torchx.schedulers.local.cancel import delete
from torchx.schedulers.local.scheduler import create_cwd_scheduler
from torchx.specs.status import AppState

NOBODY = 65534
as_root = pytest.mark.skipif(bool(os.geteuid()), reason="gives files to another user: run the tests as root")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "precious"
    (folder / "below").mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    return folder


# --- a path in a record is removed, written to or read only if it is the job's own ------------------


@pytest.mark.parametrize("how", ["delete", "prune"])
@pytest.mark.parametrize("steer", ["{0}", "{0}/../precious", "relative", "{0}/x\0y", ""])
def test_a_log_dir_that_leads_elsewhere_removes_nothing(
    home: Home, precious: Path, how: str, steer: str
) -> None:
    paths, good = job(home, "bad-1"), job(home, "good-1")
    change(paths, log_dir=steer.format(precious))
    assert states(home) == {"bad-1": AppState.UNKNOWN, "good-1": AppState.SUCCEEDED}
    if how == "delete":
        delete(jobs(home), "bad-1")
    else:
        assert [each.app_id for each in pruning.prune(home, ["bad-1"])] == ["bad-1"]
    assert (precious / "thesis.tex").read_text() == "years of work"
    assert not paths.folder.exists()
    assert not (home.logs / "torchx" / "bad-1").exists(), "its own logs go with it"
    assert good.folder.exists()


@pytest.mark.parametrize("how", ["delete", "prune"])
@pytest.mark.parametrize("what", ["other files", "a link", "another user's"])
def test_log_folder_that_is_not_jobs_own_is_left(
    home: Home, precious: Path, tmp_path: Path, how: str, what: str
) -> None:
    paths = job(home, "bad-1")
    logs = tmp_path / "torchx" / "bad-1"  # of the right name, and with the right session above it
    logs.parent.mkdir()
    if what == "a link":
        logs.symlink_to(precious)
    else:
        precious.rename(logs)
    if what == "another user's":
        if os.geteuid():
            pytest.skip("gives files to another user: run the tests as root")
        (logs / "log.index").touch()
        os.chown(logs, NOBODY, NOBODY)
    change(paths, log_dir=str(logs))
    with pytest.raises(StateError, match="is removed, but not its logs"):
        delete(jobs(home), "bad-1") if how == "delete" else list(pruning.prune(home, ["bad-1"]))
    assert (logs / "thesis.tex").read_text() == "years of work"
    assert not paths.folder.exists()


def test_half_removed_job_names_only_its_own_folder(home: Home, precious: Path) -> None:
    """A prune reads the record of a delete that was killed half-way, and believes no path in it."""
    paths = job(home, "half-1")
    change(paths, log_dir=str(precious))
    going = paths.folder.rename(home.jobs / ".half-1")
    for each in [*precious.rglob("*"), precious, *home.path.rglob("*")]:
        os.utime(each, (1000.0, 1000.0))
    removed = [each.path for each in pruning.prune(home, [])]
    assert str(precious) not in removed
    assert (precious / "thesis.tex").exists()
    assert not going.exists()


@pytest.mark.parametrize("what", ["other files", "a link"])
def test_half_removed_job_takes_nothing_of_its_name_along(
    home: Home, precious: Path, tmp_path: Path, what: str
) -> None:
    paths, logs = job(home, "half-1"), tmp_path / "torchx" / "half-1"
    logs.parent.mkdir()
    logs.symlink_to(precious) if what == "a link" else precious.rename(logs)
    change(paths, log_dir=str(logs))
    paths.folder.rename(home.jobs / ".half-1")
    for each in [*tmp_path.rglob("*"), *home.path.rglob("*")]:
        os.utime(each, (1000.0, 1000.0))
    list(pruning.prune(home, []))
    assert (logs / "thesis.tex").exists()
    assert not list(home.jobs.iterdir())


def test_logs_of_no_job_are_removed_only_in_logs(home: Home, precious: Path) -> None:
    paths = job(home, "gone-1")
    job(home, "kept-1")
    pruning.remove(paths.folder)
    (home.logs / "torchx" / "not-logs").mkdir()
    (home.logs / "torchx" / "not-logs" / "thesis.tex").touch()
    (home.logs / "linked").symlink_to(precious)
    for each in [*precious.rglob("*"), *home.path.rglob("*")]:
        os.utime(each, (1000.0, 1000.0))
    removed = [Path(each.path).name for each in pruning.prune(home, [])]
    assert removed == ["gone-1"]
    assert (precious / "below").is_dir()


def test_what_was_half_removed_takes_its_own_logs_along(home: Home) -> None:
    paths = job(home, "half-1")
    paths.folder.rename(home.jobs / ".half-1")
    for each in home.path.rglob("*"):
        os.utime(each, (1000.0, 1000.0))
    list(pruning.prune(home, []))
    assert not list(home.jobs.iterdir())
    assert not (home.logs / "torchx" / "half-1").exists()


def test_nothing_is_written_where_a_record_leads(home: Home, precious: Path) -> None:
    paths = job(home, "bad-1")
    paths.events.unlink()  # as if its supervisor had been killed: it is brought to an end now
    link = precious.parent / "torchx"
    link.mkdir()
    (link / "bad-1").symlink_to(precious)
    change(paths, log_dir=str(link / "bad-1"))
    assert states(home) == {"bad-1": AppState.FAILED}
    assert sorted(each.name for each in precious.iterdir()) == ["below", "thesis.tex"]
    with pytest.raises(StateError, match="is not a folder of this user"):
        from torchx.scheduling.logs import LogQuery

        create_cwd_scheduler("torchx").log_chunks("bad-1", LogQuery())


def test_a_record_of_another_job_is_damaged(home: Home) -> None:
    one, two = job(home, "one-1"), job(home, "two-1")
    two.record.write_bytes(one.record.read_bytes())
    with pytest.raises(StateError, match="it is the record of another job"):
        load(two)
