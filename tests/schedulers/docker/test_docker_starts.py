"""A start that fails is undone completely, and reported in one sentence."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from containers import Jobs, ended, fresh, of_name, scheduler, sh, text
from engine import IMAGE
from support import wait_until

from torchx.errors import StateError, UsageError
from torchx.jobs.paths import user_home
from torchx.schedulers.docker.engine.client import PATIENCE, Engine, EngineError
from torchx.specs.app import AppDef, Role
from torchx.specs.mounts import BindMount, DeviceMount, VolumeMount
from torchx.specs.resources import Resource
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker

TRAPS = "trap 'exit 0' TERM; while true; do sleep 0.1; done"


def refused(*roles: Role) -> StateError:
    """Submits what cannot be started, and sees to it that nothing of it is left."""
    name = fresh("refused")
    with pytest.raises(StateError) as caught:
        scheduler().submit(AppDef(name, list(roles)), {})
    assert of_name(name) == []
    assert not list((user_home() / "jobs").glob("*"))
    assert "\n" not in caught.value.message
    return caught.value


def test_an_image_that_is_nowhere() -> None:
    error = refused(sh("true", image="registry.invalid/nowhere/image:1"))
    assert error.message.startswith(
        "the image registry.invalid/nowhere/image:1 is not on the engine and cannot be pulled"
    )


def test_a_program_that_the_image_lacks() -> None:
    error = refused(sh("sleep 600", 3), sh("", name="bad", entrypoint="no-such-program"))
    assert error.message.endswith(
        f"-bad-0 cannot be started: no program `no-such-program` in its image {IMAGE}"
    )


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = refused(sh("sleep 600", port_map={"web": port}))
    assert f"port {port} is in use" in error.message


def test_a_device_and_a_folder_that_are_not_there(tmp_path: Path) -> None:
    assert "/dev/nowhere" in refused(sh("true", mounts=[DeviceMount("/dev/nowhere", "/dev/x")])).message
    gone = str(tmp_path / "gone")
    assert gone in refused(sh("true", mounts=[BindMount(gone, "/x")])).message


def test_gpus_that_the_engine_has_not() -> None:
    error = refused(sh("true", resource=Resource(cpu=1, gpu=1, memMB=64)))
    assert "the engine provides no GPUs" in error.message


def test_a_name_that_is_taken_stays_with_its_owner() -> None:
    job = fresh("clash")
    info = scheduler().submit_dryrun(AppDef(job, [sh("true", 2)]), {})
    engine, name = Engine(), info.request.containers[1].kwargs["name"]
    other = engine.call("POST", "/containers/create", {"name": name}, {"Image": IMAGE, "Cmd": ["true"]})["Id"]
    try:
        with pytest.raises(StateError, match=f"a container {name} already exists"):
            scheduler().schedule(info)
        assert of_name(job) == [f"/{name}"]
    finally:
        engine.call("DELETE", f"/containers/{other}")


def test_roles_whose_containers_would_have_one_name_are_refused() -> None:
    names = [30 * "a" + end for end in "xy"]
    roles = [sh("true", name=name) for name in names]
    with pytest.raises(
        UsageError, match=f"roles `{names[0]}` and `{names[1]}` would have the same name, job-"
    ):
        scheduler().submit_dryrun(AppDef("job", roles), {})


def test_a_request_is_submitted_once() -> None:
    name = fresh("once")
    info = scheduler().submit_dryrun(AppDef(name, [sh("true")]), {})
    app_id = scheduler().schedule(info)
    try:
        with pytest.raises(UsageError, match="submitted only once"):
            scheduler().schedule(info)
        assert len(of_name(name)) == 1
    finally:
        scheduler().delete(app_id)


def test_an_image_needs_no_shell(jobs: Jobs, tmp_path: Path) -> None:
    """Nothing but one program is in it: neither a shell nor a folder for temporary files."""
    shutil.copy("/bin/busybox", tmp_path / "echo")
    (tmp_path / "Dockerfile.torchx").write_text("FROM scratch\nCOPY echo /echo\n")
    image = scheduler().build_workspace_image(IMAGE, str(tmp_path))
    try:
        bare = Role("w", image, entrypoint="/echo", args=["a  b", "$HOME"], num_replicas=2)
        assert jobs.run(bare).state is AppState.SUCCEEDED
        assert text(jobs.ids[-1]) == "a  b $HOME\n" * 2
        lacking = Role("w", image, entrypoint="sh", args=["-c", "true"])
        with pytest.raises(StateError, match="no program `sh` in its image"):
            jobs.submit(lacking)
    finally:
        for app_id in jobs.ids:
            scheduler().delete(app_id)
        Engine().call("DELETE", f"/images/{image}", {"force": 1})


def test_a_volume_that_containers_share_exists_before_them(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Podman rejects containers that create the same volume at the same time; here, each that creates one."""
    shared = fresh("shared")
    real = Engine.call

    def call(engine: Engine, method: str, path: str, query: Any = None, body: Any = None, **more: Any) -> Any:
        if (method, path) == ("POST", "/containers/create"):
            for mount in body["HostConfig"]["Mounts"]:
                try:
                    real(engine, "GET", f"/volumes/{mount['Source']}")
                except EngineError:
                    raise EngineError(500, f"volume {mount['Source']} already exists") from None
        return real(engine, method, path, query, body, **more)

    monkeypatch.setattr(Engine, "call", call)
    mounts = [VolumeMount(shared, "/shared")]
    script = 'test -d "$TORCHX_CHECKPOINT_DIR" && test -d /shared'
    try:
        app_id = jobs.submit(sh(script, 2, max_retries=1, mounts=mounts), sh(script, name="b", mounts=mounts))
        assert ended(app_id).state is AppState.SUCCEEDED
    finally:
        for each in jobs.ids:
            scheduler().delete(each)
        jobs.ids.clear()
        Engine().call("DELETE", f"/volumes/{shared}")


