"""The example that trains on digits: five interruptions do not change its result."""

from __future__ import annotations

import re
import sys

import pytest
from local import ended, handle, submit
from program import ROOT, torchx

from torchx.specs.app import Role
from torchx.specs.status import AppState

pytest.importorskip("sklearn", reason="the example needs scikit-learn: make venv-dev")


def train(**limits: str) -> tuple[int, str]:
    """Returns the number of the last run, and the log."""
    program = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    script = [str(ROOT / "examples/digits/train.py"), "--epochs", "6", "--batch", "64"]
    env = {"PYTHONPATH": str(ROOT)}
    role = Role("w", image="", entrypoint=sys.executable, args=[*program, *script], env=env)
    done = ended(submit(role, **limits), 280.0)
    log = torchx("log", handle(done.app_id)).stdout
    assert done.state is AppState.SUCCEEDED, log
    return done.run, log


@pytest.mark.timeout(600)  # PyTorch starts seven times
def test_five_interruptions_do_not_change_the_result() -> None:
    """The notice comes at once, so each run trains one epoch, however fast it is."""
    run, interrupted = train(time_limit="1h", notice="3599.9s", requeue_on="time-limit:9")
    assert run == 6
    assert interrupted.count("saved after epoch") == interrupted.count("continues after epoch") == 5
    once, whole = train()
    assert once == 1
    results = [re.findall(r"held-out accuracy [\d.]+", log) for log in (interrupted, whole)]
    assert results[0] == results[1] != []
