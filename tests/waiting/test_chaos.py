"""Many jobs of two state homes with random kills: each ends once, no GPU has two holders, none starves."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path

import fakegpus
import pytest
from local import scheduler, sh
from support import wait_until

from torchx.jobs import ticket
from torchx.jobs.paths import Home
from torchx.jobs.view import load
from torchx.leases.holders import names_in_use
from torchx.machine import processes
from torchx.specs.app import AppDef
from torchx.specs.resources import Resource
from torchx.waiting import keepers

COUNT = int(os.environ.get("TORCHX_CHAOS", "30"))
GPUS = 8
LINE = 'echo "{kind} $TORCHX_JOB_ID $CUDA_VISIBLE_DEVICES" >> "{trace}"'


@pytest.mark.timeout(900)
def test_random_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(17)
    machine = fakegpus.install(monkeypatch, tmp_path, GPUS)
    homes = [Home(tmp_path / name) for name in ("one", "two")]
    trace = tmp_path / "trace"
    trace.touch()
    jobs: list[tuple[Home, str]] = []
    for number in range(COUNT):
        home = homes[number % 2]
        jobs.append((home, _submit(home, chance, trace)))
        if number % 5 == 4:
            _kill_keeper(chance.choice(homes), chance)
        if number % 10 == 9:
            _kill_a_supervisor(jobs, chance)
        if number % 6 == 5:
            _kill_a_command_line(home, chance, trace)

    def all_have_ended() -> bool:
        for home in homes:
            if chance.random() < 0.1:
                _kill_keeper(home, chance)
        left = [(home, app_id) for home, app_id in _all(homes) if not _has_ended(home, app_id)]
        for home, app_id in left:
            _at(home)
            with contextlib.suppress(FileNotFoundError):
                scheduler().reconcile(app_id)
        return not left

    wait_until(all_have_ended, "each job ends", 600)
    assert set(jobs) <= set(_all(homes))
    for home, app_id in _all(homes):
        events = home.job(app_id).events.read_text()
        assert events.count('"e":"end"') == 1, events
        assert events.count('"e":"supervisor"') <= 1, "it was started once"
    _check(trace)
    wait_until(lambda: not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use(), "no lease is left")
    wait_until(
        lambda: not {keepers.name_of(home.path) for home in homes} & set(keepers.names()), "no keeper is left"
    )
    wait_until(lambda: not any(_processes_of(home) for home in homes), "no process is left")
    for home in homes:
        assert ticket.marked(home) == []


def _at(home: Home) -> None:
    os.environ["TORCHX_HOME"] = str(home.path)  # restored after the test


def _submit(home: Home, chance: random.Random, trace: Path) -> str:
    begin, end = (LINE.format(kind=kind, trace=trace) for kind in ("begin", "end"))
    role = sh(f"{begin}; sleep {chance.uniform(0.05, 0.2):.2f}; {end}")
    role.resource = Resource(1, chance.choice((1, 1, 2, 3, 4, 8)), 64)
    _at(home)
    cfg = {"grace_period": 5.0, "priority": chance.choice((0, 0, 0, 1))}
    return scheduler().submit(AppDef("job", [role]), cfg)


def _kill_a_command_line(home: Home, chance: random.Random, trace: Path) -> None:
    """Kills a process that submits a job, at any point: it is recorded completely, or not at all."""
    state = chance.getstate()
    pid = os.fork()
    if not pid:
        try:
            _submit(home, chance, trace)
        finally:
            os._exit(0)
    chance.setstate(state)
    pause = chance.uniform(0.0, 0.2)
    processes.wait_end(processes.look_up(pid).process, pause)  # type: ignore[union-attr]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _all(homes: list[Home]) -> list[tuple[Home, str]]:
    return [
        (home, folder.name)
        for home in homes
        if home.jobs.exists()
        for folder in home.jobs.iterdir()
        if not folder.name.startswith(".")
    ]


def _has_ended(home: Home, app_id: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return load(home.job(app_id)).has_ended
    return True  # the record of a submission that was killed


def _processes_of(home: Home) -> list[int]:
    """Returns the pids of the keepers, the supervisors and the guards of a state home."""
    found = []
    for entry in processes.table():
        with contextlib.suppress(OSError):
            words = processes.read_proc(f"/proc/{entry.process.pid}/cmdline").split(b"\0")
            if any(word.startswith(os.fsencode(home.path)) for word in words):
                found.append(entry.process.pid)
    return found


def _kill_keeper(home: Home, chance: random.Random) -> None:
    """Kills the keeper, or its guard too."""
    pids = [pid for pid in _processes_of(home) if _is_keeper(pid)]
    for pid in pids if chance.random() < 0.5 else pids[-1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_keeper(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"waiting.keeper" in processes.read_proc(f"/proc/{pid}/cmdline")
    return False


def _kill_a_supervisor(jobs: list[tuple[Home, str]], chance: random.Random) -> None:
    views = [load(home.job(app_id)) for home, app_id in jobs]
    running = [view.supervisor for view in views if view.supervisor is not None and not view.has_ended]
    if running:
        processes.send(chance.choice(running), signal.SIGKILL)


def _check(trace: Path) -> None:
    """Checks that no GPU has two holders: a killed job may have no end."""
    holders: dict[str, str] = {}
    begun = set()
    for line in trace.read_text().splitlines():
        kind, app, gpus = line.split()
        for gpu in gpus.split(","):
            holder = holders.get(gpu)
            if kind == "end":
                assert holder == app, line
                del holders[gpu]
            else:
                assert holder is None or _was_killed(trace, holder), (line, holder)
                holders[gpu] = app
        if kind == "begin":
            assert app not in begun, "it starts once"
            begun.add(app)


def _was_killed(trace: Path, app: str) -> bool:
    return f"end {app} " not in trace.read_text()