def test_a_submission_has_the_patience_of_docker_run(jobs: Jobs) -> None:
    class Loaded(Engine):
        """An engine that answers a request for a container after ten minutes."""

        def _request(self, method: str, url: str, body: Any, patience: float | None) -> Any:
            if method == "POST" and "/containers/" in url and patience is not None and patience < 600:
                raise self.unreachable(TimeoutError())
            return super()._request(method, url, body, patience)

    loaded = scheduler()
    loaded._engine = Loaded()
    app_id = loaded.submit(AppDef("loaded", [sh("true", 32)]), {})
    jobs.ids.append(app_id)
    assert ended(app_id).state is AppState.SUCCEEDED
    assert loaded._engine.patience == PATIENCE, "other commands of this process fail sooner"


@pytest.mark.parametrize("moment", ["before the first start", "after the first start", "before a creation"])
def test_a_cancellation_during_the_start_ends_all_at_once(
    moment: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that end at TERM are not killed after the grace period, whenever they were started."""
    info = scheduler().submit_dryrun(AppDef(fresh("early"), [sh(TRAPS, 3)]), {"grace_period": 60.0})
    app_id = info.request.app_id
    jobs.ids.append(app_id)
    call, counts, lock = Engine.call, Counter[str](), threading.Lock()
    due = {"before the first start": ("start", 1), "after the first start": ("start", 2)}

    def disturbed(engine: Engine, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        step = path.rpartition("/")[2]
        with lock:
            counts[step] += method == "POST"
            if method == "POST" and (step, counts[step]) == due.get(moment, ("create", 3)):
                monkeypatch.setattr(Engine, "call", call)
                wait_until(lambda: len(of_name(info.request.app_id)) >= 2, "two are created")
                scheduler().cancel(app_id)
                monkeypatch.setattr(Engine, "call", disturbed)
        return call(engine, method, path, *args, **kwargs)

    monkeypatch.setattr(Engine, "call", disturbed)
    scheduler().schedule(info)
    monkeypatch.undo()
    begun = time.monotonic()
    assert ended(app_id).state is AppState.CANCELLED
    assert time.monotonic() - begun < 30
