"""Users with few processes, without a home, with the home of another user, and process 1 of a container."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from program import COMMAND, environment
from users import shared_folder

from torchx.errors import StateError
from torchx.machine.files import expanded

UID = 100_000 + os.getpid()
"""A user without an entry in the password file, whose processes are those of this test."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as folder:
        (folder / "home").mkdir()
        os.chown(folder / "home", UID, UID)
        yield folder


def torchx(
    folder: Path, *words: str, env: Mapping[str, str | None], uid: int = UID, limit: int = 0
) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user."""
    ids = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    ids += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    prefix: Sequence[str] = ["setpriv", *ids] if uid else []
    limited = [*prefix, "bash", "-c", f'ulimit -u {limit}; exec "$@"', "x"] if limit else prefix
    environ = {**environment(), **env}
    return subprocess.run(
        [*limited, *COMMAND, *words], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        cwd=folder / "home", env={name: value for name, value in environ.items() if value is not None},
    )  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2, 8])
def test_a_listing_with_few_processes(folder: Path, limit: int) -> None:
    home = str(folder / "home" / "state")
    done = torchx(folder, "list", limit=limit, env={"TORCHX_HOME": home, "HOME": home})
    assert (done.returncode, "no applications" in done.stderr + done.stdout) == (0, True), done.stderr


def test_a_live_view_names_the_limit_of_processes(folder: Path) -> None:
    home = str(folder / "home" / "state")
    done = torchx(folder, "top", "--json", limit=1, env={"TORCHX_HOME": home, "HOME": home})
    assert done.returncode in (0, 1)
    assert "bug" not in done.stderr
    assert done.returncode == 0 or "ulimit -u" in done.stderr


def test_an_attached_run_with_few_processes(folder: Path) -> None:
    """It has more replicas than processes: the job fails with the reason, or works with fewer threads."""
    home = str(folder / "home" / "state")
    env: dict[str, str | None] = {"TORCHX_HOME": home, "HOME": home, "TORCHX_PROVENANCE": "0"}
    many = torchx(
        folder, "run", "-s", "local_cwd", "utils.sh", "--num_replicas", "60", "sleep", "5", limit=30, env=env
    )
    assert many.returncode == 126
    assert "too many processes (ulimit -u)" in many.stderr
    one = torchx(folder, "run", "-s", "local_cwd", "utils.echo", limit=12, env=env)
    assert one.returncode == 0, one.stderr
    log = torchx(folder, "log", "-f", "@last", limit=1, env=env)
    assert (log.returncode, "hello" in log.stdout) == (0, True), log.stderr


LIMIT = "Resource temporarily unavailable: too many processes (ulimit -u)"


def test_one_line_names_the_limit_of_processes(folder: Path) -> None:
    """Each command that starts a program or a supervisor has it, and the job goes on."""
    home = str(folder / "home" / "state")
    env: dict[str, str | None] = {"TORCHX_HOME": home, "HOME": home, "TORCHX_PROVENANCE": "0"}
    for limit in (1, 2):
        done = torchx(folder, "run", "-d", "-s", "local_cwd", "utils.echo", limit=limit, env=env)
        assert (done.returncode, LIMIT in done.stderr, done.stderr.count("\n")) == (1, True, 1), done.stderr
    handle = torchx(folder, "run", "-d", "-s", "local_cwd", "utils.sh", "sleep 600", env=env).stdout.strip()
    for words in (["exec", handle, "true"], ["stacks", handle]):
        done = torchx(folder, *words, limit=1, env=env)
        assert (done.returncode, LIMIT in done.stderr, done.stderr.count("\n")) == (1, True, 1), done.stderr
    status = torchx(folder, "status", handle, limit=1, env=env)
    assert "RUNNING" in status.stdout
    assert torchx(folder, "cancel", handle, env=env).returncode == 0


@pytest.mark.parametrize(
    "words", [["list"], ["doctor"], ["status", "@last"], ["log", "x"], ["top", "--json"], ["queue"]]
)
def test_a_user_without_a_name_and_a_home(folder: Path, words: list[str]) -> None:
    done = torchx(folder, *words, env={"TORCHX_HOME": None, "HOME": None})
    assert "bug" not in done.stderr
    assert "RuntimeError" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) <= 3, done.stderr


def test_a_home_that_is_unknown_is_an_error() -> None:
    with pytest.raises(StateError, match="the home folder in `~no-such-user/x` is unknown"):
        expanded("~no-such-user/x")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "-s", "local_cwd", "utils.echo"],
        ["run", "-s", "slurm", "utils.echo"],
        ["run", "-s", "local_cwd", "--each", "msg=a,b", "utils.echo"],
        ["queue"],
    ],
)
def test_root_makes_no_state_home_in_home_of_user(folder: Path, words: list[str]) -> None:
    """As with `sudo env HOME=...`: the user could not use it."""
    home = folder / "home"
    done = torchx(folder, *words, uid=0, env={"TORCHX_HOME": None, "HOME": str(home)})
    if words[0] == "run":
        assert done.returncode != 0
        assert "bug" not in done.stderr
    assert list(home.iterdir()) == []
    own = torchx(folder, "run", "-s", "local_cwd", "utils.echo", env={"TORCHX_HOME": None, "HOME": str(home)})
    assert own.returncode == 0, own.stderr
    assert (home / ".torchx").stat().st_uid == UID


FIRST = """
import os, sys, time
from torchx.machine import processes
from torchx.runner import get_runner

def zombies():
    return [entry for entry in processes.table(zombies=True) if entry.zombie]

assert os.getpid() == 1
with get_runner() as runner:
    for number in range(3):
        handle = runner.run_component("utils.echo", ["--msg", "hi"], "local_cwd")
        assert runner.wait(handle, wait_interval=0.1).state.name == "SUCCEEDED"
end = time.monotonic() + 60
while len(os.listdir("/proc")) and [e for e in processes.table(zombies=True) if e.process.pid != 1]:
    if time.monotonic() > end:
        sys.exit(f"left: {list(processes.table(zombies=True))}")
    time.sleep(0.05)
"""


def test_process_1_of_a_container_keeps_no_ended_processes() -> None:
    """It adopts the processes that continue after a submission, and has to reap them."""
    unshare = shutil.which("unshare")
    command = [str(unshare), "--pid", "--fork", "--mount-proc", "--kill-child"]
    if unshare is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("no pid namespace can be made")
    env = environment({"TORCHX_PROVENANCE": "1"})
    done = subprocess.run(
        [*command, sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=120, env=env
    )
    assert done.returncode == 0, done.stderr
