"""A `job_dir` that the nodes of a cluster do not share: each node of the test cluster has its own disk."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import answer, torchx
from slurms import NODES, PAIR, begin_again, on_node, output, role, state, state_folder
from support import wait_until

from torchx.runner import get_runner
from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.scheduling.logs import LogQuery, Stream
from torchx.specs import AppDef, AppState, RetryPolicy, Role, after, service
from torchx.sweeps.paths import known

pytestmark = pytest.mark.slurm

ADVICE = "set -cfg job_dir=FOLDER shared with all nodes"
FIRST_NODES = {"nodelist": "node[1-2]", **PAIR}
SECOND_NODE = {"nodelist": "node2", "nodes": "1"}


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on the disk of each node."""
    yield from _folder("disk")


@pytest.fixture
def part() -> Iterator[Path]:
    """A folder of this machine that only the first node shares."""
    yield from _folder("part")


def _folder(name: str) -> Iterator[Path]:
    folder = state_folder() / name / uuid.uuid4().hex
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def left(folder: Path) -> list[Path]:
    """Returns the output that is left on the disks of the nodes."""
    nodes = (f"node{number + 1}" for number in range(NODES))
    return [path for node in nodes for path in on_node(node, folder).glob("torchx-*")]


def shell(command: str, name: str = "r", **settings: Any) -> Role:
    return role(command.replace("$", "$$"), name, **settings)


def one_each(command: str, **settings: Any) -> AppDef:
    """An application with a replica on each of two nodes."""
    return AppDef("disks", [shell(command, num_replicas=2, **settings)])


def alone() -> dict[str, Any]:
    """Metadata of a role with a node of its own."""
    return {"slurm": {"exclusive": True}}


def home_folder(scheduler: SlurmScheduler, app_id: str) -> Path:
    """Checks that the files of a job are in the state home; returns their folder."""
    described = scheduler.describe(app_id)
    assert described is not None
    folder = Path(described.log_dir or "")
    assert folder.parent == Path(os.environ["TORCHX_HOME"]) / "slurm" / "jobs"
    return folder


def succeeded(scheduler: SlurmScheduler, app: AppDef, cfg: dict[str, Any]) -> str:
    app_id = scheduler.submit(app, cfg)
    assert scheduler.wait(app_id, 120)
    assert state(scheduler, app_id) is AppState.SUCCEEDED, scheduler.describe(app_id)
    return app_id


def wait_until_requeued(scheduler: SlurmScheduler, app_id: str) -> None:
    def message() -> str:
        described = scheduler.describe(app_id)
        return described.msg if described is not None else ""

    wait_until(lambda: "queued again" in message(), "it is requeued", 60)


def test_logs_are_followed_while_the_job_runs_and_complete(
    scheduler: SlurmScheduler, disk: Path, tmp_path: Path
) -> None:
    command = f"""
        echo begun; ls {disk}/torchx-*/combined.log >&2
        until [ -e {tmp_path}/gate ]; do sleep 0.1; done
        seq 20000
    """
    app_id = scheduler.submit(one_each(command), {"job_dir": str(disk), **PAIR})
    lines: dict[int, bytes] = {0: b"", 1: b""}
    for chunk in scheduler.log_chunks(app_id, LogQuery(follow=True, stream=Stream.STDOUT)):
        lines[chunk.replica] += chunk.data
        if all(lines.values()):
            (tmp_path / "gate").touch()
    expected = b"begun\n" + b"".join(b"%d\n" % (number + 1) for number in range(20000))
    assert lines == {0: expected, 1: expected}
    assert state(scheduler, app_id) is AppState.SUCCEEDED
    assert output(scheduler, app_id, stream=Stream.STDERR).count(b"/combined.log\n") == 2
    assert left(disk) == []
    folder = home_folder(scheduler, app_id)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in folder.rglob("*")} == {0}
    scheduler.delete(app_id)
    assert not folder.exists()
    assert list((disk / "jobs").iterdir()) == []


def test_commands_find_the_job_from_any_state_home(
    scheduler: SlurmScheduler, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = scheduler.submit(one_each("echo up; exec sleep 600"), {"job_dir": str(disk), **PAIR})
    handle = f"slurm://torchx/{app_id}"
    wait_until(lambda: output(scheduler, app_id) == b"up\n" * 2, "its output was gathered", 60)
    described = scheduler.describe(app_id)
    assert described is not None
    node = described.roles_statuses[0].replicas[1].hostname
    assert torchx("exec", f"{handle}/r/1", "sh", "-c", "echo $SLURMD_NODENAME").stdout == f"{node}\n"
    assert app_id in torchx("list", "-s", "slurm").stdout
    folder = home_folder(scheduler, app_id)
    shutil.move(disk, tmp_path / "hidden")  # as on another login node
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "other"))
    assert Records("slurm").find(app_id) is None
    assert output(scheduler, app_id) == b"up\n" * 2
    described = scheduler.describe(app_id)
    assert described is not None
    assert described.log_dir == str(folder)
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    assert state(scheduler, app_id) is AppState.CANCELLED
    scheduler.delete(app_id)
    assert not folder.exists()


