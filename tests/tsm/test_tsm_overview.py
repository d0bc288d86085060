"""The program that the documentation of TSM begins with, on real processes: 4 + 10 + 1 replicas."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest
from project.sources import ROOT

# as it is there, but for the import line and the folders of the images, and the parentheses that Python wants
OVERVIEW = """
import getpass
import {driver} as tsm

username = getpass.getuser()
train_project_dir = tsm.Container(image=f"{home}/{{username}}/pytorch_trainer")
reader_project_dir = tsm.Container(image=f"{home}/{{username}}/pytorch_reader")

trainer = (tsm.ElasticRole(name="trainer", nprocs_per_node=2, nnodes="4:4")
             .runs("train_main.py", "--epochs", "50", MY_ENV_VAR="foobar")
             .on(train_project_dir)
             .replicas(4))

ps = (tsm.Role(name="parameter_server")
        .run("ps_main.py")
        .on(train_project_dir)
        .replicas(10))

reader = (tsm.Role(name="reader")
            .runs("reader/reader_main.py", "--buffer_size", "1024")
            .on(reader_project_dir)
            .replicas(1))

app = tsm.Application(name="my_train_job").of(trainer, ps, reader)

session = tsm.session(name="my_session")
app_id = session.run(app, scheduler="local")
session.wait(app_id)
"""

LOOK = """
status = session.status(app_id)
print(status.state.name, [len(role.replicas) for role in status.roles])
for role, replicas in (("trainer", 4), ("parameter_server", 10), ("reader", 1)):
    for k in range(replicas):
        for line in session.log_lines(app_id, role, k):
            print(f"{role}/{k}", line, end="")
"""

TRAINER = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank()])
dist.all_reduce(total)
rank, size = dist.get_rank(), dist.get_world_size()
print("rank", rank, "of", size, "sum", int(total), os.environ["MY_ENV_VAR"], *sys.argv[1:])
dist.destroy_process_group()
"""
SERVER = "import os\nprint('serving', os.environ['TORCHX_REPLICA'])\n"
READER = "#!/bin/sh\n# is executable, so it starts itself\necho reading $@\n"


def make_projects(home: Path) -> None:
    mine = home / getpass.getuser()
    (mine / "pytorch_trainer").mkdir(parents=True)
    (mine / "pytorch_reader" / "reader").mkdir(parents=True)
    (mine / "pytorch_trainer" / "train_main.py").write_text(TRAINER)
    (mine / "pytorch_trainer" / "ps_main.py").write_text(SERVER)
    reader = mine / "pytorch_reader" / "reader" / "reader_main.py"
    reader.write_text(READER)
    reader.chmod(0o755)


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_the_overview_runs(tmp_path: Path) -> None:
    make_projects(tmp_path / "home")
    program = tmp_path / "overview.py"
    program.write_text(OVERVIEW.format(driver="torchx.tsm.driver", home=tmp_path / "home") + LOOK)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines = done.stdout.splitlines()
    assert first == "SUCCEEDED [4, 10, 1]"
    ranks = sorted(line.partition("]:")[2] for line in lines if "]:rank " in line)
    assert ranks == [f"rank {rank} of 8 sum 28 foobar --epochs 50" for rank in range(8)]
    assert {line for line in lines if "serving" in line} == {
        f"parameter_server/{k} serving parameter_server/{k}" for k in range(10)
    }
    assert "reader/0 reading --buffer_size 1024" in lines
