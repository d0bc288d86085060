"""A gang under torchrun that is restarted meets again, and finds nothing of the attempt before."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import torchx

PROGRAM = """
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
if dist.get_rank() == 0:
    print("known from before:", store.check(["seen"]), flush=True)
    store.set("seen", "yes")
total = torch.ones(1)
dist.all_reduce(total)
if dist.get_rank() == 1 and os.environ["TORCHX_ATTEMPT"] == "1":
    os._exit(3)
dist.barrier()
print("sum", int(total), "in attempt", os.environ["TORCHX_ATTEMPT"], flush=True)
dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_restarted_gang_meets_at_a_fresh_rendezvous(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    arguments = ("--max_retries", "1", "-j", "2x1", "--memMB", "100", "--cpu", "1")
    done = torchx(
        "run", "-s", "local_cwd", "-cfg", "retry_backoff=0.1", "dist.torchrun", *arguments,
        "--script", str(tmp_path / "train.py"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("known from before: False") == 2, done.stderr
    assert "known from before: True" not in done.stderr
    assert done.stderr.count("sum 2 in attempt 2") == 2, done.stderr
