"""The program that prepares a node: its key, its lock, what a kill leaves, and the folder that it uses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import wait_until

from torchx.scheduling.preflight import with_checks
from torchx.scheduling.setup_once import program
from torchx.specs.app import Role

COUNT = "echo run >> $COUNT; "


class Node:
    """A node: the folder for the results, and the working folder of the replicas.

    Args:
        folder: a new folder.
    """

    def __init__(self, folder: Path) -> None:
        self.home, self.work, self.count = folder / "home", folder / "work", folder / "count"
        self.work.mkdir()
        self.started: list[subprocess.Popen[bytes]] = []

    def start(
        self, command: str, *, job: str = "a", here: bool = False, **env: str
    ) -> subprocess.Popen[bytes]:
        """Starts a replica, whose program prints the folder of the results."""
        then = ["sh", "-c", "echo program $TORCHX_SETUP_DIR"]
        replica = with_checks(then, Role("w", ""), {"setup_once": command}, here=here)
        base = {"PATH": os.environ["PATH"], "COUNT": str(self.count), program.HOME: str(self.home)}
        process = subprocess.Popen(
            [sys.executable, *replica[1:]],
            env={**base, "TORCHX_JOB_ID": job, **env},
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, command: str, **given: str) -> str:
        """Runs a replica to its end; returns its output."""
        return text(self.start(command, **given))

    @property
    def runs(self) -> int:
        """How often the command has been started."""
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0


def text(process: subprocess.Popen[bytes]) -> str:
    return process.communicate(timeout=60)[0].decode()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    for process in node.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_many_replicas_run_the_command_once(node: Node) -> None:
    command = COUNT + "sleep 0.5; touch $TORCHX_SETUP_DIR/made; echo prepared"
    replicas = [node.start(command, here=number % 2 > 0) for number in range(8)]
    outputs = [text(replica) for replica in replicas]
    assert node.runs == 1
    assert sum("torchx setup | prepared\n" in each for each in outputs) == 1
    (folder,) = node.home.iterdir()
    assert all(each.endswith(f"program {folder}/results\n") for each in outputs)
    assert (folder / "results" / "made").exists()
    again = node.run(command, job="next")
    assert node.runs == 1
    assert again.splitlines()[0] == f"torchx setup | reused from a: {folder}/results"
    assert {path.stat().st_mode & 0o077 for path in (node.home, folder, *folder.iterdir())} == {0}


def test_parts_of_key(node: Node, tmp_path: Path) -> None:
    for name, content in (
        ("uv.lock", "1"),
        ("uv.lock", "2"),
        ("requirements-dev.txt", "x"),
        ("train.py", "x"),
    ):
        (node.work / name).write_text(content)
        node.run(COUNT)
    assert node.runs == 3, "a program is not a lock file"
    node.run(COUNT + "true")
    assert node.runs == 4
    node.work = node.work.rename(tmp_path / "other")
    node.run(COUNT)
    assert node.runs == 5, "the command may have written into the other folder"
    named = COUNT + "touch $TORCHX_SETUP_DIR/x"
    node.run(named)
    node.work = node.work.rename(tmp_path / "third")
    node.run(named)
    assert node.runs == 6, "it has written into the folder of the results"


def test_replicas_share_failure(node: Node) -> None:
    command = COUNT + "seq 30; sleep 0.5; echo 'no wheel for x' >&2; exit 7"
    replicas = [node.start(command) for _ in range(4)]
    outputs = [text(replica) for replica in replicas]
    assert node.runs == 1
    assert {replica.returncode for replica in replicas} == {93}
    where = f"torchx setup failed on {os.uname().nodename}: `{command}` ended with exit code 7"
    assert all(each.splitlines()[-1] == f"{where}: no wheel for x" for each in outputs)
    assert all("torchx setup | 30\ntorchx setup | no wheel for x\n" in each for each in outputs)
    assert not any("program" in each for each in outputs)
    node.run(command, TORCHX_ATTEMPT="2")
    assert node.runs == 2, "another attempt may succeed"
    assert "ended with signal 9" in node.run("kill -9 $$", job="b")
    assert "| a\n" not in node.run("false; echo a"), "the first command that fails ends the set-up"


def test_the_lines_of_a_command_become_one(node: Node) -> None:
    assert node.run("false \\\n  'a'").splitlines() == [
        "torchx setup | false \\ 'a'",
        f"torchx setup failed on {os.uname().nodename}: `false \\ 'a'` ended with exit code 1",
    ]


def test_a_killed_process_leaves_nothing(node: Node, tmp_path: Path) -> None:
    """Its command holds the lock until it ends; then a waiting replica begins again, in an empty folder."""
    go = tmp_path / "go"
    command = (
        f"{COUNT} ls $TORCHX_SETUP_DIR | sed s/^/left:/; touch $TORCHX_SETUP_DIR/half; "
        f"while [ ! -e {go} ]; do sleep 0.05; done"
    )
    first = node.start(command)
    wait_until(lambda: node.runs == 1 and list(node.home.glob("*/results/half")), "the set-up runs")
    second = node.start(command)
    first.kill()
    first.wait()
    assert node.runs == 1, "the command of the killed process still runs"
    os.killpg(first.pid, signal.SIGKILL)
    wait_until(lambda: node.runs == 2, "the other replica begins again")
    go.touch()
    output = text(second)
    assert "| left:" not in output
    assert "program" in output


def test_a_half_written_state_is_no_state(node: Node) -> None:
    node.run(COUNT)
    (state,) = node.home.glob("*/state")
    whole = state.read_bytes()
    assert json.loads(whole)["done"]["by"].startswith("a ")
    for cut in range(len(whole)):
        state.write_bytes(whole[:cut])
        assert not program.is_reused(state, state.parent / "results")
    for odd in (b"[]", b'{"done": 3}', b'{"failed": []}', b"\xff", b'{"done": {}}'):
        state.write_bytes(odd)
        assert "program" in node.run(COUNT)
    (state.parent / "results").rmdir()
    runs = node.runs
    assert "program" in node.run(COUNT)
    assert node.runs == runs + 1, "the results are gone"


@pytest.mark.parametrize("who", ["runs", "waits"])
def test_term_ends_the_command_and_the_waiting(node: Node, who: str) -> None:
    command = COUNT + "sleep 600 & echo $! > $TORCHX_SETUP_DIR/pid; wait"
    replicas = [node.start(command)]
    wait_until(lambda: any(path.read_text() for path in node.home.glob("*/results/pid")), "the set-up runs")
    replicas.append(node.start(command))
    assert replicas[1].stdout is not None
    assert replicas[1].stdout.readline() == b"torchx setup | waiting for another process on this node\n"
    replica = replicas[who == "waits"]
    replica.terminate()
    assert replica.wait(30) == 143
    assert node.runs >= 1
    for path in node.home.glob("*/results/pid"):
        os.kill(
            int(path.read_text()), signal.SIGKILL
        )  # in the background of the command, as no engine ends it


def test_a_background_process_delays_no_replica(node: Node) -> None:
    """It has inherited the output and the lock."""
    command = COUNT + "sleep 600 & echo $! > $TORCHX_SETUP_DIR/pid"
    output = node.run(command)
    (path,) = node.home.glob("*/results/pid")
    try:
        assert "program" in output
        assert "program" in node.run(command, job="b")
        assert node.runs == 1
    finally:
        os.kill(int(path.read_text()), signal.SIGKILL)


def test_the_environment_of_python_is_used(node: Node) -> None:
    command = 'python3 -m venv --without-pip "$TORCHX_SETUP_DIR/venv"; echo uv $UV_PROJECT_ENVIRONMENT'
    then = ["python3", "-c", "import os, sys; print(sys.prefix, os.environ['VIRTUAL_ENV'])"]
    replica = with_checks(then, Role("w", ""), {"setup_once": command})
    env = {**os.environ, program.HOME: str(node.home)}
    output = subprocess.run(replica, env=env, capture_output=True, text=True, check=True)
    (venv,) = node.home.glob("*/results/venv")
    assert f"torchx setup | uv {venv}\n" in output.stderr
    assert output.stdout == f"{venv} {venv}\n"
    given = node.run("echo uv $UV_PROJECT_ENVIRONMENT", UV_PROJECT_ENVIRONMENT="/mine")
    assert "torchx setup | uv /mine\n" in given


def test_a_folder_that_cannot_be_used_is_named(node: Node, tmp_path: Path) -> None:
    where = f"torchx setup failed on {os.uname().nodename}: "
    (tmp_path / "file").write_text("")
    output = node.run("true", TORCHX_SETUP_HOME=f"{tmp_path}/file/x")
    assert output == f"{where}{tmp_path}/file/x: Not a directory\n"
    output = node.run("true", TORCHX_SETUP_HOME="/proc/x")
    assert output.startswith(f"{where}/proc/x: ")
    node.run(COUNT)
    (folder,) = node.home.iterdir()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    output = node.run(COUNT)
    assert output.startswith(
        f"{where}{folder}: is not a folder of this user; TORCHX_SETUP_HOME names another"
    )
    assert node.runs == 1


def test_results_on_a_read_only_disk_are_reused(node: Node, tmp_path: Path) -> None:
    """And a working folder that cannot be written is no reason to fail."""
    node.run(COUNT)
    mount = (
        f"mount --bind {node.home} {node.home} && mount -o remount,bind,ro {node.home} && "
        f"mount --bind {node.work} {node.work} && mount -o remount,bind,ro {node.work} && cd {node.work} && "
    )

    def alone(command: str) -> subprocess.CompletedProcess[str]:
        replica = with_checks(["echo", "program"], Role("w", ""), {"setup_once": command})
        quoted = " ".join("'" + each.replace("'", "'\\''") + "'" for each in [sys.executable, *replica[1:]])
        env = {"PATH": os.environ["PATH"], "COUNT": str(node.count), program.HOME: str(node.home)}
        argv = ["unshare", "--mount", "sh", "-c", mount + quoted]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    if os.geteuid():
        pytest.skip("only root can mount")
    assert alone(COUNT).stdout == "program\n"
    failed = alone(COUNT + "true")
    assert failed.returncode == 93
    assert "Read-only file system; TORCHX_SETUP_HOME names another folder" in failed.stderr
    assert node.runs == 1


def test_default_folder_has_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(program.HOME, raising=False)
    keys = []
    for now in (program.PERIOD * 1000, program.PERIOD * 1001 - 1, program.PERIOD * 1001):
        monkeypatch.setattr(program.time, "time", lambda now=now: now)
        keys.append(program.key_of("x", "n1"))
    assert keys[0] == keys[1] != keys[2]
    assert program.key_of("x", "n2") != keys[2], "the folder may be shared by nodes"
    monkeypatch.setenv(program.HOME, "/somewhere")
    assert program.key_of("x", "n2") == program.key_of("x", "n1"), "a shared folder is for all its nodes"
