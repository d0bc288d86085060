"""A supervisor may end, and take its folder along, at any moment, and outlives who has started it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx.machine import locks as lock
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.reconcile import reconcile
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.specs.app import AppDef, Role
from torchx.specs.serialize import app_to_dict


@pytest.mark.parametrize("moment", ["is_held", "acquire"])
def test_supervisor_that_has_finished_is_not_missed(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = AppDef("job", [Role("w", "img", max_retries=1)])
    data = {"app": app_to_dict(app), "cfg": {"fail_fast": True}, "submitted_at": 1000.0}
    container = Container("c", "app-w-0", "", "app", "w", 0, status="running", started=1001.0, job=data)
    folder = supervised_in("app").folder
    folder.mkdir(parents=True)
    look: Callable[[Path], Any] = getattr(lock, moment)

    def looked_at_the_last_moment(path: Path) -> Any:
        found = look(path)
        shutil.rmtree(folder)
        return found

    monkeypatch.setattr(lock, moment, looked_at_the_last_moment)
    before = len(os.listdir("/proc/self/fd"))
    reconcile(Engine(), [container])
    assert len(os.listdir("/proc/self/fd")) == before
    assert not folder.exists()


@pytest.mark.docker
def test_a_supervisor_whose_starter_was_killed_does_its_work(tmp_path: Path) -> None:
    code = "import sys; from torchx.schedulers.docker.supervisor import main; main(sys.argv[1:])"
    nobody_reads, ready = os.pipe()
    os.close(nobody_reads)
    words = [sys.executable, "-c", code, str(tmp_path / "job"), "no-such-job", str(ready)]
    done = subprocess.run(words, pass_fds=[ready], capture_output=True, text=True)
    os.close(ready)
    assert (done.returncode, done.stderr) == (0, "")
