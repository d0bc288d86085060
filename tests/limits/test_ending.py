"""`torchx.distributed.ending` in programs: alone, and with PyTorch's processes under torchrun."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from local import describe, ended, handle, submit
from program import ROOT, torchx
from support import wait_until

from torchx.distributed import notice
from torchx.distributed.notice import Notice
from torchx.machine.processes import look_up
from torchx.specs.app import Role
from torchx.specs.status import AppState
from torchx.supervisor.limits import handling


@pytest.fixture(autouse=True)
def _handlers() -> object:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_clock_ends_a_run_without_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_NOTICE", "300:USR1")
    monkeypatch.setenv("TORCHX_ENDS_AT", str(int(time.time()) + 3600))
    assert Notice().check() is False
    monkeypatch.setenv("TORCHX_ENDS_AT", str(int(time.time()) + 200))
    assert Notice().check() is True
    for damaged in ("soon", ""):
        monkeypatch.setenv("TORCHX_ENDS_AT", damaged)
        assert Notice().check() is False


def test_signals_end_run_and_handlers_of_program_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHX_ENDS_AT", raising=False)
    monkeypatch.setenv("TORCHX_NOTICE", "300:USR2")
    got: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    made = Notice()
    assert made.check() is False
    signal.raise_signal(signal.SIGTERM)
    assert (got, made.check()) == ([signal.SIGTERM], False)
    signal.raise_signal(signal.SIGUSR2)
    assert made.check() is True


RANKS = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
import torch, torch.distributed as dist
from torchx.distributed import INTERRUPTED, ending, init_pg, rank
init_pg("gloo")
folder = os.environ["TORCHX_CHECKPOINT_DIR"]
run = os.environ["TORCHX_RUN"]
total = torch.zeros(1)
for step in range(10**6):
    time.sleep(0.001 * (1 + rank()))
    one = torch.ones(1)
    dist.all_reduce(one)  # an agreement of some ranks only would be mixed up with it
    assert one.item() == dist.get_world_size(), one
    noticed = ending()
    if step == 40:
        open(os.path.join(folder, f"ready-{{run}}-{{rank()}}"), "w").close()
    if noticed:
        print("rank", rank(), "ends at", step, flush=True)
        open(os.path.join(folder, f"{{run}}-{{rank()}}"), "w").write(str(step))
        dist.barrier()
        sys.exit(0 if run == "2" else INTERRUPTED)
"""


@pytest.mark.long
@pytest.mark.parametrize("alone", [True, False], ids=["one rank is signalled", "the supervisor notifies"])
def test_all_ranks_end_at_the_same_step_under_torchrun(tmp_path: Path, alone: bool) -> None:
    """The agent of torchrun, which handles no SIGUSR1, survives the notice."""
    program = tmp_path / "train.py"
    program.write_text(RANKS.format(root=str(ROOT)))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(program)]
    role = Role("w", image="", entrypoint=sys.executable, args=torchrun)
    saved = tmp_path / "checkpoints"
    noticed = {} if alone else {"notice": "3585s", "requeue_on": "time-limit"}
    app_id = submit(role, checkpoint_dir=str(tmp_path / "checkpoints"), time_limit="1h", **noticed)
    if alone:
        wait_until(lambda: len(list(saved.glob("ready-1-*"))) == 3, "all ranks compute")
        pid = describe(app_id).roles_statuses[0].replicas[0].attempts[0].pid
        assert pid is not None
        entry = look_up(pid)
        assert entry is not None
        found = handling([entry.process], signal.SIGUSR1)[0][entry.process]
        assert len(found) == 3, "the ranks, and not the agent"
        os.kill(found[1].pid, signal.SIGUSR1)
    done = ended(app_id)
    log = torchx("log", handle(app_id)).stdout
    steps = {run: [path.read_text() for path in saved.glob(f"{run}-*")] for run in "12"}
    assert len(steps["1"]) == 3, log
    assert len(set(steps["1"])) == 1, (steps, log)
    if alone:
        assert done.run == 1
    else:
        assert (done.state, done.run) == (AppState.SUCCEEDED, 2), log
        assert len(set(steps["2"])) == 1, steps


def test_a_step_takes_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHX_ENDS_AT", raising=False)
    monkeypatch.setattr(notice, "_notice", None)
    assert not any(notice.ending() for _ in range(1000))
