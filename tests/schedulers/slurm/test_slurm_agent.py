"""The agent of a replica on a node: the end of its output, and the end of a replica that is being ended."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from slurmscripts import SH, run_task

from torchx.schedulers.slurm.node import agent
from torchx.specs import AppDef, Role, service


class Ending:
    """A program that prints its last line and ends between two looks of the agent, as after a suspension."""

    def __init__(self, gate: Path) -> None:
        script = f"while [ ! -e {gate} ]; do sleep 0.01; done; echo last"
        self.process = subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.stdout, self.stderr, self._gate, self._looks = (
            self.process.stdout,
            self.process.stderr,
            gate,
            0,
        )

    def poll(self) -> int | None:
        self._looks += 1
        if self._looks == 1:
            return None
        self._gate.touch()
        return self.process.wait()

    def wait(self) -> int:
        return self.process.wait()


def test_the_last_line_after_a_suspension_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the suspension is not a time without output."""
    monkeypatch.setattr(agent, "DRAIN", 0.01)
    program = Ending(tmp_path / "gate")
    with program.process:
        assert agent.follow(program, agent.Output(str(tmp_path), 1), None) == 0
    assert (tmp_path / "combined.log").read_text() == "last\n"


class Ready:
    """The checks of a service that was ready in time."""

    late = ""


@pytest.mark.parametrize(("status", "checks"), [(-signal.SIGTERM, None), (143, None), (0, Ready())])
def test_the_signal_may_reach_the_program_before_the_agent(
    status: int, checks: Ready | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "SIGNALLED_WITHIN", 60.0)
    received: list[int] = []
    later = threading.Timer(0.1, received.append, [signal.SIGTERM])
    later.start()
    assert agent.is_being_ended(status, checks, received)
    later.join()


@pytest.mark.parametrize("status", [0, 3, -signal.SIGKILL])
def test_the_end_of_another_replica_needs_no_signal(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "SIGNALLED_WITHIN", 60.0)
    assert not agent.is_being_ended(status, None, [])


FEW = ("mkdir", "date", "sh", "rm", "sleep")


@pytest.mark.parametrize("python", [True, False])
@pytest.mark.parametrize("mark", ["stopping", "cancelled"])
def test_a_replica_that_is_being_ended_is_not_started_again(tmp_path: Path, mark: str, python: bool) -> None:
    """The job ends its replicas, and the program gets the signal first."""
    script = f"trap 'exit 5' TERM; : > {tmp_path}/{mark}; kill -TERM $$$$; sleep 60"
    server = service(Role("server", "", entrypoint=SH, args=["-c", script]))
    programs = tmp_path / "few"
    programs.mkdir()
    for name in FEW:
        (programs / name).symlink_to(shutil.which(name) or name)
    (tmp_path / ".ready-0").mkdir()
    path = {} if python else {"path": str(programs)}
    end = json.loads((run_task(AppDef("a", [server]), tmp_path, retries=1, **path) / "end.json").read_text())
    assert len(list(tmp_path.glob("*/*/attempt-*"))) == 1
    assert end["stop_signal"] == "SIGTERM"
    assert "needed" not in end
