"""Images of workspaces in a registry: pushed once, named by their digest, refused in one sentence."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from containers import Jobs, containers, scheduler, sh, text
from support import wait_until
from workspaces import Runs

from torchx.errors import StateError, UsageError
from torchx.schedulers.docker.engine.client import Engine
from torchx.scheduling.base import Scheduler
from torchx.specs.app import AppDef, AppDryRunInfo
from torchx.specs.resources import Resource
from torchx.specs.run_options import CfgVal
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

# Podman needs the registries without encryption in its own configuration
pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("_docker_alone")]

# `me` with the password `secret`, as htpasswd writes it
HTPASSWD = "me:$2b$04$68yEcCFz58xVthjUgpHGH.L0/AXtJMipI3/o80YmfND7RH8RXzcUq\n"


@pytest.fixture
def registry(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A registry on this machine, as Debian has it; with a parameter, one that wants to know who asks."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("needs a registry: apt install docker-registry")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    config = tmp_path / "registry.yml"
    lines = (
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {tmp_path / 'registry'}\n"
        f"  delete:\n    enabled: true\nhttp:\n  addr: {address}\n"
    )
    if hasattr(request, "param"):
        (tmp_path / "htpasswd").write_text(HTPASSWD)
        lines += f"auth:\n  htpasswd:\n    realm: test\n    path: {tmp_path / 'htpasswd'}\n"
    config.write_text(lines)
    process = subprocess.Popen(
        [program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: answers(address), "the registry answers")
        yield address
    finally:
        process.kill()
        process.wait()


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as connection:
        return connection.connect_ex((host, int(port))) == 0


def uploads(tmp_path: Path) -> int:
    """How many manifests the registry holds, by their revisions."""
    return len(list((tmp_path / "registry").glob("**/_manifests/revisions/sha256/*")))


@pytest.mark.long
def test_image_is_pushed_once_and_named_by_its_digest(
    runs: Runs, jobs: Jobs, folder: Path, registry: str, tmp_path: Path
) -> None:
    repository = f"{registry}/team/jobs"
    info = runs.dryrun(folder, sh("echo $TORCHX_IMAGE"), image_repo=repository)
    assert info.request.containers[0].image.startswith(f"{repository}:")
    said = runs.submit(info).strip()
    assert said.startswith(f"{repository}@sha256:")
    assert info.request.containers[0].image == said
    (container,) = containers(jobs.ids[-1])
    assert container["Config"]["Image"] == said
    tags = tmp_path / "registry/docker/registry/v2/repositories/team/jobs/_manifests/tags"
    (tagged,) = tags.iterdir()
    pushed_at = (tagged / "current" / "link").stat().st_mtime_ns
    assert runs.run(folder, sh("echo $TORCHX_IMAGE"), image_repo=repository).strip() == said
    assert (tagged / "current" / "link").stat().st_mtime_ns == pushed_at, "not pushed again"
    assert len(runs.images()) == 1
    for app_id in jobs.ids:
        scheduler().delete(app_id)
    runs.remove_images()
    # an engine that has nothing of it pulls it by that name
    assert jobs.run(sh("cat train.py", image=said)).state.name == "SUCCEEDED"
    assert text(jobs.ids[-1]) == (folder / "train.py").read_text()


@pytest.mark.long
def test_image_is_pushed_unless_the_registry_has_it(
    runs: Runs, folder: Path, registry: str, tmp_path: Path
) -> None:
    runs.run(folder, sh("true"))
    (image,) = runs.images()
    said = runs.run(folder, sh("echo $TORCHX_IMAGE"), image_repo=f"{registry}/jobs")
    assert set(runs.images()) == {image}, "not built again"
    shutil.rmtree(tmp_path / "registry")
    assert runs.run(folder, sh("echo $TORCHX_IMAGE"), image_repo=f"{registry}/jobs") == said
    assert uploads(tmp_path) == 1


@pytest.mark.long
@pytest.mark.parametrize("registry", ["closed"], indirect=True)
def test_credentials_come_from_the_docker_command(
    runs: Runs, folder: Path, registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(StateError) as caught:
        runs.run(folder, sh("true"), image_repo=f"{registry}/jobs")
    assert "could not be pushed: " in caught.value.message
    assert caught.value.hint == f"log in first: docker login {registry}"
    user = base64.b64encode(b"me:secret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry: {"auth": user}}}))
    said = runs.run(folder, sh("echo $TORCHX_IMAGE"), image_repo=f"{registry}/jobs")
    assert said.startswith(f"{registry}/jobs@sha256:")
    assert runs.run(folder, sh("echo $TORCHX_IMAGE"), image_repo=f"{registry}/jobs") == said


class Plugin(DockerWorkspaceMixin, Scheduler[dict[str, Any]]):
    """A scheduler of another package."""

    def __init__(self) -> None:
        super().__init__("plugin", "test", docker_client=None)

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[dict[str, Any]]:
        images = self.dryrun_push_images(app, cfg)
        return AppDryRunInfo({"push": images, "run": [role.image for role in app.roles]}, str)

    def schedule(self, dryrun_info: AppDryRunInfo[dict[str, Any]]) -> str:
        self.push_images(dryrun_info.request["push"])
        return "app"

    def describe(self, app_id: str) -> None: ...
    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Any: ...
    def _cancel_existing(self, app_id: str) -> None: ...


@pytest.mark.long
def test_schedulers_of_other_packages_build_and_push(
    runs: Runs, jobs: Jobs, folder: Path, registry: str
) -> None:
    runs.dryrun(folder, sh("true"))
    role = sh("cat train.py", resource=Resource(cpu=1, gpu=0, memMB=64))
    app = AppDef("a", [role])
    with pytest.raises(UsageError, match="only on this machine"):
        Plugin().submit_dryrun(app, {}, str(folder))
    info = Plugin().submit_dryrun(app, {"image_repo": f"{registry}/jobs"}, str(folder))
    (image,) = runs.images()
    assert info.request["push"] == {image: (f"{registry}/jobs", image.removeprefix("sha256:"))}
    (named,) = info.request["run"]
    Plugin().schedule(info)
    runs.remove_images()
    assert jobs.run(sh("cat train.py", image=named)).state.name == "SUCCEEDED"
    assert text(jobs.ids[-1]) == (folder / "train.py").read_text()


def test_a_registry_that_does_not_answer_is_one_sentence(runs: Runs, folder: Path) -> None:
    with pytest.raises(StateError, match=r"could not be pushed: .*connection refused") as caught:
        runs.run(folder, sh("true"), image_repo="127.0.0.1:9/team/jobs")
    assert "\n" not in caught.value.message
    query = {"all": 1, "filters": {"label": [f"torchx.pytorch.org/app-id={runs.jobs.ids}"]}}
    assert Engine().call("GET", "/containers/json", query) == []


@pytest.mark.parametrize(
    ("repository", "what"),
    [
        ("127.0.0.1:9/team/jobs:latest", "without a tag"),
        ("host/jobs@sha256:12", "without a tag"),
        ("https://host/jobs", "without a protocol"),
        ("host/Jobs", "in lowercase letters"),
        ("host/a b", "in lowercase letters"),
    ],
)
def test_what_is_no_repository_is_refused(runs: Runs, folder: Path, repository: str, what: str) -> None:
    with pytest.raises(UsageError, match=f"expected .*{what}"):
        runs.dryrun(folder, sh("true"), image_repo=repository)
