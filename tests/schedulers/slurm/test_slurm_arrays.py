"""Job arrays on a machine whose programs of Slurm are scripts: options, files, repeated submissions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurms import configure_no_controller
from slurmscripts import context, run_script, write_files
from support import wait_until

from torchx.errors import StateError
from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.shared.batch.script import files_of, script_of
from torchx.schedulers.slurm import commands as slurm_client
from torchx.schedulers.slurm.scheduler import SlurmScheduler, create_scheduler
from torchx.schedulers.slurm.sweeps.submit import token_of
from torchx.scheduling.base import ManyRuns
from torchx.specs import AppDef, AppState, Resource, Role

SBATCH = """\
#!/bin/sh
test "$1" != --help || exec echo "--job-name --comment --output --cpus-per-task --mem-per-cpu --dependency"
cat >> "$0.scripts"
echo "$*" >> "$0.calls"
test ! -e "$0.kills" || { kill -9 $PPID; exit; }
id=$((100 + $(wc -l < "$0.calls")))
test ! -e "$0.fails-$id" || { echo 'sbatch: error: no more jobs' >&2; exit 1; }
echo $id
"""
SCONTROL = '#!/bin/sh\necho "$*" >> "$0.calls"\necho "MaxArraySize            = ${MAX_ARRAY:-4}"\n'
SQUEUE = """\
#!/bin/sh
test -e "$0.facts" || exit 0
for arg; do case $arg in --format=*) format=${arg#--format=};; esac; done
echo "$format" | sed -e "s|%i|101_1|; s|%A|101|; s|%T|RUNNING|; s|%k|torchx:$(cat "$0.facts"):/x|; s|%.||g"
"""
OTHERS = {"sacct": "exit 1", "scancel": 'echo "$*" >> "$0.calls"', "srun": "", "sinfo": "echo 1"}
SECRET = "only-in-a-private-file"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the programs of that machine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    texts = {"sbatch": SBATCH, "scontrol": SCONTROL, "squeue": SQUEUE}
    for name, text in {**texts, **{name: f"#!/bin/sh\n{text}\n" for name, text in OTHERS.items()}}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    configure_no_controller(monkeypatch, tmp_path)
    slurm_client.options_of.cache_clear()
    yield folder
    slurm_client.options_of.cache_clear()


def many(count: int, key: str = "train-b1", **changes: Any) -> ManyRuns:
    def app(number: int) -> AppDef:
        env = {"NUMBER": str(number), "SECRET": f"{SECRET}-{number}"}
        role = Role("r", "", entrypoint="echo", args=[f"run {number}"], env=env, resource=Resource(1, 0, 100))
        return AppDef("train", [role])

    return ManyRuns(key, {number: app(number) for number in range(1, count + 1)}, **changes)


def calls(programs: Path, name: str = "sbatch") -> list[str]:
    path = programs / f"{name}.calls"
    return path.read_text().splitlines() if path.exists() else []


def scheduler() -> SlurmScheduler:
    return create_scheduler("torchx")


def test_several_arrays_have_one_limit_and_private_files(programs: Path) -> None:
    umask = os.umask(0)
    try:
        ids = scheduler().submit_many(many(7, at_once=2))
    finally:
        os.umask(umask)
    assert ids == {1: "101_1", 2: "101_2", 3: "101_3", 4: "102_1", 5: "102_2", 6: "102_3", 7: "103_1"}
    assert calls(programs) == [
        "--parsable --array=1-3%2",
        "--parsable --array=1-3%2 --dependency=afterany:101 --kill-on-invalid-dep=yes",
        "--parsable --array=1%2 --dependency=afterany:102 --kill-on-invalid-dep=yes",
    ]
    seen = (programs / "sbatch.scripts").read_text()
    assert SECRET not in seen
    assert "run 1" not in seen
    (record,) = (record for record in Records("slurm").all() if record.key == "102_2")
    assert f"{SECRET}-5" in (record.paths.folder / "role-0.sh").read_text()
    assert record.app["roles"][0]["args"] == ["run 5"]
    for path in [record.paths.folder.parent, *record.paths.folder.parent.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    scheduler().delete_many(["101_1", "101_2"])
    assert scheduler().submit_many(many(7, at_once=2))[7] == "103_1"
    assert len(calls(programs)) == 3
    scheduler().delete_many([*ids.values()])
    assert [*record.paths.folder.parent.iterdir()] == []
    assert [*Records("slurm").all()] == []


def test_dependencies_and_the_reasons_of_a_rejection(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = [("5", "ok"), ("6_2", "failed"), ("7", "any"), ("8", "ok")]
    scheduler().submit_many(many(2, after=after, cfg={"dependency": "after:3"}, behind=["90_1", "90_2"]))
    (call,) = calls(programs)
    expected = "afterok:5:8,afterany:7,afternotok:6_2,afterany:90,after:3"
    assert call == f"--parsable --array=1-2 --dependency={expected} --kill-on-invalid-dep=yes"
    two = many(1)
    two.first.roles.append(Role("other", "", entrypoint="true"))
    assert "several roles" in scheduler().rejects_many(two)
    assert "any of several" in scheduler().rejects_many(many(1, cfg={"dependency": "afterok:1?afterok:2"}))
    assert "assigned again" in scheduler().rejects_many(many(1, after=[("5@b1", "ok")]))
    assert scheduler().rejects_many(many(1)) == ""
    monkeypatch.setenv("MAX_ARRAY", "0")
    assert "switched off" in scheduler().rejects_many(many(1))


def test_a_rejected_array_withdraws_those_before(programs: Path) -> None:
    (programs / "sbatch.fails-102").touch()
    with pytest.raises(StateError, match="no more jobs"):
        scheduler().submit_many(many(5))
    assert calls(programs, "scancel") == ["101"]
    assert [*Records("slurm").all()] == []
    assert [*(Path(os.environ["TORCHX_HOME"]) / "slurm/jobs").iterdir()] == []


@pytest.mark.parametrize("known", [True, False])
def test_killed_submission_is_repeated_only_without_a_job(programs: Path, known: bool) -> None:
    (programs / "sbatch.kills").touch()
    code = "import test_slurm_arrays as t; t.scheduler().submit_many(t.many(2))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=env, timeout=120, check=False)
    assert done.returncode == -9
    (programs / "sbatch.kills").unlink()
    if known:
        (programs / "squeue.facts").write_text(token_of("train-b1/0"))
    ids = scheduler().submit_many(many(2))
    assert ids == ({1: "101_1", 2: "101_2"} if known else {1: "102_1", 2: "102_2"})
    assert len(calls(programs)) == (1 if known else 2)
    assert {record.key for record in Records("slurm").all()} == {*ids.values()}


def test_task_missing_in_slurm_was_cancelled_before_start(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = scheduler().submit_many(many(2))
    monkeypatch.setattr("torchx.schedulers.slurm.outcome.TASK_GAP", 0.0)
    found = scheduler().glance_many([*ids.values(), "999_1"])
    assert {app_id: status.state for app_id, status in found.items()} == {
        "101_1": AppState.CANCELLED,
        "101_2": AppState.CANCELLED,
    }
    assert found["101_1"].msg == "cancelled before its start"


def test_a_limit_is_changed_in_the_queue(programs: Path) -> None:
    ids = scheduler().submit_many(many(4))
    scheduler().limit_many(ids.values(), 3)
    changes = [call for call in calls(programs, "scontrol") if call.startswith("update")]
    assert changes[:2] == ["update JobId=101 ArrayTaskThrottle=3", "update JobId=102 ArrayTaskThrottle=3"]


def test_task_has_its_own_folder_and_job(tmp_path: Path) -> None:
    first, task = tmp_path / "train-b1", tmp_path / "train-b1-3"
    role = Role("r", "", entrypoint="sh", args=["-c", "echo $$TORCHX_JOB_ID ${app_id}"])
    given = AppDef("train", [role])
    files = files_of(given, {}, context(str(first)))
    write_files({name: text for name, text in files.items() if not name.startswith("role-")}, first)
    write_files({"role-0.sh": files["role-0.sh"]}, task)
    script = script_of(given, {}, context(str(first)))
    env = {"SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3"}
    done = run_script(script, first, tmp_path / "bin", **env)
    assert done.returncode == 0, done.stderr
    assert (task / "id").read_text() == "70_3\n"
    output = task / "r/0/attempt-1/combined.log"
    wait_until(output.exists, "the log exists")
    assert output.read_text() == "slurm://s/70_3 70_3\n"
    again = run_script(script, first, tmp_path / "bin", SLURM_ARRAY_JOB_ID="71", SLURM_ARRAY_TASK_ID="3")
    assert again.returncode == 73
    assert not (task / "r/0/attempt-2").exists()
    assert not (first / "id").exists()
