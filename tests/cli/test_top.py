"""The live view: `torchx top`."""

from __future__ import annotations

import io
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import ROOT, answer, delete_all, torchx
from terminal import ENTER, LEAVE, Terminal

from torchx.runner import get_runner
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.scheduling.measurement import Sample
from torchx_cli.terminal.output import columns
from torchx_cli.top.snapshot import MOST_READS, TAIL, AppRows, Collector, Lines, ReplicaRow
from torchx_cli.top.view import HEADS, cells, draw, head_cells, lines_of, name_width, row_text, shown_columns

HANDLE = "local_cwd://torchx/train-x7k2"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    delete_all()


def leave(script: str, replicas: int = 1) -> str:
    """Starts an application and leaves it running; returns its app id."""
    done = torchx("run", "-d", "utils.sh", "--num_replicas", str(replicas), script)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().rpartition("/")[2]


def app(*replicas: ReplicaRow) -> AppRows:
    return AppRows(HANDLE, "RUNNING", list(replicas))


BUSY = Sample(0.0, 1.0, cpu=3.14, memory=round(41.2 * 2**30), gpu=0.5, gpu_memory=2**30, output=2e6)


def test_a_row_has_the_measurements_and_the_last_line() -> None:
    row = ReplicaRow("trainer", 5, "RUNNING", 2, BUSY, "token=abc12345secret")
    assert cells(row) == [
        "trainer/5", "RUNNING #2", "3.1", "41.2 GiB", "50%", "1.0 GiB", "2.0 MB/s", "token=********"
    ]  # fmt: skip
    assert cells(ReplicaRow("w", 0, "PENDING", 1))[2:] == [""] * 6
    assert head_cells(app(row, row))[:7] == [
        "train-x7k2", "RUNNING", "6.3", "82.4 GiB", "50%", "2.0 GiB", "4.0 MB/s"
    ]  # fmt: skip


@pytest.mark.parametrize("window", [20, 60, 80, 200])
def test_rows_fit_the_window(window: int) -> None:
    long = ReplicaRow("a-role-with-a-long-name", 999, "SIGKILL", 12, BUSY, "日本\x1b[31m" * 100)
    for shown in ((), range(2, 7)):
        lines = lines_of([app(long)])
        width = name_width(lines)
        for line in lines:
            text = draw(line, width, shown, window, io.StringIO())
            assert columns(text) <= window
            assert "\x1b" not in text
        assert columns(row_text(HEADS, width, shown, window)) <= window


def test_only_columns_with_a_measurement_are_shown() -> None:
    idle = ReplicaRow("w", 0, "RUNNING", 1, Sample(0.0, 1.0, cpu=1.0))
    assert shown_columns([app(idle)], 200) == {2, 3, 6}
    assert shown_columns([app(idle)], 60) == {2}
    assert shown_columns([app(idle, ReplicaRow("w", 1, "RUNNING", 1, BUSY))], 80) == {2, 3, 4, 5, 6}
    assert shown_columns([app(ReplicaRow("w", 0, "RUNNING", 1, BUSY))], 60) == {2, 3, 4, 5}
    assert row_text(HEADS, 8, {2}, 80).split() == ["REPLICA", "STATE", "CPU", "LAST", "LINE"]
    retried = ReplicaRow("w", 0, "RUNNING", 12, BUSY, "the last line")
    assert "RUNNING #12 " in row_text(cells(retried), 8, {2}, 60)
    assert row_text(cells(retried), 22, {2, 3}, 60).endswith("the las..")


def test_a_table_without_a_terminal() -> None:
    assert torchx("top", "-s", "local_cwd").stderr == "no running applications\n"
    app_id = leave("echo from-${replica_id}; sleep 600", replicas=2)
    assert torchx("wait", "--for", "running", app_id).returncode == 0
    done = torchx("top", "-s", "local_cwd")
    head, first, *rest = done.stdout.splitlines()
    assert head.split() == ["REPLICA", "STATE", "CPU", "MEMORY", "OUTPUT", "LAST", "LINE"]
    assert first.split()[:2] == [app_id, "RUNNING"]
    assert [line.split()[0] for line in rest] == ["sh/0", "sh/1"]
    shown = answer("top", "-o", "json", "@last")
    assert [(app["app_id"], len(app["replicas"])) for app in shown] == [(app_id, 2)]
    assert list(shown[0]["replicas"][0]) == [
        "role", "replica", "state", "attempt", "exit_code", "signal",
        "cpu", "memory", "gpu", "gpu_memory", "output", "last_line",
    ]  # fmt: skip


