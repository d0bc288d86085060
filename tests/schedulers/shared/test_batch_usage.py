"""The measurements of batch jobs: their agents measure all processes of a replica, and record the totals."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from support import wait_until

from torchx.schedulers.shared.batch.measurement.meter import Meter, used_by
from torchx.schedulers.shared.batch.measurement.reader import LATE, usage_of
from torchx.schedulers.shared.batch.record import BatchRecord

MB = 1 << 20
HOLDS = "x = bytearray(50_000_000)\nprint(flush=True)\ninput()"


def record(folder: Path, replicas: int = 1) -> BatchRecord:
    resource = {"cpu": 2, "gpu": 0, "memMB": 100}
    role = {"name": "w", "image": "", "num_replicas": replicas, "resource": resource}
    app = {"name": "a", "roles": [role]}
    return BatchRecord(7, "b1", "a", "a-b1", "torchx", str(folder), 1.0, app)


def attempt(folder: Path, replica: int, number: int, **files: object) -> None:
    path = folder / "w" / str(replica) / f"attempt-{number}"
    path.mkdir(parents=True)
    for name, data in files.items():
        (path / f"{name}.json").write_text(json.dumps(data))


def test_children_are_measured_too() -> None:
    """Also those of a shell, whose own use is small."""
    argv = ["sh", "-c", f"{sys.executable} -c '{HOLDS}'; true"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    cpu, memory = used_by(process.pid)
    assert cpu > 0
    assert memory > 50 * MB
    process.communicate(b"\n")
    assert used_by(process.pid) == (0.0, 0)


def test_a_meter_measures_at_growing_intervals() -> None:
    rows: list[dict[str, float]] = []
    process = subprocess.Popen(["sleep", "600"])
    wait_until(lambda: used_by(process.pid)[1], "it runs")
    meter = Meter(process.pid, lambda **values: rows.append(values))
    begin = time.monotonic()
    for second in range(200):
        meter.measure(begin + 0.5 + second)
    process.kill()
    process.wait()
    assert 8 <= len(rows) <= 12
    assert rows[-1]["peak"] >= rows[-1]["memory"] > 0
    assert rows[-1]["recent_span"] < rows[-1]["span"]


def test_running_and_ended_attempts_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "a-b1"
    assert usage_of(record(folder)) is None
    attempt(folder, 0, 1, end={"exit_code": 1, "usage": {"span": 10.0, "cpu": 5.0, "peak": 7 * MB}})
    now = {"at": time.time(), "span": 20.0, "cpu": 40.0, "memory": MB, "peak": 9 * MB}
    attempt(folder, 0, 2, usage={"usage": {**now, "recent_cpu": 3.0, "recent_span": 4.0}})
    attempt(folder, 1, 1, usage={"usage": {**now, "at": time.time() - LATE - 1}})  # its agent was killed
    attempt(folder, 2, 1, usage={"usage": {"at": "x"}}, end={"exit_code": 0})
    found = usage_of(record(folder, 4))
    assert found is not None
    assert [(each.name, each.attempt, each.running) for each in found.replicas] == [
        ("w/0", 1, False),
        ("w/0", 2, True),
        ("w/1", 1, False),
    ]
    first, second, _ = found.replicas
    assert (first.total.cpu, first.total.memory, first.requested.memory) == (0.5, 7 * MB, 100 * MB)
    assert second.latest is not None
    assert (second.total.cpu, second.latest.cpu, second.latest.memory) == (2.0, 3.0, MB)
    assert found.largest is second


def test_damaged_files_are_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "a-b1"
    for number, text in enumerate(("", "[]", "{", '{"usage": 1}', '{"usage": {"span": -1}}'), 1):
        attempt(folder, 0, number)
        (folder / "w" / "0" / f"attempt-{number}" / "end.json").write_text(text)
    assert usage_of(record(folder)) is None


def test_the_agent_records_its_measurements(tmp_path: Path) -> None:
    from torchx.schedulers.shared.batch.node.files import node_file

    node = tmp_path / ".node"
    node.mkdir()
    (node / "agent.py").write_text(node_file("agent.py"))
    place = tmp_path / "w" / "0"
    argv = [sys.executable, "-I", "-S", str(node / "agent.py"), str(place), "1", "", "", "5", "", ""]
    code = "x = bytearray(50_000_000)\nimport time\nt = time.time()\nwhile time.time() < t + 2.5: pass"
    texts = ["--", sys.executable, "-c", code]
    agent = subprocess.Popen(argv, stdin=subprocess.PIPE)
    assert agent.stdin is not None
    agent.stdin.write("".join(f"{text}\0" for text in texts).encode())
    agent.stdin.close()
    usage = place / "attempt-1" / "usage.json"
    wait_until(usage.exists, "it is measured while it runs")
    assert json.loads(usage.read_text())["usage"]["memory"] > 50 * MB
    assert agent.wait(60) == 0
    total = json.loads((place / "attempt-1" / "end.json").read_text())["usage"]
    assert total["peak"] > 50 * MB
    assert total["cpu"] > 0.1
