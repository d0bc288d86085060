"""Recipes from public bug reports: large and odd inputs, on every engine that they concern."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from program import COMMAND, environment, torchx

from torchx.errors import UsageError
from torchx.schedulers import create_scheduler
from torchx.specs import AppDef, Role, Workspace
from torchx_cli.environment import read_env_file

ENGINES = ("local_cwd", "local_docker", "slurm", "kubernetes")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_large_workspace_is_rejected_before_it_is_read(engine: str, tmp_path: Path) -> None:
    """It has a sparse file of 20 GB, small files, links to its parents, and a socket."""
    with (tmp_path / "sparse.bin").open("wb") as file:
        file.truncate(20 << 30)
    for n in range(300):
        (tmp_path / f"small-{n}").write_text("x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to("..")
    (tmp_path / "loop").symlink_to(".")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/s")  # the path of a socket has at most 107 bytes
        os.close(folder)
        role = Role("r", "img", entrypoint="true", workspace=Workspace({str(tmp_path): ""}))
        with pytest.raises(UsageError, match=r"most of it is sparse.bin \(21,475 MB\)"):
            create_scheduler(engine, "s").submit_dryrun(AppDef("a", [role]), {})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "KiB"


def deep(folder: Path, length: int) -> Path:
    """Makes folders until their path has this length, step by step, as the system limits a path."""
    here = os.open(folder, os.O_RDONLY)
    path = str(folder)
    while len(path) < length:
        name = "d" * min(100, max(length - len(path) - 1, 1))
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here, path = below, f"{path}/{name}"
    os.close(here)
    return Path(path)


@pytest.mark.parametrize("length", [300, 3900])
def test_long_paths_work_for_local_jobs(length: int, tmp_path: Path) -> None:
    home, workspace = deep(tmp_path, length), tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a").write_text("hi")
    env = {"TORCHX_HOME": str(home), "TMPDIR": str(tmp_path)}
    line = ["run", "-s", "local_cwd", "--workspace", str(workspace), "utils.sh", "cat", "a"]
    done = torchx(*line, env=env)
    assert done.returncode == 0, done.stderr
    assert "hi" in done.stderr
    handle = done.stdout.split()[0]
    for command in ("status", "log", "describe", "delete"):
        assert torchx(command, handle, env=env).returncode == 0, command


def test_file_of_variables_is_read_as_editors_write_it(tmp_path: Path) -> None:
    """A byte order mark, line ends of Windows, `export`, quotes, and no line end at the end."""
    path = tmp_path / "x.env"
    data = b"\xef\xbb\xbfA=1\r\nexport B=\"q # x\"\r\n\r\n# no\r\nC='s q'\r\nD=a#b\r\nE=\r\n"
    path.write_bytes(data + "F=a\u2028b\u0085c".encode())
    expected = {"A": "1", "B": "q # x", "C": "s q", "D": "a#b", "E": "", "F": "a\u2028b\u0085c"}
    assert dict(read_env_file(str(path))) == expected


ODD = {
    b"a.b": b"1",
    b"a-b": b"2",
    b"LINES_OF": b"x\ny",
    b"BYTES": b"\xff\xfe",
    b"BASH_FUNC_f%%": b"() {  :\n}",
}
PRINT = "import os; print(sorted(os.environb[name] for name in {names} if name in os.environb))"


def test_odd_variables_reach_a_local_job_and_its_rerun() -> None:
    env = {os.fsencode(name): os.fsencode(value) for name, value in environment().items()} | ODD
    code = PRINT.format(names=list(ODD))
    command = [
        *COMMAND,
        "run",
        "-s",
        "local_cwd",
        "utils.binary",
        "--entrypoint",
        sys.executable,
        "--",
        "-c",
        code,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert str(sorted(ODD.values())) in done.stderr
    handle = done.stdout.split()[0]
    again = subprocess.run([*COMMAND, "rerun", handle], capture_output=True, text=True, env=env, timeout=120)
    assert str(sorted(ODD.values())) in again.stderr, again.stderr


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["a.b", "a-b", "X Y", "1A", ""])
def test_odd_names_of_variables_are_rejected_by_the_flag(engine: str, name: str) -> None:
    done = torchx("run", "--dryrun", "-s", engine, "--env", f"{name}=1", "utils.sh", "--image", "x", "true")
    assert done.returncode == 2
    assert f"--env takes the name of a variable, got `{name}`" in done.stderr


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", ["-5m", "0", "1e9h", "nan", "99999999999999999999d"])
def test_impossible_durations_are_one_line(engine: str, value: str) -> None:
    with pytest.raises(UsageError, match="time_limit"):
        create_scheduler(engine, "s").submit_dryrun(
            AppDef("a", [Role("r", "img", entrypoint="true")]), {"time_limit": value}
        )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("option", ["retry_backoff", "grace_period"])
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_impossible_seconds_are_one_line(engine: str, option: str, value: float) -> None:
    with pytest.raises(UsageError, match=option):
        create_scheduler(engine, "s").submit_dryrun(
            AppDef("a", [Role("r", "img", entrypoint="true")]), {option: value}
        )
