"""The agent of a replica on a node: the end of its output."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from torchx.schedulers.slurm.node import agent


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
