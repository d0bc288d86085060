"""The ranks that a stalled collective waits for, from PyTorch's flight recorder and from NCCL."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local import describe, ended, scheduler, sh, submit, text
from program import ROOT
from support import wait_until

from torchx.specs.app import Role
from torchx.supervisor.collectives import flight_recorder, nccl_ras
from torchx.supervisor.collectives.reader import repaired

RANKS = """
import os, sys, threading
sys.path.insert(0, {root!r})
import torch
import torch.distributed as dist
from torchx.distributed import init_pg
rank = 0
for other in (1, 2):
    if rank == 0 and os.fork() == 0:
        rank = other
os.environ.update(RANK=str(rank), WORLD_SIZE="3")
init_pg("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=3)
dist.all_reduce(torch.ones(1))
print("begun", flush=True)
if rank == 1:
    threading.Event().wait()
dist.all_reduce(torch.ones(1))
"""
"""One process imports PyTorch and starts all ranks, as an import takes seconds."""


@pytest.mark.long
def test_flight_recorder_names_rank_that_has_not_entered(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="no PyTorch: .venv/bin/pip install torch")
    program = RANKS.format(root=str(ROOT))
    role = Role("w", image="", entrypoint=sys.executable, args=["-c", program, str(tmp_path / "store")])
    # all ranks have entered or not by then, even on a busy machine
    app_id = submit(role, stall="5s", progress="begun")
    try:
        log_dir = describe(app_id).log_dir
        assert log_dir is not None
        report = Path(log_dir, "stacks.txt")
        line = "rank 1 has not entered all_reduce, collective 2 of default_pg"
        wait_until(lambda: report.exists() and line in report.read_text(), "the rank is named", timeout=240)
        assert report.read_text().startswith(line), "before the stacks"
        assert json.loads(report.with_suffix(".json").read_text())["findings"] == [line]
        assert "missing ranks: {1}" in Path(log_dir, "flight_recorder.txt").read_text()
        assert "torchx-dumps" not in report.read_text()
    finally:
        scheduler().kill(app_id)
        ended(app_id)


def test_variables_switch_the_sources_on_unless_they_are_set() -> None:
    script = 'echo "$NCCL_RAS_ADDR $TORCH_FR_BUFFER_SIZE $TORCH_FR_DUMP_TEMP_FILE"'
    role = sh(script)
    role.env["TORCH_FR_BUFFER_SIZE"] = "7"
    app_id = submit(role, stall="10m")
    log_dir = ended(app_id).log_dir
    address, size, dump = text(app_id).split()
    host, _, port = address.partition(":")
    assert (host, port.isdigit(), size) == ("localhost", True, "7")
    assert dump == f"{log_dir}/flight_recorder/w/fr_"
    app_id = submit(sh(script))
    ended(app_id)
    assert text(app_id).split() == [], "nothing without --stall"


def test_only_written_dumps_of_this_user_are_compared(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dump-0.pipe")  # without a reader
    (tmp_path / "dump-1.pipe").touch()  # no pipe
    (tmp_path / "fr_0").write_bytes(b"of an earlier attempt")
    assert flight_recorder.request_dumps(tmp_path) == []
    assert flight_recorder.compare(tmp_path, [], [os.getpid()]) == ""
    assert flight_recorder.compare(tmp_path, [tmp_path / "fr_0"], [1 << 22]) == ""
    assert Path(flight_recorder.interpreter_of(os.getpid())).samefile(sys.executable)


def test_groups_get_the_names_of_their_collectives() -> None:
    entry = {"process_group": ("0", "default_pg")}
    dump = {"pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}, "entries": [entry]}
    assert repaired(dump)["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    named = {"pg_config": {"0": {"ranks": "[0]"}}, "entries": [entry]}
    assert repaired(named) == named


def test_ranks_in_another_collective_are_named() -> None:
    lines = [
        "Collective sequence number: 3 has errors",
        "group info: 0:default_pg",
        "collective: nccl:broadcast",
        "error msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, Culprit rank 2; Error type: X",
    ]
    assert flight_recorder.findings("\n".join(lines)) == [
        f"rank {n} has not entered broadcast, collective 3 of default_pg, but another one" for n in (1, 2)
    ]


INCOMPLETE = """NCCL version 2.28.9 compiled with CUDA 12.9

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

#1-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
"""


@contextmanager
def ras(answer: str) -> Iterator[int]:
    """A server that answers as NCCL does; yields its port."""
    with socket.create_server(("localhost", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                if connection.recv(100).strip().lower() == b"verbose status":
                    connection.sendall(answer.encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


def test_nccl_names_missing_ranks_and_those_behind() -> None:
    with ras(INCOMPLETE) as port:
        assert nccl_ras.findings(nccl_ras.query(port)) == [
            "NCCL: no answer from process 3487984 on 172.16.64.213 (GPU 5)",
            "NCCL: no answer from rank 21",
            "NCCL: ranks 0, 2 have launched 6649 of 6650 collective operations",
        ]
    assert nccl_ras.query(port) == "", "nothing answers"
    assert nccl_ras.findings("#0-0 (x\n\0\n  Rank") == []
    none = "3 ranks have launched up to operation 4\n  Rank 3 has not launched any operations --"
    assert nccl_ras.findings(f"#0-0 (ab) MISMATCH\n  {none}") == [
        "NCCL: rank 3 has launched 0 of 4 collective operations"
    ]


ANSWERS = """
import os, socket, threading
host, _, port = os.environ["NCCL_RAS_ADDR"].partition(":")
server = socket.create_server((host, int(port)))
print("begun", flush=True)
connection, _ = server.accept()
assert connection.recv(100) == b"verbose status\\n"
connection.sendall(os.environ["ANSWER"].encode())
connection.close()
threading.Event().wait()
"""


def test_report_has_answer_of_nccl_of_job() -> None:
    role = Role("w", image="", entrypoint=sys.executable, args=["-c", ANSWERS], env={"ANSWER": INCOMPLETE})
    app_id = submit(role, stall="0.5s", progress="begun")
    try:
        log_dir = describe(app_id).log_dir
        assert log_dir is not None
        report = Path(log_dir, "stacks.txt")
        found = "NCCL: no answer from rank 21"
        wait_until(lambda: report.exists() and found in report.read_text(), "the report names the rank")
        assert Path(log_dir, "nccl_ras.txt").read_text() == INCOMPLETE
    finally:
        scheduler().kill(app_id)
        ended(app_id)
