"""What the tests of containers get: jobs that are removed at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import Jobs, jobs_of_a_test, scheduler
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
