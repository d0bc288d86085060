"""A command touches few files, and few calls cross from one part to another: the limits may only fall."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from local import ended, submit
from local import sh as role
from program import ROOT, environment

LIMITS = {
    "run --detach -s local_cwd utils.echo --msg hi": (104, 280),
    "run -s local_cwd utils.echo --msg hi": (130, 440),
    "status HANDLE": (49, 115),
    "log HANDLE": (49, 104),
}
"""Command -> the maximum number of touched files, and of crossings of parts.

On a loaded machine, an attached run reads the events while it waits: it goes further.
"""


@pytest.mark.parametrize("command", LIMITS)
def test_a_command_goes_no_longer_way(command: str, tmp_path: Path) -> None:
    app_id = submit(role("echo hi"))
    ended(app_id)
    words = command.replace("HANDLE", f"local_cwd://torchx/{app_id}").split()
    argv = [sys.executable, str(ROOT / "tests/tools/path_of.py"), str(ROOT), *words]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stderr.splitlines()[-1])
    files, crossings = LIMITS[command]
    assert len(counts["files"]) <= files, counts["files"]
    assert counts["crossings"] <= crossings
