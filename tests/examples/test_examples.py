"""The examples run as their documentation says, through the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def torchx(*words: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return subprocess.run(
        [sys.executable, "-m", "torchx_cli", *words], cwd=ROOT, env=env, capture_output=True, text=True
    )


def digits(*words: str, j: str = "2x2") -> subprocess.CompletedProcess[str]:
    train = ["--script", "examples/digits/train.py"]
    return torchx("run", "-s", "local_cwd", "dist.torchrun", "-j", j, *train, *words)


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_two_digits_jobs_at_once_reach_95_percent() -> None:
    """Two replicas of two processes each, and two of one; the two jobs must not meet on a port."""
    with ThreadPoolExecutor(2) as pool:
        jobs = {4: pool.submit(digits, j="2x2"), 2: pool.submit(digits, j="2x1")}
    for processes, job in jobs.items():
        done = job.result()
        assert done.returncode == 0, done.stderr
        assert f"training on {processes} processes" in done.stderr
        losses = [float(loss) for loss in re.findall(r"epoch +\d+ +loss ([\d.]+)", done.stderr)]
        assert len(losses) == 5
        assert losses[-1] < losses[0] / 5
        (accuracy,) = re.findall(r"held-out accuracy ([\d.]+) %", done.stderr)
        assert float(accuracy) > 95


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_the_loss_falls_though_random_processes_are_killed() -> None:
    env = "PET_MAX_RESTARTS=2,TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
    script = ["--script", "examples/survivors/train.py", "--", "--epochs", "150"]
    gang = ["dist.torchrun", "-j", "1x2", "--env", env]
    done = torchx("run", "-s", "local_cwd", *gang, *script, "--every", "0", "--kills", "2")
    assert done.returncode == 0, done.stderr
    gangs = re.findall(r"gang (\d): 2 processes, after epoch (\d+)", done.stderr)
    assert gangs == [("1", "0"), ("2", "1"), ("3", "2")], "each gang continues after the last checkpoint"
    assert len(re.findall(r"rank \d is killed after epoch \d", done.stderr)) == 2
    losses = [float(loss) for loss in re.findall(r"epoch +\d+ +loss ([\d.]+)", done.stderr)]
    assert losses[-1] < losses[0] / 5


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_error_of_training_script_is_result_of_job() -> None:
    done = digits("--", "--batch", "none", j="1x2")
    assert done.returncode == 1, "torchrun ends with 1 when a process of its own fails"
    assert "invalid int value: 'none'" in done.stderr
    assert "failed first" in done.stderr


def test_a_job_without_torchrun_is_refused_before_it_starts(tmp_path: Path) -> None:
    """With a PATH that leads to no PyTorch, and a Python that has none beside it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    if (Path(sys.executable).parent / "torchrun").exists():
        python = tmp_path / "python"
        python.symlink_to(sys.executable)
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(p for p in sys.path if "site-packages" in p)])
    else:
        python = Path(sys.executable)
    (tmp_path / "x.py").touch()
    done = subprocess.run(
        [
            str(python),
            "-m",
            "torchx_cli",
            "run",
            "-s",
            "local_cwd",
            "dist.ddp",
            "-j",
            "1x1",
            "--script",
            "x.py",
        ],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "`torchrun`" in done.stderr
    assert "pip install torch" in done.stderr
    assert done.stdout == ""


def test_a_server_and_its_clients_count_primes() -> None:
    done = torchx("run", "-s", "local_cwd", "examples/server_clients/primes.py:count", "--upto", "20000")
    assert done.returncode == 0, done.stderr
    assert "there are 2262 primes below 20000" in done.stderr
    counted = [int(parts) for parts in re.findall(r"client \d counted (\d+) parts", done.stderr)]
    assert len(counted) == 3
    assert sum(counted) == 20


def test_a_trainer_learns_from_an_inference_server() -> None:
    done = torchx("run", "-s", "local_cwd", "examples/inference/app.py:distill")
    assert done.returncode == 0, done.stderr
    assert "learned 3.00 x -1.00" in done.stderr


def test_the_components_of_the_examples_are_fine() -> None:
    for file in (
        "examples/server_clients/primes.py",
        "examples/inference/app.py",
        "examples/quorum/app.py",
    ):
        done = torchx("lint", file)
        assert done.returncode == 0, done.stdout + done.stderr