def test_keys_select_show_details_and_the_log_and_cancel() -> None:
    app_id = leave("echo from-${replica_id}; sleep 600", replicas=3)
    with Terminal("top", "-s", "local_cwd") as terminal:
        terminal.until(lambda screen: all(f"from-{k}" in screen for k in range(3)), "the last lines")
        assert "q quit" in terminal.shows("1 of 4")
        terminal.send("j\x1b[B")
        terminal.shows("3 of 4")
        terminal.send("k")
        terminal.shows("2 of 4")
        terminal.send("G")
        terminal.shows("4 of 4")
        terminal.send("\r")
        screen = terminal.shows("any key to return")
        assert "3 of 3 running" in screen
        terminal.shows("│ from-2")
        terminal.send("x")
        terminal.shows("4 of 4")
        terminal.send("l")
        terminal.until(lambda _: "from-2" in terminal.written.partition(LEAVE)[2], "the log")
        terminal.send("\x03")
        terminal.until(lambda _: terminal.written.count(ENTER) == 2, "the screen again")
        terminal.send("c")
        terminal.shows(f"cancel {app_id}? y to confirm")
        terminal.send("x")
        terminal.shows("q quit")
        assert answer("status", app_id, "-o", "json")["state"] == "RUNNING"
        terminal.send("cy")
        terminal.shows("CANCELLED")
        terminal.send("q")
        assert terminal.end() == 0


def test_a_narrow_window_and_a_new_size() -> None:
    leave("sleep 600", replicas=30)
    with Terminal("top", "-s", "local_cwd", width=80, lines=24) as terminal:
        screen = terminal.shows("of 31")
        assert "sh/20" not in screen
        terminal.resize(50, 12)
        terminal.kill(signal.SIGWINCH)
        assert "sh/10" not in terminal.shows("of 31")
        terminal.send("G")
        assert "sh/29" in terminal.shows("31 of 31")
        terminal.send("\x04")
        assert terminal.end() == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_signals_restore_the_terminal(number: signal.Signals, code: int) -> None:
    with Terminal("top", "-s", "local_cwd") as terminal:
        terminal.shows("no running applications")
        terminal.kill(number)
        assert terminal.end() == code


def test_ctrl_z_leaves_the_screen_until_the_command_continues() -> None:
    with Terminal("top", "-s", "local_cwd") as terminal:
        terminal.shows("no running applications")
        terminal.send("\x1a")
        stat = Path(f"/proc/{terminal.process.pid}/stat")
        terminal.until(lambda _: stat.read_text().rpartition(") ")[2].startswith("T"), "it has stopped")
        terminal.read(0)
        assert terminal.written.count(LEAVE) == 1
        terminal.kill(signal.SIGCONT)
        terminal.until(lambda _: terminal.written.count(ENTER) == 2, "the screen again")
        terminal.shows("no running applications")
        terminal.send("q")
        assert terminal.end() == 0


def test_an_error_restores_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from torchx_cli.top import snapshot\n"
        "def fail(self): raise ZeroDivisionError('a defect')\n"
        "snapshot.Collector._find_new = fail\n"
    )
    with Terminal("top", "-s", "local_cwd", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}) as terminal:
        assert terminal.end() == 1
        assert "a defect" in terminal.written.rpartition(LEAVE)[2]


def test_application_that_ended_remains_and_is_not_read_again() -> None:
    app_id = leave("exit 3")
    torchx("wait", app_id)
    calls: list[str] = []
    with get_runner("torchx") as runner:
        handle = f"local_cwd://torchx/{app_id}"
        known = [handle]
        collector = Collector(runner, lambda: known)
        collector.collect()
        runner.description = lambda *args, **options: calls.append("read")  # type: ignore[method-assign]
        shown = collector.collect()
    assert [(row.state, row.replicas[0].state, calls) for row in shown] == [("FAILED", "FAILED", [])]
    (row,) = shown[0].replicas
    assert (cells(row)[1], row.to_json()["exit_code"], row.to_json()["signal"]) == ("exit 3", 3, None)
    assert json.dumps(shown[0].to_json())


