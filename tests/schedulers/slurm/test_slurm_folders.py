"""The two folders of a job with `job_dir`: the files of the job are in the one that its nodes share."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slurmscripts import run_script, write_files

from torchx.errors import StateError
from torchx.schedulers.shared.batch.batch_log import last_error_line, log_tail
from torchx.schedulers.shared.batch.folders import mark_cancelled, remove_folders
from torchx.schedulers.shared.batch.marks import Mark, mark_of
from torchx.schedulers.shared.batch.outcome import Outcome
from torchx.schedulers.shared.batch.paths import BatchPaths
from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.shared.batch.script import script_by_hand
from torchx.schedulers.shared.batch.workspaces import WorkspaceCopy, fallback_folder
from torchx.schedulers.slurm.outcome import outcome_of
from torchx.schedulers.slurm.parse import JobFacts
from torchx.schedulers.slurm.request import to_request
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.schedulers.slurm.status import describe, unshared_folder
from torchx.schedulers.slurm.submit import submit
from torchx.specs import AppDef, AppState, Role
from torchx.workspace.tree import scan_unfiltered

ADVICE = "set -cfg job_dir=FOLDER shared with all nodes"


def echo(command: str = "echo here", **settings: Any) -> AppDef:
    return AppDef("a", [Role("r", "", entrypoint="sh", args=["-c", command.replace("$", "$$")], **settings)])


def record(folder: Path, fallback: Path | None = None) -> BatchRecord:
    other = str(fallback or "")
    return BatchRecord(7, "b1", "a", "a-b1", "torchx", str(folder), 1e9, {"name": "a"}, fallback=other)


def test_the_mark_has_both_folders() -> None:
    marks = [Mark("b1", Path("/a b/jobs/x-b1")), Mark("b1", Path("/a:b/jobs/x-b1"), Path("/ü/jobs/x-b1"))]
    for mark in marks:
        assert mark_of(f"my comment {mark}") == mark


def test_a_record_without_job_dir_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jobs" / "a-b1"
    folder.mkdir(parents=True)
    Records("slurm").add(record(folder))
    assert "fallback" not in json.loads((folder / "job.json").read_text())
    (found,) = Records("slurm").all()

    def no_call(*args: object, **options: object) -> None:
        raise AssertionError("a system call")

    with monkeypatch.context() as patch:
        for name in ("stat", "lstat", "open", "access"):
            patch.setattr(os, name, no_call)
        assert found.paths == BatchPaths(folder)


def test_files_stay_in_fallback_folder_after_a_run(tmp_path: Path) -> None:
    folders = [tmp_path / name / "jobs" / "a-b1" for name in ("own", "home")]
    for folder in folders:
        folder.mkdir(parents=True)
    Records("slurm").add(record(*folders))
    (found,) = Records("slurm").all()
    assert found.paths.folder == folders[0]
    assert all((folder / "job.json").exists() for folder in folders)
    (folders[1] / "id").write_text("7\n")
    assert found.paths == BatchPaths(folders[1], folders[0])


def test_a_job_is_cancelled_and_removed_in_both_folders(tmp_path: Path) -> None:
    """Before its start, the folder that its nodes share is not known yet."""
    folders = [tmp_path / name / "jobs" / "a-b1" for name in ("own", "home")]
    for folder in folders:
        folder.mkdir(parents=True)
    both = record(*folders)
    mark_cancelled(both)
    assert [(folder / "cancelled").exists() for folder in folders] == [True, True]
    Records("slurm").add(both)
    assert create_scheduler("torchx").provenance_folder("7") == folders[0] / ".provenance"
    shutil.rmtree(folders[0])  # as on another login node
    assert create_scheduler("torchx").provenance_folder("7") == folders[1] / ".provenance"
    remove_folders(both)
    assert [folder.exists() for folder in folders] == [False, False]


@pytest.mark.parametrize(
    ("before", "now", "numbers"),
    [([], [2], [2]), ([1], [2], [1, 2]), ([1, 2, 3], [2, 3], [1, 2, 3, 4, 5]), ([1, 2], [], [1, 2])],
)
def test_attempts_continue_those_in_the_other_folder(
    tmp_path: Path, before: list[int], now: list[int], numbers: list[int]
) -> None:
    paths = BatchPaths(tmp_path / "home", tmp_path / "own")
    for folder, attempts in ((tmp_path / "own", before), (tmp_path / "home", now)):
        for number in attempts:
            (folder / "r" / "0" / f"attempt-{number}").mkdir(parents=True)
    found = paths.attempts("r", 0)
    assert [number for number, _ in found] == numbers
    assert [int(path.name[8:]) for _, path in found] == before + now


def test_default_and_link_to_it_need_no_second_folder(tmp_path: Path) -> None:
    default = Path(os.environ["TORCHX_HOME"]) / "slurm"
    default.mkdir(parents=True)
    (tmp_path / "link").symlink_to(default)
    assert [fallback_folder("slurm", {"job_dir": str(path)}) for path in (default, tmp_path / "link")] == [
        None
    ] * 2
    assert fallback_folder("slurm", {"job_dir": str(tmp_path / "other")}) == default
    assert "fallback" not in to_request(echo(), {}, "torchx", {}).script


class TwoFolders:
    """A submitted job whose script runs on this machine, as on its only node."""

    def __init__(self, home: Path, app: AppDef, copies: dict[str, WorkspaceCopy] | None = None) -> None:
        self.home = home
        self.job_dir = home / "disk"
        self.request = to_request(app, {"job_dir": str(self.job_dir)}, "torchx", copies or {})
        self.own, self.fallback = self.request.folders
        for folder in self.request.folders:
            write_files(self.request.files, folder)

    def run(self, script: str = "", **env: str) -> int:
        return run_script(script or self.request.script, self.own, self.home / "bin", **env).returncode

    def outputs(self, folder: Path) -> list[str]:
        return [path.read_text() for path in sorted(folder.glob("r/0/attempt-*/combined.log"))]


def test_a_node_that_shares_job_dir_writes_only_there(tmp_path: Path) -> None:
    job = TwoFolders(tmp_path, echo())
    assert job.run() == 0
    assert job.outputs(job.own) == ["here\n"]
    assert not (job.fallback / "id").exists()
    assert not list(job.own.rglob(".node/check-*"))


def test_node_without_shared_job_dir_uses_state_home(tmp_path: Path) -> None:
    job = TwoFolders(tmp_path, echo("ls -d $0/torchx-*/combined.log".replace("$0", str(tmp_path / "disk"))))
    shutil.rmtree(job.own)
    assert job.run() == 0
    (text,) = job.outputs(job.fallback)
    assert text.startswith(f"{job.job_dir}/torchx-")
    assert list(job.job_dir.glob("torchx-*")) == []
    assert not job.own.exists()


def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    job = TwoFolders(tmp_path, echo())
    if os.geteuid() == 0:
        os.chown(job.own / ".node" / "batch.sh", 12345, 12345)
    else:
        shutil.move(job.own, tmp_path / "elsewhere")
        job.own.symlink_to(tmp_path / "elsewhere")
    assert job.run() == 0
    assert job.outputs(job.own) == []
    assert job.outputs(job.fallback) == ["here\n"]


def test_a_requeued_job_stays_in_the_state_home(tmp_path: Path) -> None:
    """Its files and checkpoints are there, although its next node shares the other folder."""
    job = TwoFolders(tmp_path, echo())
    shutil.move(job.own, tmp_path / "hidden")
    assert job.run() == 0
    shutil.move(tmp_path / "hidden", job.own)
    assert job.run(SLURM_RESTART_COUNT="1") == 0
    assert job.outputs(job.fallback) == ["here\n"] * 2
    assert job.outputs(job.own) == []


def test_checkpoints_in_the_other_folder_are_noted(tmp_path: Path) -> None:
    """Those of the first run are in a folder that the node of the second run does not share."""
    job = TwoFolders(tmp_path, echo())
    assert job.run() == 0
    shutil.move(job.own, tmp_path / "hidden")
    for count in ("1", "2"):
        assert job.run(SLURM_RESTART_COUNT=count) == 0
    log = (job.fallback / "batch.log").read_text()
    assert log.count(f"checkpoints of earlier runs are in {job.own}, which is not shared with n\n") == 1


@pytest.mark.parametrize("task", [None, "3"])
def test_a_retry_in_the_other_folder_counts(tmp_path: Path, task: str | None) -> None:
    """Otherwise the job would have one retry more, and a failure would count as a run."""
    app = echo("exit 3", max_retries=1)
    env = {} if task is None else {"SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_JOB_ID": "70"}
    job = TwoFolders(tmp_path, app)
    folders = [
        folder if task is None else folder.with_name(f"{folder.name}-{task}")
        for folder in job.request.folders
    ]
    assert job.run(**env) == 3
    assert not (folders[0] / "over").exists(), "it is requeued"
    assert not (folders[1] / "id").exists()
    shutil.move(job.own, tmp_path / "hidden")
    assert job.run(SLURM_RESTART_COUNT="1", **env) == 3
    assert (folders[1] / "over").exists(), "it has ended"
    assert (folders[1] / ".run").read_text() == "1\n"


def test_a_script_by_hand_writes_both_folders(tmp_path: Path) -> None:
    job = TwoFolders(tmp_path, echo())
    for folder in job.request.folders:
        shutil.rmtree(folder)
    assert job.run(script_by_hand(job.request.script, job.request.files)) == 0
    assert job.outputs(job.own) == ["here\n"]
    assert (job.fallback / "role-0.sh").read_bytes() == (job.own / "role-0.sh").read_bytes()


@pytest.mark.parametrize("second", [True, False])
def test_the_workspace_has_to_reach_the_node(tmp_path: Path, second: bool) -> None:
    digest, home = "0123456789abcdef", Path(os.environ["TORCHX_HOME"]) / "slurm"
    (tmp_path / "empty").mkdir()
    tree = scan_unfiltered(str(tmp_path / "empty"))
    copied = WorkspaceCopy(str(tmp_path / "disk" / "workspaces" / digest), tree)
    job = TwoFolders(tmp_path, echo("pwd"), {"r": copied})
    shutil.rmtree(job.own)
    if second:
        (home / "workspaces" / digest).mkdir(parents=True)
        assert job.run() == 0
        assert job.outputs(job.fallback) == [f"{home}/workspaces/{digest}\n"]
        return
    assert job.run() == 73
    made = BatchRecord(
        77, job.request.token, "a", job.request.name, "torchx", str(job.own), 1e9,
        {"name": "a", "roles": [{"name": "r", "num_replicas": 1}]}, fallback=str(job.fallback),
    )  # fmt: skip
    outcome = outcome_of(made, ())
    assert outcome is not None
    assert outcome.state is AppState.FAILED
    expected = f"{job.job_dir}, with the workspace, is not shared with n; {ADVICE}"
    assert describe(made, "77", outcome, ()).msg == expected


def failed(record: BatchRecord, code: int | None, reason: str = "NonZeroExitCode") -> str:
    outcome = outcome_of(
        record, [JobFacts(7, 0, "FAILED", reason, "a-b1", "", "me", "node[2-3]", exit_code=code)]
    )
    assert outcome is not None
    return outcome.msg


def test_a_script_that_finds_no_folder_is_explained(tmp_path: Path) -> None:
    folder, other = tmp_path / "a" / "jobs" / "a-b1", tmp_path / "b" / "jobs" / "a-b1"
    folder.mkdir(parents=True)
    end = f"shared with node2; {ADVICE}"
    assert failed(record(folder, other), 73) == f"neither {tmp_path}/a nor {tmp_path}/b is {end}"
    assert failed(record(folder), 73) == f"{tmp_path}/a is not {end}"
    assert failed(record(folder), None) == f"{tmp_path}/a is not {end}", "without accounting"
    assert failed(record(folder), 1) == ""
    (folder / "attempt").write_text("1\n")
    assert failed(record(folder), None) == ""


def test_a_job_that_is_not_submitted_leaves_no_folder(tmp_path: Path) -> None:
    request = to_request(echo(), {"job_dir": str(tmp_path / "disk")}, "torchx", {})
    with pytest.raises(StateError, match="Slurm"):
        submit(request, echo(), {}, "torchx")
    assert [folder.parent.exists() for folder in request.folders] == [True, True]
    assert [folder.exists() for folder in request.folders] == [False, False]


@pytest.mark.parametrize(
    "message", ["/usr/bin/sh: 0: cannot open {0}: No such file", "sh: {0}: No such file or directory"]
)
def test_node_without_folder_is_named_after_end_of_others(tmp_path: Path, message: str) -> None:
    paths = BatchPaths(tmp_path / "slurm" / "jobs" / "a-b1")
    paths.folder.mkdir(parents=True)
    lines = [
        "== attempt 1",
        f"srun: error: node[2-3]: tasks 1-2: Exited with exit code {2 if '0:' in message else 127}",
        message.format(paths.folder / "role-0.sh"),
        "slurmstepd-node1: error: *** STEP 1530.0 ON node1 CANCELLED AT 2026-11-27T12:48:58 ***",
        "srun: error: node1: task 0: Exited with exit code 143",
    ]
    paths.batch_log.write_text("\n".join(lines) + "\n")
    assert unshared_folder(paths, log_tail(paths)).startswith(
        f"{tmp_path / 'slurm'} is not shared with node2; "
    )
    (paths.folder / "first").write_text("143 0\n")  # srun has ended the step, no other command
    own = replace(record(paths.folder), app={"roles": [{"name": "r"}]})
    ended = describe(own, "7", Outcome(AppState.FAILED, exit_code=143), ())
    assert ended.msg.startswith(f"{tmp_path / 'slurm'} is not shared with node2; ")
    # dash writes its message and the end of its line apart: srun may write a line between
    between = f"{lines[2]}{lines[1]}\n"
    paths.batch_log.write_text("\n".join([lines[0], between, *lines[3:]]) + "\n")
    assert unshared_folder(paths, log_tail(paths)).startswith(
        f"{tmp_path / 'slurm'} is not shared with node2; "
    )
    paths.batch_log.write_text("\n".join([lines[0], lines[1], *lines[3:]]) + "\n")
    assert last_error_line(log_tail(paths)) == "node1: task 0: Exited with exit code 143"
