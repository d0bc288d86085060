"""The program of a Slurm job that applies the rules of retries on a node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchx.schedulers.slurm.script import judge_file


@pytest.mark.parametrize(
    ("line", "is_first", "refused"), [("boom", True, True), ("bang", True, False), ("boom", False, False)]
)
def test_the_first_failure_of_an_attempt_decides(
    tmp_path: Path, line: str, is_first: bool, refused: bool
) -> None:
    (tmp_path / "retries.py").write_text(judge_file())
    (tmp_path / "retry_rules.json").write_text('{"retry_on": null, "no_retry_on": ["log:boom"]}')
    attempt = tmp_path / "w" / "0" / "attempt-3"
    attempt.mkdir(parents=True)
    (attempt / "end.json").write_text('{"exit_code": 3}')
    (attempt / "combined.log").write_text(f"{line}\n")
    if not is_first:
        (tmp_path / "judged-3").touch()
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-S", str(tmp_path / "retries.py")),
            *(str(attempt.parent), str(tmp_path), str(tmp_path / "judged")),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0 if refused else 1, "")
    assert ("not retried: log:boom" in (attempt / "end.json").read_text()) is refused
