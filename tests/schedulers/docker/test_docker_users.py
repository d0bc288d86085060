"""Checkpoints of programs that do not run as root: the volume is writable, a given folder is checked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from containers import Jobs, ended, fresh, of_name, sh, text
from engine import IMAGE

from torchx.errors import StateError
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images import user as images_user
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker
SAVE = "touch $TORCHX_CHECKPOINT_DIR/$(id -u) && echo saved as $(id -u); exit {}"


@pytest.fixture(scope="module")
def image_with_user() -> Iterator[str]:
    """An image whose programs run as `user`, 1000."""
    made = Engine().call("POST", "/containers/create", None, {"Image": IMAGE})["Id"]
    query = {"container": made, "changes": "USER user"}
    image = Engine().call("POST", "/commit", query, {})["Id"]
    yield image
    Engine().call("DELETE", f"/containers/{made}")
    Engine().call("DELETE", f"/images/{image}", {"force": 1})


def test_volume_is_writable_for_user_of_image(jobs: Jobs, image_with_user: str) -> None:
    app_id = jobs.submit(sh(SAVE.format(7), image=image_with_user, max_retries=1))
    ended(app_id)
    assert text(app_id) == "saved as 1000\nsaved as 1000\n"


def test_the_volume_is_writable_for_each_role(jobs: Jobs) -> None:
    other = sh(SAVE.format(0), name="v", max_retries=1, metadata={"local_docker": {"user": "4321:99"}})
    app_id = jobs.submit(sh(SAVE.format(0), max_retries=1), other)
    assert ended(app_id).state is AppState.SUCCEEDED
    assert sorted(text(app_id).split()) == sorted(["saved", "as", "0", "saved", "as", "4321"])


@pytest.mark.usefixtures("_docker_alone")
@pytest.mark.parametrize(("mode", "owner", "is_denied"), [
    (0o700, 0, True), (0o755, 0, True), (0o777, 0, False), (0o700, 1000, False), (0o770, 0, False),
])  # fmt: skip
def test_a_folder_that_is_not_writable_is_rejected(
    mode: int, owner: int, is_denied: bool, tmp_path: Path, jobs: Jobs, image_with_user: str
) -> None:
    if os.geteuid():
        pytest.skip("it needs root, to give files to another user")
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    folder.chmod(mode)
    os.chown(folder, owner, 0 if mode != 0o770 else 1000)
    role = sh(SAVE.format(0), image=image_with_user)
    if not is_denied:
        assert ended(jobs.submit(role, checkpoint_dir=str(folder))).state is AppState.SUCCEEDED
        return
    name = fresh("denied")
    with pytest.raises(StateError, match=r"is not writable for user, the user of sha256:.*\n.*leave out"):
        jobs.submit(role, name=name, checkpoint_dir=str(folder))
    assert of_name(name) == []


def test_users_of_a_mapping_engine_are_others_here(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)

    class Mapping(Engine):
        def call(self, method: str, path: str, *args: Any, **named: Any) -> Any:
            return {"SecurityOptions": ["name=seccomp", "name=rootless"]}

    user = images_user.User("me", os.geteuid())
    assert images_user.is_denied(Mapping(), user, str(tmp_path))
    tmp_path.chmod(0o777)
    assert not images_user.is_denied(Mapping(), user, str(tmp_path))
