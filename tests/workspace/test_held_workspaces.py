"""A workspace that a program passes to `Runner.dryrun` may be removed before `Runner.schedule`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine import IMAGE
from fakecluster import FakeCluster

from torchx.runner import Runner, get_runner
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images.pull import inspect_image
from torchx.schedulers.kubernetes.images import provide_images
from torchx.specs import AppDef, AppState, Resource, Role
from torchx.workspace import options, tree
from torchx_cli.main import main

LARGE = os.urandom(500_000).hex()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "sub").mkdir(parents=True)
    (root / "run.sh").write_text("echo $(cat small; wc -c < sub/large)\n")
    (root / "small").write_text("small\n")
    (root / "sub" / "large").write_text(LARGE)
    return root


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.setattr(tree, "FRESH", 0.0)
    with get_runner("held") as runner:
        yield runner


def app_of(entrypoint: str = "sh") -> AppDef:
    return AppDef(
        "held", [Role("r", IMAGE, entrypoint=entrypoint, args=["run.sh"], resource=Resource(1, 0, 64))]
    )


@pytest.mark.parametrize(
    "scheduler",
    [
        "local_cwd",
        pytest.param("local_docker", marks=[pytest.mark.docker, pytest.mark.long]),
        pytest.param("slurm", marks=pytest.mark.slurm),
    ],
)
def test_the_folder_may_be_removed_before_the_submission(
    scheduler: str, folder: Path, runner: Runner
) -> None:
    info = runner.dryrun(app_of(), scheduler, workspace=str(folder))
    shutil.rmtree(folder)
    handle = runner.schedule(info)
    try:
        status = runner.wait(handle, timeout=120)
        assert status is not None
        assert (status.state, [*runner.log_lines(handle, "r")]) == (
            AppState.SUCCEEDED,
            [f"small {len(LARGE)}\n"],
        )
    finally:
        runner.delete(handle)


def test_an_edit_after_the_dryrun_does_not_count(folder: Path, runner: Runner) -> None:
    info = runner.dryrun(app_of(), "local_cwd", workspace=str(folder))
    (folder / "run.sh").write_text("echo edited\n")
    handle = runner.schedule(info)
    runner.wait(handle, timeout=120)
    assert [*runner.log_lines(handle, "r")] == [f"small {len(LARGE)}\n"]


def test_a_config_map_keeps_the_files(
    folder: Path, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        info = runner.dryrun(app_of(), "kubernetes", workspace=str(folder))
        shutil.rmtree(folder)
        assert runner.status(runner.schedule(info)) is not None


@pytest.mark.docker
@pytest.mark.long
def test_an_image_for_a_cluster_keeps_the_files(folder: Path, runner: Runner) -> None:
    info: Any = runner.dryrun(app_of(), "kubernetes", {"workspace_type": "image"}, str(folder))
    shutil.rmtree(folder)
    assert info.app is not None
    name = info.app.roles[0].image
    try:
        provide_images(info.request, lambda line: None)
        assert inspect_image(Engine(), name) is not None
    finally:
        Engine().call("DELETE", f"/images/{name}", {"force": 1})


def test_a_larger_workspace_is_not_kept(
    folder: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "LARGEST_HELD", 1000)
    info = runner.dryrun(app_of(), "local_cwd", workspace=str(folder))
    (folder / "run.sh").write_text("echo edited\n")
    handle = runner.schedule(info)
    runner.wait(handle, timeout=120)
    assert [*runner.log_lines(handle, "r")] == ["edited\n"]


def test_the_command_line_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tree.Tree, "hold")
    assert main(["run", "--dryrun", "--workspace", str(folder), "utils.echo"]) == 0


def test_a_dry_run_leaves_the_setting_of_others(folder: Path, runner: Runner) -> None:
    runner.dryrun(app_of(), "local_cwd", workspace=str(folder))
    assert not options.hold.get()
