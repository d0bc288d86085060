"""Checks before the programs of local jobs: real PyTorch, a small disk, commands, and what is reported."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from local import describe, replicas, run, sh, text

from torchx.runner.api import Runner
from torchx.scheduling import preflight
from torchx.scheduling.causes import classify
from torchx.scheduling.logs import Stream
from torchx.specs.app import Role
from torchx.specs.status import AppState
from torchx_cli.main import main


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replicas find the Python of these tests, which has PyTorch."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def ranks(script: str, count: int = 2) -> Role:
    return sh(script, count)


def test_the_program_starts_as_without_checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Same environment, working folder, signals, arguments and descriptors."""
    monkeypatch.setenv("LC_ALL", "")
    monkeypatch.delenv("LC_ALL")
    monkeypatch.delenv("LANG", raising=False)
    monkeypatch.delenv("LC_CTYPE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the user')")
    script = (
        "env | grep -v TORCH | grep -v PET_ | sort; pwd; ls /proc/self/fd; "
        'grep -E \'Sig(Ign|Cgt|Blk)\' /proc/self/status; echo "$0" "$1"'
    )
    role = Role("w", "", entrypoint="sh", args=["-c", script, "a  b", "$c"])
    plain, checked = run(role), run(role, preflight=["disk:1kB"])
    assert checked.state is AppState.SUCCEEDED, text(checked.app_id)
    assert text(checked.app_id) == text(plain.app_id)
    assert run(sh("exit 94"), preflight=["disk:1kB"]).state is AppState.FAILED


def test_a_failed_check_is_the_cause(capfd: pytest.CaptureFixture[str]) -> None:
    """All findings are named, with the host; the program is not started, and the failure is not its own."""
    failed = run(
        sh("echo program", 1), preflight=["cmd:sh -c 'echo seen; exit 3'", "cmd:/nonexistent/x", "disk:900TB"]
    )
    assert failed.state is AppState.FAILED
    lines = text(failed.app_id).splitlines()
    assert lines[0] == "seen"
    where = f"torchx preflight failed on {os.uname().nodename}: "
    assert lines[1].startswith(f"{where}cmd: `sh` ended with exit code 3; ")
    assert "cmd: `/nonexistent/x` cannot be started: No such file or directory; " in lines[1]
    assert "GB free, 900000.00 GB are needed" in lines[1]
    assert len(lines) == 2
    with Runner("test") as runner:
        handle = f"local_cwd://torchx/{failed.app_id}"
        status = runner.status(handle)
        assert status is not None
        cause = classify(status.state, status.msg, status.first_failure, lines)
        assert (cause.name, cause.source) == ("preflight", "output")
    assert main(["why", failed.app_id]) == 0
    assert "cause        preflight: " in capfd.readouterr().out


def test_failed_check_ends_attempt_without_a_retry() -> None:
    """The other replica would run forever."""
    role = sh("sleep 600", 2)
    role.max_retries = 3
    failed = run(role, preflight=["cmd:sh -c 'case $TORCHX_REPLICA in */1) exit 1;; esac'"])
    assert failed.state is AppState.FAILED
    states = [(one.id, one.attempt, one.state) for one in replicas(describe(failed.app_id))]
    assert states == [(0, 1, AppState.CANCELLED), (1, 1, AppState.FAILED)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a file system of its own")
def test_a_disk_with_little_space_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], check=True)
    try:
        monkeypatch.setenv("TMPDIR", str(small))
        failed = run(sh("true"), preflight=["disk:2MB"])
        line = text(failed.app_id, Stream.STDERR)
        assert f": disk: TMPDIR {small} has 0.00 GB free, 0.00 GB are needed" in line, line
        assert run(sh("true"), preflight=["disk:1MB"]).state is AppState.SUCCEEDED
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.long
def test_a_collective_operation_over_all_replicas() -> None:
    pytest.importorskip("torch")
    done = run(ranks("echo program $TORCHX_REPLICA", 3), preflight=["collective"])
    assert done.state is AppState.SUCCEEDED, text(done.app_id)
    assert sorted(text(done.app_id).splitlines()) == [f"program w/{n}" for n in range(3)]


@pytest.mark.long
def test_replicas_in_containers_meet_at_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers; each replica has two processes, as with two GPUs."""
    pytest.importorskip("torch")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(preflight, "PORT", server.getsockname()[1])
    role = sh("", 2)
    role.resource.gpu = 2
    command = preflight.with_checks(["echo", "program"], role, {"preflight": ["collective"]}, "localhost")
    started = [
        subprocess.Popen(
            [sys.executable, *command[1:]],
            env={**os.environ, "TORCHX_REPLICA": f"w/{n}", "TORCHX_RANK0_HOST": "localhost"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    assert [process.communicate()[0] for process in started] == ["program\n"] * 2
    assert [process.returncode for process in started] == [0, 0]


def test_the_ranks_that_are_missing_are_named() -> None:
    pytest.importorskip("torch")
    failed = run(
        ranks("echo program", 2),
        preflight=["collective:1s", "cmd:sh -c 'case $TORCHX_REPLICA in */1) sleep 600;; esac'"],
    )
    assert failed.state is AppState.FAILED
    assert "collective: rank 0 of 2: ranks 1 did not arrive within 1 s" in text(failed.app_id)


def test_a_python_without_torch_skips_the_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = Path(sys.base_prefix, "bin", "python3")
    has_torch = [python, "-c", "import torch"]
    if not python.exists() or not subprocess.run(has_torch, capture_output=True, check=False).returncode:
        pytest.skip("the Python below the virtual environment is missing, or has PyTorch")
    (tmp_path / "python3").symlink_to(python)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = run(sh("echo program"), preflight=["collective"])
    assert "no collective operation, as " in text(done.app_id)
    assert text(done.app_id).endswith("program\n")


def test_flags_and_options(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".torchxconfig").write_text("[local_cwd]\npreflight = cmd:false\n")
    assert main(["run", "-s", "local_cwd", "utils.echo"]) == 94
    assert "torchx preflight failed on " in capfd.readouterr().err
    assert main(["run", "-s", "local_cwd", "--preflight", "cmd:true", "utils.echo", "--msg", "hi"]) == 0
    assert main(["run", "-s", "local_cwd", "--preflight", "gpus", "utils.echo"]) == 2
    assert "--preflight has `gpus`, expected gpu[:SIZE]" in capfd.readouterr().err
    assert main(["run", "-s", "local_cwd", "--dryrun", "--preflight", "disk", "utils.echo"]) == 0
    assert "after its checks and set-up" in capfd.readouterr().out
