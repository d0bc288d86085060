"""Many jobs of three users with random kills: each ends once, no GPU has two holders, none starves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import fakegpus
import pytest
from chaos import Chaos
from support import wait_until
from users import UIDS, User, shared_folder

from torchx.leases.holders import names_in_use

COUNT = int(os.environ.get("TORCHX_CHAOS", "30"))
GPUS = 8


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


@pytest.mark.long
@pytest.mark.timeout(900)
def test_random_kills(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fakegpus.install(monkeypatch, folder, GPUS)
    with contextlib.ExitStack() as running:
        users = [running.enter_context(User(uid, folder / f"home{n}")) for n, uid in enumerate(UIDS)]
        chaos = Chaos(users, folder)
        chaos.submit(COUNT)
        wait_until(chaos.all_have_ended, "each job ends", 600)
    assert sorted(job.app_id for job in chaos.jobs) == sorted(
        app_id for user in users for app_id in user.jobs()
    )
    for job in chaos.jobs:
        kinds = [event["e"] for event in job.user.events(job.app_id)]
        assert kinds.count("end") == 1, job.user.events(job.app_id)
        assert kinds.count("supervisor") <= 1, "it was started once"
    _check(chaos.trace())
    wait_until(lambda: not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use(), "no lease is left")
    wait_until(lambda: not any(user.processes() for user in users), "no process is left")
    for user in users:
        assert list(user.home.queue.glob("[!.]*")) == []


def _check(trace: list[tuple[str, str, list[str]]]) -> None:
    """Checks that no GPU has two holders: a killed job may have no end."""
    holders: dict[str, str] = {}
    ended = {app for kind, app, _ in trace if kind == "end"}
    begun = [app for kind, app, _ in trace if kind == "begin"]
    assert len(begun) == len(set(begun)), "each starts once"
    for kind, app, gpus in trace:
        for gpu in gpus:
            holder = holders.pop(gpu, None)
            if kind == "end":
                assert holder == app
            else:
                assert holder is None or holder not in ended, (app, holder)
                holders[gpu] = app
