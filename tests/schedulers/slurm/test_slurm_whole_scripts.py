"""Whole scripts of Slurm jobs, run on this machine with a `srun` that starts one task."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from canary import open_files
from slurmscripts import context, made, run_script, write_files

from torchx.schedulers.shared.batch.paths import BatchPaths
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.shared.batch.script import files_of, script_of
from torchx.schedulers.slurm.outcome import outcome_of
from torchx.schedulers.slurm.parse import JobFacts
from torchx.specs import AppDef, Role


def test_all_that_script_makes_is_private_whatever_umask(tmp_path: Path) -> None:
    folder, shown = tmp_path / "above" / "jobs" / "a", tmp_path / "made-by-the-program"
    role = Role("r", "", entrypoint="sh", args=["-c", f"echo out; touch {shown}; exit 3"], env={"A": "b"})
    assert run_script(made(AppDef("a", [role]), str(folder)), folder, tmp_path / "bin").returncode == 3
    assert (folder / "r" / "0" / "attempt-1" / "end.json").is_file()
    assert open_files(tmp_path / "above") == []
    assert shown.stat().st_mode & 0o777 == 0o666, "the program has the umask of its owner"


def test_script_follows_no_link_and_no_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    script = made(AppDef("a", [Role("r", "", entrypoint="true")]), str(tmp_path / "link"))
    assert run_script(script, tmp_path, tmp_path / "bin").returncode == 73
    if os.geteuid() == 0:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65534, 65534)
        script = made(AppDef("a", [Role("r", "", entrypoint="true")]), str(tmp_path / "theirs"))
        assert run_script(script, tmp_path, tmp_path / "bin").returncode == 73
    assert [path for name in ("elsewhere", "theirs") for path in (tmp_path / name).glob("*")] == []


def test_role_that_has_left_no_end_is_no_success(tmp_path: Path) -> None:
    script = made(AppDef("a", [Role("r", "", entrypoint="true")]), str(tmp_path / "f"))
    assert run_script(script, tmp_path / "f", tmp_path / "bin").returncode == 0
    assert (tmp_path / "f" / "over").read_text().split()[::3] == ["77", "1"]
    silent = script.replace('    echo "$ended" > "$folder/.ended-$1"\n', "\n").replace("/f", "/g")
    assert silent != script
    assert run_script(silent, tmp_path / "g", tmp_path / "bin").returncode == 1


@pytest.mark.parametrize(("run", "code"), [(":", 1), ('"$@"', 0)], ids=["not started", "ended"])
def test_a_node_that_fails_while_srun_starts_the_replicas(tmp_path: Path, run: str, code: int) -> None:
    """Then srun exits with 0; it also reports a node that fails after the end of its replicas."""
    (tmp_path / "first").mkdir()
    srun = tmp_path / "first" / "srun"
    options = 'while [ "${1#--}" != "$1" ]; do shift; done; export SLURM_PROCID=0'
    srun.write_text(f"#!/bin/sh\n{options}\n{run}\nprintf 'sh: srun: error: Node failure on node1\\n' >&2\n")
    srun.chmod(0o755)
    script = made(AppDef("a", [Role("r", "", entrypoint="true")]), str(tmp_path / "f"))
    path = f"{srun.parent}:{tmp_path}/bin:{os.environ['PATH']}"
    assert run_script(script, tmp_path / "f", tmp_path / "bin", PATH=path).returncode == code
    assert (tmp_path / "f" / "over").read_text().split()[1] == str(code)


@pytest.mark.parametrize("name", ["over", "id", "cancelled", "job.json", ".hidden", "role-0.sh"])
def test_role_may_be_called_like_file_of_job(tmp_path: Path, name: str) -> None:
    script = made(AppDef("a", [Role(name, "", entrypoint="echo", args=["ran"])]), str(tmp_path / "f"))
    assert run_script(script, tmp_path / "f", tmp_path / "bin").returncode == 0
    assert (BatchPaths(tmp_path / "f").replica(name, 0) / "attempt-1" / "stdout.log").read_text() == "ran\n"


def test_the_script_for_sbatch_reads_the_files_beside_it(tmp_path: Path) -> None:
    """A second job of it has a copy of them: the first may be deleted while it runs."""
    given, folder = AppDef("a", [Role("r", "", entrypoint="echo", args=["ran"])]), tmp_path / "f"
    write_files(files_of(given, {}, context(str(folder))), folder)
    script = script_of(given, {}, context(str(folder)))
    assert run_script(script, folder, tmp_path / "bin").returncode == 0
    assert (folder / "r" / "0" / "attempt-1" / "stdout.log").read_text() == "ran\n"
    assert run_script(script, folder, tmp_path / "bin", SLURM_JOB_ID="78").returncode == 0
    for name in ("role-0.sh", ".node/agent.py", "r/0/attempt-1/end.json"):
        assert (tmp_path / "f-78" / name).is_file()


def test_a_full_disk_of_the_folder_is_named(tmp_path: Path) -> None:
    """The kernel lets the script write nothing to a file, as on a full disk."""
    script = made(AppDef("a", [Role("r", "", entrypoint="true")]), str(tmp_path / "jobs" / "a-b1"))
    begin = "open_job\n"
    assert (
        run_script(
            script.replace(f"\n{begin}", f"\ntrap '' XFSZ; ulimit -f 0; {begin}"), tmp_path, tmp_path / "bin"
        ).returncode
        == 74
    )
    assert not (tmp_path / "jobs" / "a-b1" / "id").exists()
    record = BatchRecord(7, "b1", "a", "a-b1", "torchx", str(tmp_path / "jobs" / "a-b1"), 1.0, {"roles": []})
    facts = JobFacts(7, 0, "FAILED", "NonZeroExitCode", "a-b1", nodes="node[1-2]", exit_code=74)
    found = outcome_of(record, (), [facts])
    assert found is not None
    assert found.msg == f"node1 cannot write to {tmp_path}/jobs/a-b1: its disk is full"
