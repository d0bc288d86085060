"""What goes wrong beneath the replicas: full volumes, tags that move, failed starts, slow readers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from containers import Jobs, containers, ended, fresh, of_name, scheduler, sh, text, until_logged
from engine import IMAGE
from gpu_engine import GpuEngine
from support import wait_until

from torchx.errors import StateError
from torchx.schedulers.docker.engine.client import Engine
from torchx.scheduling.logs import LogQuery
from torchx.specs import BindMount
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker


def volumes(mark: str) -> list[str]:
    """The names of the volumes with a label."""
    query = {"filters": {"label": [f"mark={mark}"]}}
    return [volume["Name"] for volume in Engine().call("GET", "/volumes", query)["Volumes"] or ()]


def image_that_says(what: str, tag: str) -> str:
    """Makes an image that has a variable, and gives it a tag, which another may have had; returns its id."""
    engine = Engine()
    base = engine.call("POST", "/containers/create", body={"Image": IMAGE, "Cmd": ["true"]})["Id"]
    try:
        where = {"container": base, "repo": "torchx-test-moving", "tag": tag}
        return str(engine.call("POST", "/commit", where, {"Env": [f"SAYS={what}"]})["Id"])
    finally:
        engine.call("DELETE", f"/containers/{base}", {"force": 1})


def test_volume_that_is_full_fails_replica_that_writes(jobs: Jobs) -> None:
    limited = {"Name": "local", "Options": {"type": "tmpfs", "device": "tmpfs", "o": "size=1m"}}
    mount = {"Type": "volume", "Target": "/full", "VolumeOptions": {"DriverConfig": limited}}
    script = "head -c 3000000 /dev/zero > /full/a || { echo full; exit 28; }"
    done = jobs.run(sh("sleep 600", name="other"), sh(script, metadata={"local_docker": {"mounts": [mount]}}))
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert (done.first_failure.role, done.first_failure.exit_code) == ("w", 28)
    assert "full\n" in text(done.app_id)


def test_a_retry_runs_the_image_of_the_first_attempt(jobs: Jobs) -> None:
    tag = f"t{time.monotonic_ns()}"
    first = image_that_says("first", tag)
    made = [first]
    try:
        app_id = jobs.submit(
            sh("echo $SAYS; sleep 600", image=f"torchx-test-moving:{tag}", max_retries=1), grace_period=0.0
        )
        until_logged(app_id, "first")
        made.append(image_that_says("second", tag))
        engine = Engine()
        engine.call("POST", f"/containers/{containers(app_id)[0]['Id']}/kill")
        wait_until(lambda: text(app_id) == "first\nfirst\n", "the second attempt says the same")
        scheduler().cancel(app_id)
        assert [c["Image"] for c in containers(app_id)] == [first, first]
    finally:
        for app_id in jobs.ids:
            scheduler().kill(app_id)
            scheduler().delete(app_id)
        for image in made:
            Engine().call("DELETE", f"/images/{image}", {"force": 1})


def test_a_start_that_fails_takes_its_anonymous_volumes_along(jobs: Jobs) -> None:
    mark = name = fresh("halfway")
    scratch = {"Type": "volume", "Target": "/scratch", "VolumeOptions": {"Labels": {"mark": mark}}}
    role = sh("sleep 600", 2, metadata={"local_docker": {"mounts": [scratch]}})
    app_id = jobs.submit(role, name=name)
    assert len(volumes(mark)) == 2
    scheduler().kill(app_id)
    scheduler().delete(app_id)
    assert volumes(mark) == []
    role.metadata["local_docker"]["devices"] = ["/dev/nowhere"]
    with pytest.raises(StateError, match="/dev/nowhere"):
        jobs.submit(role, name=name)
    assert of_name(name) == []
    assert volumes(mark) == []


def test_who_reads_slowly_gets_all_of_who_writes_fast(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("seq 200000"))
    found = bytearray()
    for n, chunk in enumerate(scheduler().log_chunks(app_id, LogQuery(follow=True))):
        if n < 3:
            ended(app_id)  # without a reader
        found += chunk.data
    assert found == b"".join(b"%d\n" % i for i in range(1, 200001))


@pytest.mark.timeout(400)
def test_a_subscription_that_the_engine_ends_is_renewed(
    engine: GpuEngine, waiting_jobs: Jobs, tmp_path: Path
) -> None:
    """As Podman does while it runs on; commands that wait or follow a log continue, and so does the job."""
    script = f"echo one; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo two; test $TORCHX_ATTEMPT = 2"
    mounts = [BindMount(str(tmp_path), str(tmp_path))]
    app_id = waiting_jobs.submit(sh(script, max_retries=1, mounts=mounts))
    until_logged(app_id, "one")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(scheduler().wait, app_id, 240)
        following = pool.submit(lambda: list(scheduler().log_iter(app_id, "w", 0, should_tail=True)))
        # the supervisor, and both readers
        wait_until(lambda: len(engine.subscriptions) >= 3, "all have a subscription")
        ended_ones = set(engine.subscriptions)
        engine.end_subscriptions()
        wait_until(lambda: len(engine.subscriptions - ended_ones) >= 3, "all have another one")
        (tmp_path / "go").touch()
        assert waiting.result(240)
        assert following.result(240) == ["one\n", "two\n"] * 2
    assert ended(app_id).state is AppState.SUCCEEDED
