"""Workspaces in containers: what goes in, what is built again and what is not, images for other engines."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from containers import Jobs, containers, ended, scheduler, sh, text
from engine import IMAGE
from support import wait_until

from torchx.errors import StateError, UsageError
from torchx.schedulers.docker_engine import Engine, EngineError
from torchx.schedulers.workspace_images import CONTENT_LABEL, remove_images, unused_images
from torchx.specs.app import AppDef, Role
from torchx.specs.run_options import CfgVal

pytestmark = pytest.mark.docker

Run = Callable[..., tuple[str, list[str]]]


def own_images() -> dict[str, dict[str, Any]]:
    """All images of workspaces, by id."""
    asked = {"filters": {"label": [CONTENT_LABEL]}}
    return {image["Id"]: image for image in Engine().call("GET", "/images/json", asked)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a content that no other has."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(f"print('{uuid.uuid4()}')\n")
    return folder


@pytest.fixture
def run(jobs: Jobs) -> Iterator[Run]:
    """Runs roles with a workspace to their end; returns what they print, and what was told meanwhile."""
    made: set[str] = set()

    def run(folder: Path, *roles: Role, **cfg: CfgVal) -> tuple[str, list[str]]:
        told: list[str] = []
        engine = scheduler()
        info = engine.submit_dryrun(AppDef("job", list(roles)), {"grace_period": 5.0, **cfg}, str(folder))
        info.tell = told.append
        before = set(own_images())
        try:
            app_id = engine.schedule(info)
        finally:
            made.update(set(own_images()) - before)
        jobs.ids.append(app_id)
        ended(app_id)
        return text(app_id), told

    yield run
    for app_id in jobs.ids:
        scheduler().delete(app_id)
    for image in made:
        for how in ({"force": 1}, {}):
            try:
                Engine().call("DELETE", f"/images/{image}", how)
                break
            except EngineError:
                continue


def test_the_tree_is_in_the_image_as_it_is(run: Run, folder: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh\necho it runs\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    (folder / "empty").mkdir()
    (folder / "größe ü").mkdir()
    (folder / "größe ü" / "naïve.txt").write_text("é")
    (folder / ".env").write_text("TOKEN=1")
    (folder / "junk.log").write_text("x")
    (folder / ".torchxignore").write_text("*.log\n")
    said, told = run(
        folder, sh("./link; ls -A empty; cat 'größe ü/naïve.txt'; echo; ls .env *.log 2>/dev/null | wc -l")
    )
    assert said == "it runs\né\n0\n"
    assert told[0].startswith("building torchx-workspace:")
    assert told[0].endswith("files, 0.0 MB)")


def test_what_has_not_changed_is_built_once(run: Run, folder: Path) -> None:
    first, told = run(folder, sh("python3 train.py"))
    assert told
    again, told = run(folder, sh("python3 train.py; echo again"))
    assert (again, told) == (first + "again\n", []), "nothing was built or sent"
    (folder / "train.py").write_text("print('changed')\n")
    changed, told = run(folder, sh("python3 train.py"))
    assert changed == "changed\n"
    assert told


def test_roles_of_the_same_image_have_it_and_others_do_not(run: Run, folder: Path) -> None:
    other = f"torchx-other:{uuid.uuid4().hex}"
    repository, tag = other.split(":")
    Engine().call("POST", f"/images/{IMAGE}/tag", {"repo": repository, "tag": tag})
    try:
        show = "ls train.py 2>/dev/null || echo none"
        said, _ = run(folder, sh(show, name="a"), sh(show, name="b"), sh(show, name="c", image=other))
        assert sorted(said.split()) == ["none", "train.py", "train.py"]
    finally:
        Engine().call("DELETE", f"/images/{other}")


def test_a_dockerfile_says_how(run: Run, folder: Path) -> None:
    lines = [
        "ARG IMAGE",
        "FROM $IMAGE",
        "ARG WORKSPACE",
        "WORKDIR /src/app",
        "COPY . .",
        "RUN echo $WORKSPACE > where",
    ]
    (folder / "Dockerfile.torchx").write_text("\n".join(lines) + "\n")
    said, _ = run(folder, sh("pwd; cat where"))
    assert said == f"/src/app\n{folder}\n"


def test_a_build_that_fails_says_why_and_leaves_nothing(run: Run, folder: Path) -> None:
    text = f"ARG IMAGE\nFROM $IMAGE\nENV A={uuid.uuid4()}\nRUN echo out of luck; exit 3\n"
    (folder / "Dockerfile.torchx").write_text(text)
    dangling = {"filters": {"dangling": ["true"]}}
    before = Engine().call("GET", "/images/json", dangling)
    with pytest.raises(StateError) as caught:
        run(folder, sh("true"))
    message = str(caught.value)
    assert "could not be built at step 4 of" in message
    assert "│ out of luck" in message
    assert "Dockerfile.torchx" in (caught.value.hint or "")
    assert len(Engine().call("GET", "/images/json", dangling)) <= len(before)


def test_an_image_below_that_has_moved_is_followed(run: Run, folder: Path) -> None:
    base = f"torchx-moving:{uuid.uuid4().hex}"
    repository, tag = base.split(":")
    Engine().call("POST", f"/images/{IMAGE}/tag", {"repo": repository, "tag": tag})
    try:
        assert run(folder, sh("ls /marked 2>/dev/null; true", image=base))[0] == ""
        context = folder.parent / "below"
        context.mkdir()
        (context / "marked").write_text("")
        marked = scheduler().build_workspace_image(IMAGE, str(context))
        Engine().call("POST", f"/images/{marked}/tag", {"repo": repository, "tag": tag})
        said, told = run(folder, sh("ls /marked", image=base))
        assert (said, bool(told)) == ("/marked\n", True)
    finally:
        Engine().call("DELETE", f"/images/{base}")


def test_two_at_once_build_the_same(run: Run, folder: Path) -> None:
    results: list[tuple[str, list[str]]] = []
    threads = [
        threading.Thread(target=lambda: results.append(run(folder, sh("cat train.py")))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [said for said, _ in results] == [(folder / "train.py").read_text()] * 2


def test_a_dry_run_needs_no_engine_and_says_what_would_be_built(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    info = scheduler().submit_dryrun(AppDef("job", [sh("true")]), {}, str(folder))
    shown = repr(info)
    assert f"  base: {IMAGE}\n" in shown
    assert "  files: 1\n" in shown
    (plan,) = info.request.builds
    assert info.request.containers[0].image == plan.name
    assert info.app is not None and info.app.roles[0].image == plan.name


def test_a_file_that_changes_after_the_dry_run_is_told(jobs: Jobs, folder: Path) -> None:
    engine = scheduler()
    info = engine.submit_dryrun(AppDef("job", [sh("true")]), {}, str(folder))
    (folder / "train.py").write_text("another")
    with pytest.raises(StateError, match="changed while it was read"):
        engine.schedule(info)
    assert containers(info.request.app_id) == []


def test_too_much_is_refused_before_it_is_sent(folder: Path) -> None:
    with (folder / "data").open("wb") as file:
        file.truncate(3 << 20)
    with pytest.raises(UsageError, match="code"):
        scheduler().submit_dryrun(AppDef("job", [sh("true")]), {"workspace_limit_mb": 2}, str(folder))


def test_images_that_nobody_uses_can_be_removed(run: Run, jobs: Jobs, folder: Path) -> None:
    before = {image.id for image in unused_images(Engine())}
    run(folder, sh("true"))
    (image,) = [image for image in own_images() if image in {c["Image"] for c in containers(jobs.ids[-1])}]
    assert image not in {one.id for one in unused_images(Engine())}, "its container is there"
    scheduler().delete(jobs.ids[-1])
    (unused,) = [one for one in unused_images(Engine()) if one.id == image and one.id not in before]
    assert unused.name.startswith("torchx-workspace:")
    assert remove_images(Engine(), [unused]) == [unused]
    assert image not in own_images()


# --- registries --------------------------------------------------------------------------------------


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A registry on this machine, as Debian has it."""
    program = shutil.which("docker-registry")
    if program is None:
        message = "needs a registry: apt install docker-registry"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    config = tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {tmp_path / 'registry'}\n"
        f"http:\n  addr: {address}\n"
    )
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


