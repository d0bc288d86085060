"""What the tests of containers get: jobs that are removed at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import fakegpus
import local
import pytest
from containers import Jobs, jobs_of_a_test, scheduler
from gpu_engine import GpuEngine, gpu_engine
from queued import with_gpus
from workspaces import Runs

from torchx.schedulers.docker.engine.client import Engine


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """Submits applications, and removes them at the end of the test."""
    with jobs_of_a_test() as jobs:
        yield jobs


@pytest.fixture
def _docker_alone() -> None:
    """For behaviour and data of Docker alone."""
    if Engine().is_podman:
        pytest.skip("Podman does this in another way")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a content that no other has."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(f"print('{uuid.uuid4()}')\n")
    return folder


@pytest.fixture
def runs(jobs: Jobs) -> Iterator[Runs]:
    """Runs applications with a workspace; their images are removed at the end of the test."""
    runs = Runs(jobs)
    yield runs
    for app_id in jobs.ids:
        scheduler().delete(app_id)
    runs.remove_images()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakegpus.FakeGpus:
    """A machine with four GPUs, as its driver's program reports."""
    return fakegpus.install(monkeypatch, tmp_path, 4)


@pytest.fixture
def engine(machine: fakegpus.FakeGpus, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuEngine]:
    """An engine with these GPUs."""
    with gpu_engine() as engine:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.path}")
        yield engine


@pytest.fixture
def waiting_jobs(engine: GpuEngine) -> Iterator[Jobs]:
    """Submits applications to the engine with GPUs, and removes them at the end of the test."""
    with jobs_of_a_test() as jobs:
        yield jobs


@pytest.fixture
def busy(machine: fakegpus.FakeGpus) -> Iterator[str]:
    """A local job that holds three of the four GPUs."""
    app_id = local.submit(with_gpus(local.sh("exec sleep 600"), 3))
    yield app_id
    local.scheduler().kill(app_id)
    local.ended(app_id)
