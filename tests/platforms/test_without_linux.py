"""On a system that is no Linux: what needs none of it works, and local jobs are refused in one line."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine import IMAGE
from fakecluster import FakeCluster
from program import answer, torchx

from platforms.elsewhere import torchx_elsewhere
from torchx.errors import StateError
from torchx.machine import processes
from torchx.schedulers.local.checks import require_system

COMPONENT = '''"""A component."""
import torchx.specs as specs
def app() -> specs.AppDef:
    """Does it."""
    return specs.AppDef("app", [specs.Role("r", "")])
'''


def test_what_starts_no_local_job_works(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(COMPONENT)
    engines = ("local_cwd", "local_dir", "local_docker", "slurm", "kubernetes")
    lines = [f"run --dryrun -s {engine} utils.echo --image {tmp_path} --msg hi" for engine in engines]
    others = [
        "list -s local_cwd",
        "lint c.py",
        "builtins",
        "runopts",
        "config show",
        "prune --dryrun -s local_cwd",
    ]
    for line, result in zip([*lines, *others], torchx_elsewhere(tmp_path, *lines, *others), strict=True):
        assert result.code == 0, (line, result)


def test_a_local_job_is_refused_in_one_line(tmp_path: Path) -> None:
    ran, listed, doctor = torchx_elsewhere(
        tmp_path, "run -s local_cwd utils.echo --msg hi", "list -s local_cwd", "doctor local_cwd"
    )
    assert ran.code == 1
    assert not ran.stdout
    message, hint = ran.stderr.splitlines()
    assert message == "error: local_cwd needs Linux; this is darwin"
    assert hint.endswith("-s local_docker, -s slurm, -s kubernetes")
    assert "echo" not in listed.stdout
    assert "needs Linux" not in doctor.stderr
    assert "local jobs need Linux; this is darwin" in doctor.stdout


def test_the_record_of_a_job_is_read_and_removed(tmp_path: Path) -> None:
    handle = torchx("run", "-s", "local_cwd", "utils.echo", "--msg", "hi").stdout.strip()
    lines = (
        "list -s local_cwd",
        "status @last",
        "log @last",
        "describe @last",
        "cancel @last",
        "delete @last",
    )
    results = torchx_elsewhere(tmp_path, *lines)
    assert [result.code for result in results] == [0] * len(lines)
    assert handle.rpartition("/")[2] in results[0].stdout
    assert "SUCCEEDED" in results[1].stdout
    assert results[2].stdout == "echo/0 │ hi\n"
    assert answer("list", "-s", "local_cwd", "-o", "json") == []


def test_a_job_on_kubernetes(tmp_path: Path) -> None:
    with FakeCluster() as cluster:
        env = {"KUBECONFIG": str(cluster.kubeconfig(tmp_path / "kubeconfig"))}
        run = "run -s kubernetes --wait utils.echo --image registry.example.com/shell --msg hi"
        ran, listed, log = torchx_elsewhere(tmp_path, run, "list -s kubernetes", "log @last", env=env)
    assert ran.code == 0, ran.stderr
    assert "SUCCEEDED" in listed.stdout
    assert log.stdout == "echo/0 │ hi\n"


@pytest.mark.long
@pytest.mark.docker
def test_a_job_in_containers(tmp_path: Path) -> None:
    command = f"utils.sh --image {IMAGE}"
    ran, log, deleted = torchx_elsewhere(
        tmp_path, f"run -s local_docker {command} date", "log @last", "delete @last"
    )
    assert ran.code == 0, ran.stderr
    assert log.stdout.startswith("sh/0 │ ")
    assert deleted.code == 0
    # what it takes to look after a job: its supervisor runs there, too
    started, cancelled, status, deleted = torchx_elsewhere(
        tmp_path,
        f"run -s local_docker --detach {command} sleep 60".replace("sleep 60", "exec\tsleep\t60").split(" "),
        "cancel @last",
        "status @last",
        "delete @last",
    )
    assert started.code == 0, started.stderr
    assert cancelled.code == 0, cancelled.stderr
    assert "CANCELLED" in status.stdout
    assert deleted.code == 0


@pytest.fixture
def sleeper() -> Iterator[processes.Process]:
    """A process that sleeps."""
    child = subprocess.Popen(["sleep", "60"])
    entry = processes.look_up(child.pid)
    assert entry is not None
    yield entry.process
    child.kill()
    child.wait()


def test_python_built_for_old_linux_supervises_as_well(
    sleeper: processes.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks the functions; the system calls are there."""
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.delattr(signal, "pidfd_send_signal")
    assert processes.missing() is None
    stranger = sleeper._replace(start=sleeper.start + 1)
    assert not processes.send(stranger, signal.SIGTERM)
    assert not processes.wait_end(sleeper, 0)
    assert processes.send(sleeper, signal.SIGTERM)
    assert processes.wait_end(sleeper, 30)
    with pytest.raises(ProcessLookupError):
        processes.open_descriptor(2**22 + 1)


def test_a_kernel_without_the_system_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(StateError, match=r"^local_dir needs Linux 5\.3 or newer") as caught:
        require_system("local_dir")
    assert caught.value.hint is not None
