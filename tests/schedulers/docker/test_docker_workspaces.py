"""Workspaces in containers: what goes in, and what is built again and what is not."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import Jobs, containers, scheduler, sh
from engine import IMAGE
from workspaces import Runs, tag

from torchx.errors import StateError, UsageError
from torchx.schedulers.docker.dockerfile import images_below
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images.layers import lines_of
from torchx.specs.app import AppDef

pytestmark = pytest.mark.docker


@pytest.fixture
def base() -> Iterator[str]:
    """A name of the image of the tests that a test may move."""
    name = f"torchx-moving:{uuid.uuid4().hex}"
    tag(IMAGE, name)
    yield name
    Engine().call("DELETE", f"/images/{name}")


def derived(runs: Runs, folder: Path, name: str, *steps: str) -> None:
    """Gives a name to an image that is made by some steps on that of the tests."""
    below = folder.parent / uuid.uuid4().hex
    below.mkdir()
    (below / "Dockerfile.torchx").write_text("\n".join(["ARG IMAGE", "FROM $IMAGE", *steps]))
    (below / "own").write_text(below.name)  # an image that is equal would be the same, and other tests end it
    runs.dryrun(below, sh("true"))
    tag(scheduler().build_workspace_image(IMAGE, str(below)), name)


def test_the_tree_is_in_the_image_as_it_is(runs: Runs, folder: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh\necho it runs\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "link").symlink_to("run.sh")
    (folder / "away").symlink_to("/nowhere/at/all")
    (folder / "empty").mkdir()
    (folder / "größe ü").mkdir()
    (folder / "größe ü" / "naïve.txt").write_text("é")
    (folder / ".env").write_text("TOKEN=1")
    (folder / "junk.log").write_text("x")
    (folder / ".torchxignore").write_text("*.log\n")
    said = runs.run(
        folder,
        sh("./link; ls -A empty; cat 'größe ü/naïve.txt'; echo; readlink away; stat -c %a run.sh; ls -A"),
    )
    names = [".torchxignore", "away", "empty", "größe ü", "link", "run.sh", "train.py"]
    assert said.splitlines() == ["it runs", "é", "/nowhere/at/all", "750", *names]


@pytest.mark.long
def test_both_ignore_files_count_and_are_applied_once(runs: Runs, folder: Path) -> None:
    (folder / ".dockerignore").write_text("*.log\nDockerfile*\n**/deep\n")
    (folder / ".torchxignore").write_text("!kept.log\n")
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "deep" / "file").write_text("")
    for name in ("kept.log", "other.log"):
        (folder / name).write_text("")
    listed = ".dockerignore\n.torchxignore\nkept.log\nsub\ntrain.py\n"
    assert runs.run(folder, sh("find . -mindepth 1 | sed s,./,, | sort")) == listed
    steps = "ARG IMAGE\nFROM $IMAGE\nWORKDIR /app\nCOPY . .\n"
    (folder / "Dockerfile.torchx").write_text(steps)
    said = runs.run(folder, sh("pwd; find . -mindepth 1 | sed s,./,, | sort"))
    assert said == "/app\n" + listed, "left behind as the file says, and yet it is what builds"


@pytest.mark.long
def test_folder_in_way_of_system_takes_nothing_from_it(runs: Runs, folder: Path) -> None:
    (folder / "bin").mkdir(mode=0o700)
    (folder / "tmp").mkdir(mode=0o700)
    (folder / "bin" / "tool").write_text("mine")
    assert runs.run(folder, sh("cat bin/tool; stat -c ' %a' /tmp; pwd")) == "mine 1777\n/workspace\n"


@pytest.mark.long
def test_files_are_those_of_the_user_of_the_image(runs: Runs, folder: Path, base: str) -> None:
    derived(runs, folder, base, "WORKDIR /home/app", "USER user")
    (folder / "key").write_text("for me alone")
    (folder / "key").chmod(0o600)
    said = runs.run(folder, sh("pwd; id -un; cat key; stat -c ' %U %a' key", image=base))
    assert said == "/home/app\nuser\nfor me alone user 600\n"


@pytest.mark.long
def test_an_image_without_a_shell_takes_a_workspace(runs: Runs, folder: Path) -> None:
    (folder / "Dockerfile.torchx").write_text(
        "ARG IMAGE\nFROM $IMAGE AS all\nFROM scratch\nCOPY --from=all /bin/busybox /busybox\n"
    )
    bare = scheduler().build_workspace_image(IMAGE, str(folder))
    runs.dryrun(folder, sh("true"))
    (folder / "Dockerfile.torchx").unlink()
    role = sh("", image=bare, entrypoint="/busybox")
    role.args = ["cat", "train.py"]
    assert runs.run(folder, role) == (folder / "train.py").read_text()


@pytest.mark.long
@pytest.mark.usefixtures("_docker_alone")
def test_what_has_not_changed_is_built_once(runs: Runs, folder: Path) -> None:
    first = runs.run(folder, sh("python3 train.py"))
    made = set(runs.images())
    assert len(made) == 1
    seen = events_during(lambda: runs.run(folder, sh("python3 train.py; echo again")), made)
    assert not [event for event in seen if event in ("tag", "import", "untag", "delete")]
    assert (set(runs.images()), runs.answer) == (made, [])
    (folder / "train.py").write_text("print('changed')\n")
    assert runs.run(folder, sh("python3 train.py")) == "changed\n" != first
    (folder / "train.py").chmod(0o600)
    assert runs.run(folder, sh("stat -c %a train.py")) == "600\n"
    assert len(runs.images()) == 3


def events_during(what: object, images: set[str]) -> list[str]:
    """Events of some images during a block; other tests have images of their own."""
    engine = Engine()
    connection, rest = engine.stream("/events", {"filters": {"type": ["image"]}})
    assert callable(what)
    what()
    marker = f"torchx-marker:{uuid.uuid4().hex}"
    tag(IMAGE, marker)
    found = []
    for line in lines_of(connection, rest):
        if line["Actor"]["Attributes"].get("name") == marker:
            break
        if line["Actor"]["ID"] in images:
            found.append(str(line["Action"]))
    connection.close()
    engine.call("DELETE", f"/images/{marker}")
    return found


def test_roles_of_same_image_have_it_others_do_not(runs: Runs, folder: Path, base: str) -> None:
    show = "ls train.py 2>/dev/null || echo none"
    said = runs.run(folder, sh(show, name="a"), sh(show, name="b"), sh(show, name="c", image=base))
    assert sorted(said.split()) == ["none", "train.py", "train.py"]
    assert len(runs.images()) == 1


@pytest.mark.long
def test_a_dockerfile_says_how(runs: Runs, folder: Path) -> None:
    steps = ["ARG IMAGE", "FROM $IMAGE", "ARG WORKSPACE", "WORKDIR /src/app", "COPY . ."]
    (folder / "below").mkdir()
    (folder / "below" / "Dockerfile").write_text("\n".join([*steps, "RUN echo $WORKSPACE > where"]))
    (folder / "Dockerfile.torchx").symlink_to("below/Dockerfile")
    assert runs.run(folder, sh("pwd; cat where")) == f"/src/app\n{folder}\n"


@pytest.mark.long
def test_an_image_below_that_has_moved_is_followed(runs: Runs, folder: Path, base: str) -> None:
    assert runs.run(folder, sh("ls /marked 2>/dev/null; true", image=base)) == ""
    first = runs.jobs.ids[-1]
    derived(runs, folder, base, "COPY Dockerfile.torchx /marked")
    assert runs.run(folder, sh("ls /marked", image=base)) == "/marked\n"
    (before,), (after,) = containers(first), containers(runs.jobs.ids[-1])
    assert before["Image"] != after["Image"]


@pytest.mark.long
def test_a_dockerfile_that_names_an_image_follows_that(runs: Runs, folder: Path, base: str) -> None:
    (folder / "Dockerfile.torchx").write_text(f"ARG B={base}\nFROM ${{B}} AS first\nFROM first\nCOPY . /x\n")
    nowhere = "torchx-nowhere:at-all"  # it says nothing of IMAGE, which need not be there
    assert images_below((folder / "Dockerfile.torchx").read_text(), nowhere) == [base]
    runs.run(folder, sh("true", image=nowhere))
    runs.run(folder, sh("true", image=nowhere))
    assert len(runs.images()) == 1
    derived(runs, folder, base, "COPY Dockerfile.torchx /marked")
    assert runs.run(folder, sh("ls /marked", image=nowhere)) == "/marked\n"


@pytest.mark.long
def test_two_at_once_build_once(runs: Runs, folder: Path) -> None:
    infos = [runs.dryrun(folder, sh("cat train.py")) for _ in range(3)]
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda info=info: results.append(runs.submit(info)))  # type: ignore[misc]
        for info in infos
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(folder / "train.py").read_text()] * 3
    assert len(runs.images()) == 1


def test_dry_run_needs_no_engine_and_names_builds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    info = scheduler().submit_dryrun(AppDef("job", [sh("true")]), {}, str(folder))
    shown = repr(info)
    for line in (f"base: {IMAGE}", "files: 1", "by: COPY . .", f"workspace: {folder}", "push: false"):
        assert f"  {line}\n" in shown
    assert "when: unless the engine has it" in shown
    (plan,) = info.request.builds
    assert info.request.containers[0].image == plan.name
    assert info.app is not None
    assert info.app.roles[0].image == plan.name


def test_file_that_changes_after_dry_run_is_reported(runs: Runs, folder: Path) -> None:
    info = runs.dryrun(folder, sh("true"))
    (folder / "train.py").write_text("another")
    with pytest.raises(StateError, match="changed while it was read"):
        runs.submit(info)
    assert containers(info.request.app_id) == []
    assert not runs.images()


def test_too_much_is_refused_before_it_is_sent(folder: Path) -> None:
    with (folder / "data").open("wb") as file:
        file.truncate(3 << 20)
    with pytest.raises(UsageError, match="code"):
        scheduler().submit_dryrun(AppDef("job", [sh("true")]), {"workspace_limit_mb": 2}, str(folder))


@pytest.mark.long
def test_a_request_is_reported_with_the_image_it_runs(jobs: Jobs, runs: Runs, folder: Path) -> None:
    info = runs.dryrun(folder, sh("echo $TORCHX_IMAGE"))
    said = runs.submit(info)
    assert said.strip() == info.request.containers[0].image
    assert said.startswith("sha256:")
    described = scheduler().describe(jobs.ids[-1])
    assert described is not None
    assert described.roles[0].image == info.request.builds[0].name
