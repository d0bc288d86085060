"""Several schedulers queried at the same time: none delays the others."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from memory_scheduler import MemoryScheduler
from program import torchx
from slurms import configure_no_controller

from torchx.errors import AbsentError, StateError
from torchx.runner import Runner
from torchx.runner.survey import survey
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs import AppState


def test_answers_and_reasons_come_in_order_of_question() -> None:
    absent = AbsentError("there is none")

    def ask(name: str) -> str:
        if name == "b":
            raise absent
        return name.upper()

    assert list(survey(["c", "b", "a"], ask).items()) == [("c", "C"), ("b", absent), ("a", "A")]


def test_all_are_queried_at_the_same_time() -> None:
    meet = threading.Barrier(3, timeout=20)
    assert len(survey("abc", lambda name: meet.wait(), patience=20)) == 3


def test_one_that_does_not_answer_is_passed_over() -> None:
    hang = threading.Event()
    try:
        result = survey("ab", lambda name: name == "a" or hang.wait(60), patience=0.2)
    finally:
        hang.set()
    assert result["a"] is True
    assert isinstance(result["b"], StateError)


def test_a_mistake_in_a_program_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        survey("ab", lambda name: 1 / 0)


def test_cluster_that_hangs_does_not_hang_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "squeue"
    program.write_text("#!/bin/sh\nwhile sleep 0.2; do echo; done\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    configure_no_controller(monkeypatch, tmp_path)
    result = torchx("status", "unknown")
    assert result.returncode == 69
    assert result.stderr.startswith("error: local_docker did not answer: ")  # the default one of this machine
    assert "slurm did not answer either" in result.stderr
    assert "there is no application" not in result.stderr
    listed = torchx("list", "--json")
    assert (listed.returncode, listed.stdout) == (0, "[]\n")
    assert "slurm" in listed.stderr.partition("not reached: ")[2]


@pytest.mark.parametrize("answers", [True, False])
def test_a_scheduler_without_lists_still_describes_one(tmp_path: Path, answers: bool) -> None:
    class Spaces(MemoryScheduler):
        """Ids have a namespace, which need not be typed; to list all of them takes too long."""

        def list(self, cfg: object = None) -> list[object]:  # type: ignore[override]
            raise StateError("it does not answer within 5 s")

        def exists(self, app_id: str) -> bool:
            return app_id == "one-0"

        def describe(self, app_id: str) -> DescribeAppResponse:
            if not answers:
                raise StateError("it does not answer within 5 s")
            return DescribeAppResponse("lab:one-0", AppState.RUNNING)

    with Runner("s", {"spaces": Spaces}) as runner:
        assert runner.resolve_handle("one-0") == f"spaces://torchx/{'lab:' if answers else ''}one-0"
