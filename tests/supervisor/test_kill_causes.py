"""The reason of a SIGKILL: out of memory only if the kernel has counted that, a limit, or another process."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from program import COMMAND, environment, torchx

from torchx.machine.out_of_memory import OTHER, OUT_OF_MEMORY, Kills, find_counter
from torchx.printable import joined
from torchx.specs.status import EndCause, Reason
from torchx.supervisor.loop import facts_of_end
from torchx.supervisor.policy import COUNTED, NEVER, Gang, RoleRules
from torchx.supervisor.replicas import Running
from torchx.supervisor.retry_causes import RetryCauses

EATER = "import time\nheld = []\nwhile True: held.append(bytearray(10 << 20))\n"


def system(root: Path, *, group: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": group, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return root


@pytest.mark.parametrize(
    ("group", "file"),
    [
        ("0::/user.slice/job\n", "sys/fs/cgroup/user.slice/job/memory.events"),
        ("0::/\n", "sys/fs/cgroup/memory.events"),
        ("5:cpu:/\n4:memory:/job\n0::/\n", "sys/fs/cgroup/memory/job/memory.oom_control"),
        ("4:memory:/docker/x\n", "sys/fs/cgroup/memory/memory.oom_control"),
    ],
)
def test_each_counted_kill_is_the_reason_of_one_end(tmp_path: Path, group: str, file: str) -> None:
    root = system(
        tmp_path, group=group, files={file: "low 0\noom 3\noom_kill 3\n", "proc/vmstat": "oom_kill 9\n"}
    )
    kills = Kills(root)
    assert kills.reason(None).text == OTHER
    (root / file).write_text("low 0\noom 5\noom_kill 5\n")
    assert [kills.reason(None).text for _ in range(3)] == [OUT_OF_MEMORY, OUT_OF_MEMORY, OTHER]


def test_count_of_machine_is_used_without_one_of_group(tmp_path: Path) -> None:
    root = system(tmp_path, group="0::/gone\n", files={"proc/vmstat": "pgfault 1\noom_kill 9\n"})
    kills = Kills(root)
    (root / "proc/vmstat").write_text("oom_kill 10\n")
    assert kills.reason(None).text == f"{OUT_OF_MEMORY}, on this machine"


def test_nothing_is_claimed_without_a_count(tmp_path: Path) -> None:
    assert find_counter(tmp_path) is None
    assert OUT_OF_MEMORY not in Kills(tmp_path).reason(None).text
    root = system(tmp_path, group="0::/\n", files={"sys/fs/cgroup/memory.events": "oom_kill many\n"})
    assert find_counter(root) is None


def test_kill_by_another_process_is_not_out_of_memory() -> None:
    done = torchx("run", "-s", "local_cwd", "utils.sh", "kill -KILL $$$$")
    assert f"killed by SIGKILL: {OTHER}" in done.stderr


def test_the_limit_of_cpu_time_is_named() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (1, 1))

    words = ["run", "-s", "local_cwd", "utils.sh", "exec python3 -c 'while 1: pass'"]
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, env=environment(), preexec_fn=limit, timeout=180
    )
    assert "the CPU time limit of 1 s (ulimit -t) was reached" in done.stderr


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with little memory."""
    for folder, name in (("sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("sys/fs/cgroup", "memory.max")):
        path = Path("/", folder, f"torchx-test-{os.getpid()}")
        with contextlib.suppress(OSError):
            path.mkdir()
            (path / name).write_text(str(200 << 20), encoding="ascii")
            yield path
            path.rmdir()
            return
    pytest.skip("no control group with a memory limit can be made: run as root")


def test_real_kill_by_kernel_is_called_out_of_memory(group: Path, tmp_path: Path) -> None:
    (tmp_path / "eat.py").write_text(EATER, encoding="utf-8")
    command = [*COMMAND, "run", "-s", "local_cwd", "utils.sh", f"exec python3 {tmp_path}/eat.py"]
    script = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command], capture_output=True, text=True, env=environment(), timeout=180
    )
    assert f"killed by SIGKILL: {OUT_OF_MEMORY}; peak memory" in done.stderr


@pytest.mark.parametrize(
    ("retry_on", "refusal"), [("oom", ""), ("node", "not retried: SIGKILL is not in retry_on")]
)
def test_lost_output_does_not_hide_the_cause(tmp_path: Path, retry_on: str, refusal: str) -> None:
    output = SimpleNamespace(lost=1, lost_why="No space left on device", folder=tmp_path)
    running = cast("Running", SimpleNamespace(output=output, ordinal=0))
    killed = Reason(OUT_OF_MEMORY, EndCause.OUT_OF_MEMORY)
    facts, reason = facts_of_end(running, signal.SIGKILL, "", None, lambda: killed)
    lost = "1 bytes of output were lost: No space left on device"
    assert facts == {"signal": "SIGKILL"}
    assert reason.record == {"msg": f"{OUT_OF_MEMORY}; {lost}", "cause": "out_of_memory"}
    gang = Gang([RoleRules("w", range(1), 3)])
    gang.begin()
    gang.started(0)
    facts |= reason.record
    verdict = RetryCauses({"retry_on": [retry_on]}, gang).verdict(running, facts)
    assert verdict == (NEVER if refusal else COUNTED)
    assert facts["msg"] == joined(OUT_OF_MEMORY, lost, refusal)
    stalled = Reason("stalled for 10 s", EndCause.STALLED)
    facts, reason = facts_of_end(running, signal.SIGABRT, "", stalled, lambda: killed)
    assert facts == {"signal": "SIGTERM"}
    assert reason.record == {"msg": f"stalled for 10 s; {lost}", "cause": "stalled"}
