"""Many jobs of three users with random kills: each ends once, no GPU has two holders, none starves."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import fakegpus
import pytest
from support import wait_until
from users import UIDS, User, shared_folder

from torchx.leases.holders import names_in_use
from torchx.machine import processes
from torchx.machine.processes import Process

COUNT = int(os.environ.get("TORCHX_CHAOS", "30"))
GPUS = 8
LINE = 'echo "{kind} $TORCHX_JOB_ID $CUDA_VISIBLE_DEVICES" >> "{trace}"'


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


@pytest.mark.timeout(900)
def test_random_kills(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(17)
    machine = fakegpus.install(monkeypatch, folder, GPUS)
    trace = folder / "trace"
    trace.touch()
    trace.chmod(0o666)
    with contextlib.ExitStack() as running:
        users = [running.enter_context(User(uid, folder / f"home{n}")) for n, uid in enumerate(UIDS)]
        jobs: list[tuple[User, str]] = []
        hit: set[str] = set()
        for number in range(COUNT):
            user = users[number % len(users)]
            jobs.append((user, user.submit(_script(chance, trace), _gpus(chance), **_cfg(chance))))
            if number % 5 == 4:
                _kill_keeper(chance.choice(users), chance)
            if number % 10 == 9:
                _kill_a_supervisor(users, chance, hit)
            if number % 6 == 5:
                after = chance.uniform(0.0, 0.2)
                user.submit_and_kill(_script(chance, trace), _gpus(chance), after, **_cfg(chance))

        def all_have_ended() -> bool:
            for user in users:
                if chance.random() < 0.1:
                    _kill_keeper(user, chance)
            return not [app_id for user in users for app_id in user.unfinished()]

        wait_until(all_have_ended, "each job ends", 600)
    assert all(app_id in user.jobs() for user, app_id in jobs)
    for user in users:
        for app_id in user.jobs():
            kinds = [event["e"] for event in user.events(app_id)]
            assert kinds.count("end") == 1, user.events(app_id)
            assert kinds.count("supervisor") <= 1, "it was started once"
    _check(trace)
    wait_until(lambda: not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use(), "no lease is left")
    wait_until(lambda: not any(user.processes() for user in users), "no process is left")
    for user in users:
        assert list(user.home.queue.glob("[!.]*")) == []


def _script(chance: random.Random, trace: Path) -> str:
    begin, end = (LINE.format(kind=kind, trace=trace) for kind in ("begin", "end"))
    return f"{begin}; sleep {chance.uniform(0.05, 0.2):.2f}; {end}"


def _gpus(chance: random.Random) -> int:
    return chance.choice((1, 1, 2, 3, 4, 8))


def _cfg(chance: random.Random) -> dict[str, int]:
    return {"priority": chance.choice((0, 0, 0, 1))}


def _kill_keeper(user: User, chance: random.Random) -> None:
    """Kills the keeper, or its guard too."""
    pids = user.processes("waiting.keeper")
    for pid in pids if chance.random() < 0.5 else pids[-1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_a_supervisor(users: Sequence[User], chance: random.Random, hit: set[str]) -> None:
    """Kills the supervisor of a job or its guard; without both, its processes would go on without a lease."""
    running = {}
    for user in users:
        for app_id in user.jobs():
            events = user.events(app_id)
            if app_id not in hit and events[-1:] and events[-1]["e"] != "end":
                for event in events:
                    if event["e"] == "supervisor":
                        running[app_id] = event
    if running:
        app_id = chance.choice(sorted(running))
        hit.add(app_id)
        event = running[app_id]
        both = [Process(event["pid"], event["start"]), Process(*event["guard"])]
        processes.send(chance.choice(both), signal.SIGKILL)


def _check(trace: Path) -> None:
    """Checks that no GPU has two holders: a killed job may have no end."""
    holders: dict[str, str] = {}
    begun = set()
    text = trace.read_text()
    for line in text.splitlines():
        kind, app, gpus = line.split()
        for gpu in gpus.split(","):
            holder = holders.get(gpu)
            if kind == "end":
                assert holder == app, line
                del holders[gpu]
            else:
                assert holder is None or f"end {holder} " not in text, (line, holder)
                holders[gpu] = app
        if kind == "begin":
            assert app not in begun, "it starts once"
            begun.add(app)
