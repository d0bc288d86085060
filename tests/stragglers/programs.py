"""Programs that report steps, of which one rank is slower than the others."""

from __future__ import annotations

WAITS = """
import os, sys, time
import torch, torch.distributed as dist
from torchx.distributed import beat, init_pg, rank
init_pg("gloo")
pause = 0.06 if rank() == 1 else 0.05
for step in range(100_000):
    time.sleep(pause)
    beat(step=step)
    dist.all_reduce(torch.zeros(1))
"""
"""Ranks that wait for each other at each step, with gloo; rank 1 is slower by a fifth."""

ALONE = """
import os, sys, time
sys.path.insert(0, "/torchx")
from torchx.distributed import beat
name, attempt = os.environ["TORCHX_REPLICA"], os.environ["TORCHX_ATTEMPT"]
pause = 0.06 if name.endswith("/1") and attempt == "1" else 0.03
for step in range(100_000):
    time.sleep(pause)
    beat(step=step)
"""
"""Ranks that do not wait; replica 1 is slower, in its first attempt."""

PRINTS = """
i=0
while i=$((i+1)); echo "epoch 1 step $i"; do
    if [ "${TORCHX_REPLICA#*/}" = 1 ]; then sleep 0.2; else sleep 0.1; fi
done
"""
"""Ranks of which the output has the steps; replica 1 is slower."""