def test_stacks_of_the_processes_on_all_nodes(scheduler: SlurmScheduler, disk: Path) -> None:
    program = shell("", num_replicas=2)
    program.entrypoint, program.args = (
        "python3",
        ["-c", "import time; print('up', flush=True); time.sleep(600)"],
    )
    app_id = scheduler.submit(AppDef("stacks", [program]), {"job_dir": str(disk), **PAIR})
    wait_until(lambda: output(scheduler, app_id) == b"up\n" * 2, "its output was gathered", 60)
    found = scheduler.stacks(app_id, None, None, False)
    replicas = [each for each in found.processes if each.kind == "main"]
    assert [each.replica for each in replicas] == [0, 1]
    assert len({each.host for each in replicas}) == 2


def test_several_roles_and_the_first_failure(scheduler: SlurmScheduler, disk: Path, tmp_path: Path) -> None:
    """The output of a replica that is killed is gathered after its end."""
    command = f"trap 'echo later' TERM; echo up; touch {tmp_path}/up; while :; do sleep 0.1; done"
    stubborn = shell(command, "stubborn", metadata=alone())
    command = f"until [ -e {tmp_path}/up ]; do sleep 0.1; done; echo failing; exit 7"
    failing = shell(command, "failing", metadata=alone())
    app_id = scheduler.submit(AppDef("roles", [stubborn, failing]), {"job_dir": str(disk)})
    assert scheduler.wait(app_id, 120)
    described = scheduler.describe(app_id)
    assert described is not None
    assert described.state is AppState.FAILED
    first = described.first_failure
    assert first is not None
    assert (first.role, first.replica, first.exit_code) == ("failing", 0, 7)
    lines = output(scheduler, app_id, stream=Stream.STDOUT).split()
    assert set(lines) == {b"failing", b"later", b"up"}
    assert left(disk) == []
    home_folder(scheduler, app_id)


@pytest.mark.parametrize("policy", RetryPolicy)
def test_retries(scheduler: SlurmScheduler, disk: Path, policy: RetryPolicy) -> None:
    command = "echo try $TORCHX_ATTEMPT; test $TORCHX_ATTEMPT -ge 2"
    app = one_each(command, max_retries=1, retry_policy=policy)
    app_id = succeeded(scheduler, app, {"job_dir": str(disk), "requeue": False, **PAIR})
    assert sorted(set(output(scheduler, app_id).splitlines())) == [b"try 1", b"try 2"]
    assert left(disk) == []
    home_folder(scheduler, app_id)


def test_a_requeued_job_keeps_its_folder(scheduler: SlurmScheduler, disk: Path) -> None:
    command = "echo try $TORCHX_ATTEMPT; test $TORCHX_ATTEMPT -ge 2"
    app_id = scheduler.submit(one_each(command, max_retries=1), {"job_dir": str(disk), **PAIR})
    wait_until_requeued(scheduler, app_id)
    begin_again(app_id)
    assert scheduler.wait(app_id, 180)
    assert state(scheduler, app_id) is AppState.SUCCEEDED
    assert output(scheduler, app_id).splitlines().count(b"try 2") == 2
    assert b"try 1" in output(scheduler, app_id)
    home_folder(scheduler, app_id)


def test_a_retry_on_another_node_decides_again(scheduler: SlurmScheduler, part: Path) -> None:
    """The first node shares the folder with this machine, the second does not; both outputs are shown."""
    command = "echo on $SLURMD_NODENAME; test $SLURMD_NODENAME = node2"
    app = AppDef("moved", [shell(command, max_retries=1)])
    app_id = scheduler.submit(app, {"job_dir": str(part), "nodelist": "node1"})
    wait_until_requeued(scheduler, app_id)
    described = scheduler.describe(app_id)
    assert described is not None
    assert Path(described.log_dir or "").parent == part / "jobs"
    begin_again(app_id, ReqNodeList="node2")
    assert scheduler.wait(app_id, 180)
    described = scheduler.describe(app_id)
    assert described is not None
    assert described.state is AppState.SUCCEEDED
    attempts = described.roles_statuses[0].replicas[0].attempts
    assert [(each.number, each.state) for each in attempts] == [(1, AppState.FAILED), (2, AppState.SUCCEEDED)]
    assert output(scheduler, app_id) == b"on node1\non node2\n"
    home_folder(scheduler, app_id)


