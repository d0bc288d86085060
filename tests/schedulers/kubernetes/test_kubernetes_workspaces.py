"""Workspaces on Kubernetes: packed into a ConfigMap, unpacked by the image's own tar."""

from __future__ import annotations

import base64
import copy
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from engine import IMAGE
from manifests import KINDS, check, made, options, pods, role, run_as

from torchx.errors import UsageError
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images.pull import inspect_image
from torchx.schedulers.kubernetes.images import provide_images
from torchx.schedulers.kubernetes.manifests import workspace as manifest_workspace
from torchx.schedulers.kubernetes.manifests.workspace import FOLDER, LARGEST, plan_workspaces
from torchx.schedulers.kubernetes.request import KubernetesJob, with_images
from torchx.specs import AppDef, Workspace
from torchx.workspace.tree import Tree


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "pkg" / "train.py").write_text("print('trained')\n")
    (folder / "run é.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run é.sh").chmod(0o755)
    (folder / "link").symlink_to("pkg/train.py")
    (folder / ".env").write_text("HF_TOKEN=secret\n")
    return folder


def app_of(project: Path, **changes: Any) -> AppDef:
    return AppDef("a", [role(workspace=Workspace({str(project): ""}), **changes)])


def planned(app: AppDef, kind: str = "job", **cfg: Any) -> tuple[KubernetesJob, list[str]]:
    app = copy.deepcopy(app)
    plans = plan_workspaces(app, options(**cfg))
    return made(app, kind, plans, **cfg), plans.notes


def unpack(request: KubernetesJob, into: Path) -> None:
    """Does what the init container does."""
    ((template, _), *_) = pods(request.manifests)
    (init,) = template["spec"]["initContainers"]
    sources = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    places = {}
    for mount in init["volumeMounts"]:
        places[mount["mountPath"]] = place = into / mount["name"]
        place.mkdir(parents=True)
        if "configMap" in sources[mount["name"]]:
            (config_map,) = [m for m in request.manifests if m["kind"] == "ConfigMap"]
            assert config_map["metadata"]["name"] == sources[mount["name"]]["configMap"]["name"]
            for name, data in config_map["binaryData"].items():
                (place / name).write_bytes(base64.b64decode(data))
    words = [*init["command"], *init["args"]]
    for path, place in places.items():
        words = [str(place) + word.removeprefix(path) if word.startswith(path) else word for word in words]
    subprocess.run(words, check=True, cwd="/")


@pytest.mark.parametrize("kind", KINDS)
def test_files_arrive_as_they_are(kind: str, project: Path, tmp_path: Path) -> None:
    request, notes = planned(app_of(project, args=["${img_root}/pkg"]), kind)
    check(request.manifests)
    assert request.manifests[0]["kind"] == "ConfigMap"
    assert any("2 files" in note and FOLDER in note for note in notes), notes
    unpack(request, tmp_path / "pod")
    there = tmp_path / "pod" / "workspace"
    assert (there / "pkg" / "train.py").read_text() == "print('trained')\n"
    assert os.access(there / "run é.sh", os.X_OK)
    assert (there / "link").readlink() == Path("pkg/train.py")
    assert (there / "empty").is_dir()
    assert not (there / ".env").exists()
    ((template, _),) = pods(request.manifests)
    main = template["spec"]["containers"][0]
    assert main["workingDir"] == FOLDER
    assert {"name": "workspace", "mountPath": FOLDER} in main["volumeMounts"]
    assert run_as(template, 0)[0] == ["train", f"{FOLDER}/pkg"]


def test_equal_files_make_equal_manifests_whenever_they_were_written(project: Path) -> None:
    first = planned(app_of(project))[0].manifests[0]["binaryData"]
    os.utime(project / "pkg" / "train.py", (1, 1))
    assert planned(app_of(project))[0].manifests[0]["binaryData"] == first
    (project / "pkg" / "train.py").write_text("other\n")
    assert planned(app_of(project))[0].manifests[0]["binaryData"] != first


def test_roles_of_one_workspace_share_a_config_map(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x")
    app = AppDef("a", [*app_of(project).roles, role("b", workspace=Workspace({str(project): ""})), role("c")])
    app.roles.append(role("d", workspace=Workspace({str(other): "below"})))
    request, notes = planned(app)
    check(request.manifests)
    maps = [m["metadata"]["name"] for m in request.manifests if m["kind"] == "ConfigMap"]
    assert maps == [f"{request.app_id}-ws", f"{request.app_id}-ws-1"]
    used = [
        [v["configMap"]["name"] for v in t["spec"]["volumes"] if "configMap" in v]
        for t, _ in pods(request.manifests)
    ]
    assert used == [[maps[0]], [maps[0]], [], [maps[1]]]
    assert len([note for note in notes if "in a ConfigMap" in note]) == 2
    assert len([note for note in notes if "1 built in (.env)" in note]) == 1, (
        "equal workspaces are named once"
    )


def test_many_empty_files_are_rejected_unread(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_workspace, "LARGEST", 1000)
    monkeypatch.setattr(Tree, "write_tar", None)
    for number in range(200):
        (project / f"empty-{number}").touch()
    with pytest.raises(UsageError, match=r"has 20\d files, 0.0 MB: too much for a ConfigMap"):
        planned(app_of(project))


def test_too_large_one_is_rejected_with_a_remedy(project: Path) -> None:
    (project / "noise").write_bytes(os.urandom(LARGEST + 1))
    with pytest.raises(UsageError, match=r"files, 0\.9 MB: too much for a ConfigMap") as refused:
        planned(app_of(project))
    assert "image_repo" in str(refused.value)
    (project / "noise").write_bytes(b"0" * 20_000_000)  # packs well
    assert planned(app_of(project))
    with pytest.raises(UsageError, match="MB"):
        planned(app_of(project), workspace_limit_mb=10)


def test_names_of_built_images_take_place_of_planned_ones() -> None:
    app = AppDef("a", [role(args=["img:1"], env={"image": "img:1"})])
    before = made(app)
    after = with_images(before, {"img:1": "repo@sha256:1"})
    ((template, _),) = pods(after.manifests)
    assert template["spec"]["containers"][0]["image"] == "repo@sha256:1"
    command, env = run_as(template, 0)
    assert command == ["train", "img:1"]
    assert (env["TORCHX_IMAGE"], env["image"]) == ("repo@sha256:1", "img:1")
    assert before == made(app) or before.app_id != made(app).app_id


def test_with_a_registry_an_image_is_planned(project: Path) -> None:
    request, notes = planned(app_of(project), image_repo="registry.example.com/team/jobs")
    ((template, _),) = pods(request.manifests)
    (main,) = template["spec"]["containers"]
    assert main["image"].startswith("registry.example.com/team/jobs:")
    assert "workingDir" not in main
    assert "initContainers" not in template["spec"]
    assert any("and pushed" in note for note in notes), notes
    assert planned(app_of(project), image_repo="r/x", workspace_type="configmap")[0].manifests[0]["kind"] == (
        "ConfigMap"
    )


@pytest.mark.docker
def test_an_image_is_built_before_the_submission(project: Path) -> None:
    engine = Engine()
    app = app_of(project, image=IMAGE)
    plans = plan_workspaces(app, options(workspace_type="image"))
    assert any("not pushed" in note for note in plans.notes)
    name = app.roles[0].image
    before = made(app, workspaces=plans)
    try:
        request, _ = provide_images(before, lambda line: None)
        assert request == before  # nothing has pushed it, so the nodes can know its name alone
        assert inspect_image(engine, name) is not None
    finally:
        engine.call("DELETE", f"/images/{name}", {"force": 1})
