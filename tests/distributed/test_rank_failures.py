"""The report of a real torchrun: the rank that failed first is named, and its lines are shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import answer, torchx

PROGRAM = """
import os, sys, time
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
rank = int(os.environ["RANK"])

def main():
    print(f"step of {rank}")
    if rank == 1:
        raise ValueError("bad shard")
    time.sleep(600)

(record(main) if sys.argv[1] == "record" else main)()
"""


@pytest.mark.torch
@pytest.mark.parametrize("record", [pytest.param("record", marks=pytest.mark.long), "plain"])
def test_the_first_rank_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM, encoding="utf-8")
    done = torchx(
        "run", "-s", "local_cwd", "dist.torchrun", "-j", "1x2", "--script", "train.py", "--", record
    )
    assert done.returncode == 1, done.stderr
    assert "  rank 1 (local rank 1 of train/0) failed first: exit 1\n" in done.stderr
    shown = [line[4:] for line in done.stderr.splitlines() if line.startswith("  │ ")]
    assert "ValueError: bad shard" in shown
    assert (len(shown) == 1) == (record == "record")
    assert "errors.record" not in done.stderr, "the cause is known"
    name = done.stdout.strip()
    assert "[1]:step of 1" in torchx("log", "--no-prefix", "--rank", "1", name).stdout
    assert [each["exit_code"] for each in answer("status", "--ranks", name, "-o", "json")["ranks"]][1] == 1
