"""Slow ranks of containers: their steps are in a mounted file, their events in the folder of the job."""

from __future__ import annotations

import pytest
from containers import Jobs, describe, scheduler, sh
from hooks import Hooks
from program import ROOT, answer, torchx
from stragglers.programs import ALONE
from support import wait_until

from torchx.runner import get_runner
from torchx.specs.app import AppDef
from torchx.specs.mounts import BindMount
from torchx.specs.notify import Notify
from torchx.stragglers.record import reports_in

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


def test_a_slow_container_is_reported(jobs: Jobs, hooks: Hooks) -> None:
    """It runs as a user of its own."""
    role = sh(
        "",
        3,
        entrypoint="python3",
        args=["-c", ALONE],
        mounts=[BindMount(str(ROOT), "/torchx", read_only=True)],
        metadata={"local_docker": {"user": "65534"}},
    )
    with get_runner() as runner:
        info = runner.dryrun(AppDef("slow", [role]), "local_docker", {"straggler": 10})
        info.notify = Notify([hooks.url], ["straggler"])
        handle = runner.schedule(info)
    try:
        wait_until(lambda: _slow(handle), "it is found")
        described = describe(handle.rpartition("/")[2])
        assert [(each.kind, each.replicas) for each in reports_in(described.steps_dir)] == [
            ("straggler", (1,))
        ]
        (step,) = answer("status", "-o", "json", handle)["steps"]
        assert (step["ranks"], step["slowest"]["replica"], step["waits"]) == (3, 1, False)
        events = torchx("events", handle).stdout
        assert events.count("straggler") == 1
        _, body = hooks.wait_for(1)[0]
        assert body["event"] == "straggler"
    finally:
        scheduler().delete(handle.rpartition("/")[2])


def _slow(handle: str) -> bool:
    steps = answer("status", "-o", "json", handle)["steps"]
    return bool(steps) and steps[0]["stragglers"] == ["w/1"]