def test_a_folder_that_only_the_first_node_shares(scheduler: SlurmScheduler, part: Path) -> None:
    app_id = succeeded(scheduler, one_each("echo $SLURMD_NODENAME"), {"job_dir": str(part), **FIRST_NODES})
    assert sorted(output(scheduler, app_id).split()) == [b"node1", b"node2"]
    home_folder(scheduler, app_id)
    single = AppDef("alone", [shell("echo here")])
    app_id = succeeded(scheduler, single, {"job_dir": str(part), "nodelist": "node1"})
    described = scheduler.describe(app_id)
    assert described is not None
    assert Path(described.log_dir or "").parent == part / "jobs"
    assert list((part / "jobs").glob("alone-*/r/0/attempt-1/end.json"))


def test_a_folder_that_all_nodes_share(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    app_id = succeeded(scheduler, one_each("echo here"), {"job_dir": str(tmp_path / "all"), **PAIR})
    assert output(scheduler, app_id) == b"here\n" * 2
    (folder,) = (tmp_path / "all" / "jobs").iterdir()
    assert len(list(folder.glob("r/*/attempt-1/combined.log"))) == 2
    assert not list((tmp_path / "all").glob("torchx-*"))
    assert not (Path(os.environ["TORCHX_HOME"]) / "slurm" / "jobs" / folder.name / "id").exists()


def test_a_cancelled_job_shows_its_last_lines(scheduler: SlurmScheduler, disk: Path) -> None:
    command = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    app_id = scheduler.submit(one_each(command), {"job_dir": str(disk), **PAIR})
    wait_until(lambda: output(scheduler, app_id).count(b"up\n") == 2, "its output was gathered", 60)
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    wait_until(lambda: output(scheduler, app_id).count(b"bye\n") == 2, "its last lines were gathered")
    assert state(scheduler, app_id) is AppState.CANCELLED
    wait_until(lambda: left(disk) == [], "nothing is left on the disks")


def test_a_service(scheduler: SlurmScheduler, disk: Path) -> None:
    server = shell("echo is-up; exec sleep 600", "server", metadata=alone())
    trainer = shell("echo trained", "trainer", metadata=alone())
    roles = [service(server, "log:is-up"), after(trainer, ["server"])]
    app_id = succeeded(scheduler, AppDef("served", roles), {"job_dir": str(disk)})
    assert sorted(output(scheduler, app_id).split()) == [b"is-up", b"trained"]
    assert left(disk) == []
    home_folder(scheduler, app_id)


def test_a_workspace(scheduler: SlurmScheduler, disk: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("of the workspace\n")
    app = one_each("cat data; pwd >&2")
    with get_runner() as runner:
        handle = runner.run(app, "slurm", {"job_dir": str(disk), **PAIR}, workspace=f"file://{tmp_path}")
    app_id = handle.rpartition("/")[2]
    assert scheduler.wait(app_id, 120)
    assert output(scheduler, app_id, stream=Stream.STDOUT) == b"of the workspace\n" * 2
    folder = output(scheduler, app_id, stream=Stream.STDERR).decode().split()[0]
    assert folder.startswith(os.environ["TORCHX_HOME"])


def test_a_sweep(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = f"job_dir={disk}"
    done = torchx("run", "-s", "slurm", "-d", "-cfg", cfg, "--each", "msg=a,b", "utils.echo")
    assert done.returncode == 0, done.stderr
    handle = done.stdout.strip()
    assert torchx("wait", handle).returncode == 0
    for run, text in ((1, "a"), (2, "b")):
        assert torchx("log", "--no-prefix", f"{handle}/{run}").stdout == f"{text}\n"
    assert [row["state"] for row in answer("results", handle, "-o", "json")] == ["SUCCEEDED"] * 2
    assert list((disk / "jobs").glob("*/echo")) == []
    with get_runner() as runner:
        for name in known():
            runner.delete(f"sweep://torchx/{name}")
    assert list((disk / "jobs").iterdir()) == []
    assert list((Path(os.environ["TORCHX_HOME"]) / "slurm" / "jobs").iterdir()) == []


@pytest.mark.parametrize(
    ("where", "default"),
    [(SECOND_NODE, True), (FIRST_NODES, True), (SECOND_NODE, False), (FIRST_NODES, False)],
)
def test_neither_folder_is_shared(
    scheduler: SlurmScheduler,
    disk: Path,
    part: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: dict[str, str],
    default: bool,
) -> None:
    """The first node shares the state home: its replica may have begun before the other one fails."""
    part.mkdir(mode=0o700)
    monkeypatch.setenv("TORCHX_HOME", str(part))
    cfg = where if default else {"job_dir": str(disk), **where}
    app_id = scheduler.submit(one_each("exec sleep 600"), cfg)
    try:
        assert scheduler.wait(app_id, 60)
        described = scheduler.describe(app_id)
        assert described is not None
        assert described.state is AppState.FAILED
        assert ADVICE in described.msg
        assert "node2" in described.msg
        for folder in [part] if default else [disk, part]:
            assert str(folder) in described.msg
        assert described.msg.count("\n") == 0
        for command in ("log", "attach"):
            assert described.msg in " ".join(torchx(command, f"slurm://torchx/{app_id}").stderr.split())
    finally:
        scheduler.delete(app_id)