def test_last_line_of_a_replica_before_many_others() -> None:
    script = (
        "if test ${replica_id} = 1; then echo first; echo; touch ready; exec sleep 600; fi; "
        f"until test -e ready; do sleep 0.05; done; seq {3 * TAIL}; exec sleep 600"
    )
    app_id = leave(script, replicas=2)
    handle = f"local_cwd://torchx/{app_id}"
    with get_runner("torchx") as runner:
        while not any(f"{3 * TAIL}".encode() in c.data for c in runner.log_chunks(handle, LogQuery(tail=1))):
            time.sleep(0.01)
        shown = Collector(runner, lambda: [handle]).collect()
    assert [replica.last for replica in shown[0].replicas] == [str(3 * TAIL), "first"]


def test_replicas_missed_in_a_round_are_read_in_next() -> None:
    chunks = [
        LogChunk("w", replica, 1, Stream.STDOUT, float(replica + 1), b"x\n" * TAIL + b"%d\n" % replica)
        for replica in range(2 * MOST_READS)
    ]
    queries: list[LogQuery] = []

    def log_chunks(query: LogQuery) -> list[LogChunk]:
        queries.append(query)
        since = query.since.timestamp() if query.since is not None else 0.0
        return [c for c in chunks if c.time >= since and query.selects(c.role, c.replica)][-1:]

    lines, replicas = Lines(), [("w", replica) for replica in range(2 * MOST_READS)]
    while lines.read(log_chunks, replicas):
        pass
    assert lines.last == {("w", replica): str(replica) for replica in range(2 * MOST_READS)}
    chunks.insert(0, LogChunk("w", 1, 1, Stream.STDOUT, chunks[-1].time, b"new\n"))
    chunks.append(LogChunk("w", 0, 1, Stream.STDOUT, chunks[-1].time, b"y\n" * TAIL))
    while lines.read(log_chunks, replicas):
        pass
    assert (lines.last["w", 0], lines.last["w", 1], lines.last["w", 2]) == ("y", "new", "2")


def test_an_engine_that_does_not_answer_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = leave("sleep 600")
    handle, hanging = f"local_cwd://torchx/{app_id}", "local_docker://torchx/absent-x7k2"
    answered = threading.Event()
    with get_runner("torchx") as runner:
        description = runner.description

        def describe(handle: str, **options: bool) -> DescribeAppResponse | None:
            if handle == hanging:
                answered.wait()
                return None
            return description(handle, **options)

        monkeypatch.setattr(runner, "description", describe)
        collector = Collector(runner, lambda: [hanging, handle])
        collector.start()
        try:
            while [app.state for app in collector.apps] != ["RUNNING"]:
                time.sleep(0.01)
            torchx("cancel", app_id)
            while [app.state for app in collector.apps] != ["CANCELLED"]:
                time.sleep(0.01)
            answered.set()
            while [app.app_id for app in collector.apps] != ["absent-x7k2", app_id]:
                time.sleep(0.01)
        finally:
            answered.set()
            collector.stop()
    assert collector.error is None


def test_details_do_not_wait_for_the_log(tmp_path: Path) -> None:
    leave("sleep 600")
    (tmp_path / "sitecustomize.py").write_text(
        "import threading\nfrom torchx.runner.api import Runner\n"
        "Runner.log_chunks = lambda *args: threading.Event().wait()\n"
        "from torchx_cli.top.snapshot import Collector\n"
        "Collector._last_lines = lambda *args: {}\n"
    )
    with Terminal("top", "-s", "local_cwd", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}) as terminal:
        terminal.shows("1 of 2")
        terminal.send("j\r")
        assert "1 of 1 running" in terminal.shows("any key to return")
        terminal.send("x")
        terminal.shows("2 of 2")
        terminal.send("q")
        assert terminal.end() == 0
