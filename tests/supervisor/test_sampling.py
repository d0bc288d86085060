"""Tests of the measurements of real processes by a supervisor."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from supervisor.test_loop import ended, supervise
from support import wait_until

from torchx.jobs.events import read_events
from torchx.jobs.measurement import read_usage
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import load
from torchx.scheduling.measurement import ReplicaUsage
from torchx.supervisor.measurement import sampling
from torchx.supervisor.measurement.sampling import Sampler

MB = 1 << 20
# memory that a program has touched is not resident to the last page: expect a little less


def large() -> int:
    """Returns MB that are more than this process has: the supervisor is a fork of it here."""
    return 100 + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2 // 1024


def submitted(
    tmp_path: Path, source: str, *, replicas: int = 1, retries: int = 0, role: str = "w", **env: str
) -> JobPaths:
    """Puts a job on record whose replicas run a program; they may wait until the file `go` exists."""
    home = Home(Path(os.environ["TORCHX_HOME"]))
    paths, logs = home.job("job-1"), home.logs / "torchx" / "job-1"
    paths.folder.mkdir(parents=True)
    logs.mkdir(parents=True)
    program = tmp_path / "program.py"
    program.write_text(PRELUDE.format(go=str(tmp_path / "go")) + source)
    args = [sys.executable, "-I", "-S", str(program)]
    each = [
        ReplicaRecord(
            args, {"TORCHX_JOB_ID": "s://torchx/job-1", "TORCHX_REPLICA": f"{role}/{n}", "N": str(n), **env}
        )
        for n in range(replicas)
    ]
    roles = [RoleRecord(role, each, {}, None, retries)]
    record = JobRecord("job-1", "s", "torchx", "job", 0.0, str(logs), roles, {}, {}, 0.1, True, 0.01)
    record.save(paths.record)
    return paths


PRELUDE = """
import os, sys, time
def wait():
    end = time.time() + 60
    while not os.path.exists({go!r}) and time.time() < end:
        time.sleep(0.01)
def take(mb):
    data = bytearray(mb << 20)
    data[::4096] = b"x" * len(data[::4096])
    return data
def burn(seconds):
    while time.process_time() < seconds:
        pass
"""


def quick() -> None:
    sampling.FIRST_AFTER = sampling.INTERVAL = 0.05
    sampling.SHORTEST_SPAN = 0.02
    sampling.SHARE = 1.0


def never() -> None:
    sampling.FIRST_AFTER = sampling.INTERVAL = 600.0


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., JobPaths]]:
    """Starts a supervisor, without a guard; its replicas end when the test does."""
    pids: list[int] = []

    def start(source: str, prepare: Callable[[], None] = quick, **more: object) -> JobPaths:
        paths = submitted(tmp_path, source, **more)  # type: ignore[arg-type]
        pids.append(supervise(paths, prepare))
        finish.pid = pids[-1]  # type: ignore[attr-defined]
        return paths

    yield start
    (tmp_path / "go").touch()
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def finish(paths: JobPaths, tmp_path: Path) -> list[ReplicaUsage]:
    """Lets the replicas end; returns the measurements of the ended job."""
    (tmp_path / "go").touch()
    view = ended(finish.pid, paths)  # type: ignore[attr-defined]
    assert view.state == "SUCCEEDED"
    found = read_usage(view, paths)
    assert found is not None
    return list(found.replicas)


def measured(paths: JobPaths, fits: Callable[[ReplicaUsage], bool], why: str) -> ReplicaUsage:
    """Waits until the measurements of the first replica fit."""

    def look() -> ReplicaUsage | None:
        found = read_usage(load(paths), paths)
        return found.replicas[-1] if found is not None and fits(found.replicas[-1]) else None

    return wait_until(look, why)


FAMILY = """
open("/proc/self/comm", "w").write("a) R 1 (b c")
if os.fork() == 0:
    os.setsid()            # as a worker of torchrun
    kept = take(50); wait(); os._exit(0)
if (middle := os.fork()) == 0:
    os.setsid()
    if os.fork() == 0:     # a daemon, which the supervisor adopts
        kept = take(60); wait(); os._exit(0)
    os._exit(0)
os.waitpid(middle, 0)
kept = take(40); wait()
"""


def test_memory_is_that_of_all_processes_of_a_replica(job: Callable[..., JobPaths], tmp_path: Path) -> None:
    paths = job(FAMILY, role="a role) R 1 (1")
    running = measured(paths, lambda one: (one.total.memory or 0) >= 135 * MB, "all are measured")
    assert running.running
    assert (running.total.memory or 0) < 260 * MB
    (total,) = finish(paths, tmp_path)
    assert (total.total.memory or 0) >= 135 * MB
    assert total.latest is None
    assert total.role == "a role) R 1 (1"


def test_replicas_are_measured_apart(job: Callable[..., JobPaths], tmp_path: Path) -> None:
    paths = job('kept = take(20 + 40 * int(os.environ["N"])); wait()', replicas=3)

    def look() -> list[int]:
        found = read_usage(load(paths), paths)
        memory = sorted(one.total.memory or 0 for one in found.replicas) if found is not None else []
        return memory if len(memory) == 3 and memory[2] >= 85 * MB and memory[1] >= 50 * MB else []

    smallest, middle, largest = wait_until(look, "all are measured")
    assert smallest < 50 * MB <= middle < 85 * MB <= largest
    found = read_usage(load(paths), paths)
    assert found is not None
    assert found.largest is not None
    assert found.largest.name == "w/2"
    assert found.now is not None
    assert (found.now.memory or 0) >= 140 * MB


ENDING = """
for _ in range(2):
    if (child := os.fork()) == 0:
        burn(0.15); os._exit(0)
    os.waitpid(child, 0)
