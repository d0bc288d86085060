"""What a dry-run plans for a workspace travels in the request, not hidden in the application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchx.schedulers import BUILT_IN, create_scheduler
from torchx.schedulers.api import Scheduler
from torchx.specs import AppDef, Role
from torchx.specs.workspace import Workspace

IMAGE_CFG: dict[str, dict[str, Any]] = {
    "kubernetes": {"image_repo": "registry.example.com/x"},
    "slurm": {"image_repo": "registry.example.com/x", "workspace_type": "docker", "containers": True},
}
"""Run options with which a cluster sends workspaces in images."""


@pytest.fixture
def app(tmp_path: Path) -> AppDef:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "train.py").write_text("", encoding="utf-8")
    roles = [
        Role(name, "img", entrypoint="python", workspace=Workspace({str(tmp_path / "w"): ""}))
        for name in ("a", "b")
    ]
    return AppDef("job", roles)


def plans_of(scheduler: str, request: Any) -> list[Any]:
    if scheduler.startswith("local_docker"):
        return list(request.builds)
    if scheduler == "kubernetes":
        return [*request.workspaces.archives.values(), *request.workspaces.builds]
    if scheduler == "slurm":
        return [*request.copies.values(), *request.builds]
    return [*(request.copies if scheduler == "gridengine" else request.workspaces).values()]


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("name", BUILT_IN)
def test_request_has_plans_and_application_is_plain(
    name: str, images: bool, app: AppDef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "img").mkdir()
    scheduler: Scheduler[Any] = create_scheduler(name, "torchx")
    info = scheduler.submit_dryrun(app, IMAGE_CFG.get(name, {}) if images else {})
    assert plans_of(name, info.request)
    assert info.app is not None
    for role in info.app.roles:
        assert type(role.workspace) is Workspace
        assert set(vars(role.workspace)) == {"projects"}
    assert [role.image for role in app.roles] == ["img", "img"], "the caller's application is unchanged"