def test_an_image_is_pushed_once_and_named_by_its_digest(
    run: Run, jobs: Jobs, folder: Path, registry: str
) -> None:
    repository = f"{registry}/team/jobs"
    said, told = run(folder, sh("echo $TORCHX_IMAGE"), image_repo=repository)
    assert said.startswith(f"{repository}@sha256:")
    assert any(line.startswith(f"pushing {repository}:") for line in told)
    (container,) = containers(jobs.ids[-1])
    assert container["Config"]["Image"] == said.strip()
    again, told = run(folder, sh("echo $TORCHX_IMAGE"), image_repo=repository)
    assert (again, told) == (said, []), "neither built nor pushed again"
    for image in own_images():
        if any(d.startswith(repository) for d in own_images()[image].get("RepoDigests") or []):
            for app_id in jobs.ids:
                scheduler().delete(app_id)
            Engine().call("DELETE", f"/images/{image}", {"force": 1})
    # an engine that has nothing of it pulls it by that name
    role = sh("cat train.py", image=said.strip())
    assert jobs.run(role).state.name == "SUCCEEDED"
    assert text(jobs.ids[-1]) == (folder / "train.py").read_text()


def test_a_registry_that_does_not_answer_is_one_sentence(run: Run, folder: Path) -> None:
    with pytest.raises(StateError, match=r"could not be pushed: .*connection refused"):
        run(folder, sh("true"), image_repo="127.0.0.1:9/team/jobs")
    with pytest.raises(UsageError, match="a repository without a tag"):
        run(folder, sh("true"), image_repo="127.0.0.1:9/team/jobs:latest")