if (middle := os.fork()) == 0:
    if os.fork() == 0:
        os.setsid()
        while not os.path.exists({marker!r}): time.sleep(0.01)
        burn(0.15); os._exit(0)
    os._exit(0)
os.waitpid(middle, 0)
open({marker!r} + ".ready", "w").close()
wait()
"""


def test_cpu_time_of_ended_children_and_orphans_counts(job: Callable[..., JobPaths], tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    paths = job(ENDING.format(marker=str(marker)))
    wait_until(lambda: marker.with_name("marker.ready").exists(), "the children have ended")

    def seconds(one: ReplicaUsage) -> float:
        return (one.total.cpu or 0) * one.total.span

    measured(paths, lambda one: seconds(one) >= 0.29, "the children are counted")
    marker.touch()
    measured(paths, lambda one: seconds(one) >= 0.43, "the orphan is counted too")
    (total,) = finish(paths, tmp_path)
    assert 0.43 <= seconds(total) < 3


def test_totals_of_short_job_come_from_its_end(job: Callable[..., JobPaths], tmp_path: Path) -> None:
    taken = large()
    paths = job(f'kept = take({taken}); burn(0.1); print("x" * 999)', never)
    (one,) = finish(paths, tmp_path)
    assert one.samples == ()
    assert (one.total.memory or 0) >= 0.75 * taken * MB
    assert (one.total.cpu or 0) * one.total.span >= 0.1
    assert (one.total.output or 0) * one.total.span == pytest.approx(1000, abs=10)
    assert one.total.gpu is None
    assert one.total.time == load(paths).replicas[0].attempts[0].ended_at


def test_unknown_memory_of_short_program_is_not_the_supervisors(
    job: Callable[..., JobPaths], tmp_path: Path
) -> None:
    def inflated() -> None:
        never()
        kept.append(bytearray(b"x" * (60 * MB)))

    kept: list[bytearray] = []
    (one,) = finish(job("", inflated), tmp_path)
    assert one.total.memory is None
    assert one.total.cpu is not None


def test_each_attempt_has_measurements_of_its_own(job: Callable[..., JobPaths], tmp_path: Path) -> None:
    taken = large()
    paths = job(f'if os.environ["TORCHX_ATTEMPT"] == "1": take({taken}); sys.exit(1)\nwait()', retries=1)
    measured(paths, lambda one: one.attempt == 2, "the second is measured")
    first, second = finish(paths, tmp_path)
    assert (first.total.memory or 0) >= 0.75 * taken * MB
    assert (second.total.memory or 0) < 0.75 * taken * MB
    assert second.attempt == 2


@pytest.mark.parametrize("obstacle", ["folder", "defect"])
def test_measurements_that_fail_do_not_affect_the_job(
    obstacle: str, job: Callable[..., JobPaths], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = tmp_path / "done"

    def prepare() -> None:
        quick()
        if obstacle == "defect":
            Sampler._find_owners = fail  # type: ignore[assignment,method-assign]
        else:
            paths.usage.mkdir()

    def fail(*_: object) -> None:
        done.touch()
        raise RuntimeError("a defect of measurements")

    paths = Home(Path(os.environ["TORCHX_HOME"])).job("job-1")
    job("wait()", prepare)
    if obstacle == "defect":
        wait_until(done.exists, "it was measured")
    finish(paths, tmp_path)
    assert ("a defect of measurements" in capfd.readouterr().err) == (obstacle == "defect")


def test_samples_outlive_a_killed_supervisor(job: Callable[..., JobPaths], tmp_path: Path) -> None:
    paths = job("kept = take(50); wait()")
    one = measured(paths, lambda one: (one.total.memory or 0) >= 40 * MB, "it is measured")
    os.kill(finish.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    os.waitpid(finish.pid, 0)  # type: ignore[attr-defined]
    found = read_usage(load(paths), paths)
    assert found is not None
    assert found.replicas[0].samples[: len(one.samples)] == one.samples
    assert (found.peak_memory or 0) >= 40 * MB


# --- GPUs ----------------------------------------------------------------------------------------

SMI = """#!/bin/sh
case "$*" in *--loop=*) ;; *) exit 1;; esac
while :; do
    echo "0, GPU-aa, 40, 1000, 9000"
    echo "1, GPU-bb, 80, 3000, 9000"
    echo "2, GPU-cc, [N/A], [N/A], [N/A]"
    sleep 0.05
done
"""


@pytest.fixture
def _nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("_nvidia_smi")
def test_gpus_of_a_replica_are_measured(job: Callable[..., JobPaths], tmp_path: Path) -> None:
    paths = job("wait()", CUDA_VISIBLE_DEVICES="0,GPU-bb")
    one = measured(paths, lambda one: one.total.gpu is not None, "the GPUs are measured")
    assert one.samples[-1].gpu == pytest.approx(0.6)
    assert one.total.gpu_memory == 4000 * MB
    (total,) = finish(paths, tmp_path)
    assert total.total.gpu_memory == 4000 * MB
    assert total.total.gpu == pytest.approx(0.6, abs=0.01)
    events = [event["e"] for event in read_events(paths.events)]
    assert events[-1] == "end", "the program that measures is ended with the job"
