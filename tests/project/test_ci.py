"""Tests of the CI scripts: the workflow runs every part, and commit subjects are checked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from project.sources import ROOT


def test_the_workflow_runs_every_part() -> None:
    done = subprocess.run([ROOT / ".ci" / "run", "no-such-part"], capture_output=True, text=True)
    assert done.returncode == 2
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    parts = workflow["jobs"]["part"]["strategy"]["matrix"]["part"]
    assert done.stderr == f"usage: .ci/run [PART]   parts: {' '.join(parts)}\n"


@pytest.mark.parametrize(
    ("subject", "code"),
    [
        ("slurm: requeue on node failure", 0),
        ("docs, ci: reword comments", 0),
        ("Merge branch 'main'", 0),
        ("Requeue on node failure", 1),
        ("slurm: requeue on node failure.", 1),
        (f"slurm: {'x' * 66}", 1),
    ],
)
def test_commit_subjects_have_an_area(subject: str, code: int, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nthe body\n", encoding="utf-8")
    done = subprocess.run([ROOT / ".ci" / "commit-subject", message], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
