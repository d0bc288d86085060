"""Searches for patterns of users end within a limit of time, wherever they are searched."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchx.errors import UsageError
from torchx.machine import processes
from torchx.runner import aio
from torchx.schedulers.shared.batch.node.files import node_file
from torchx.schedulers.shared.logs import line_filter
from torchx.scheduling import patterns
from torchx.scheduling.base import filter_regex
from torchx.scheduling.logs import LogChunk, LogQuery, Stream, matching
from torchx.scheduling.patterns import SearchTooLongError, any_matches
from torchx.scheduling.retry_rules import Failure, RetryRules
from torchx.services.probe import Probe, ServiceRule
from torchx.supervisor.services.probes import LineCheck
from torchx.supervisor.services.watch import Watch
from torchx.sweeps import logs as sweep_logs
from torchx.sweeps.results import _search, parse_metric

SLOW = "(a+)+$"
LINE = "a" * 60 + "b"
"""A line for which the search takes thousands of years."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MOST_CPU", 0.02)


def own_children() -> set[int]:
    return {entry.process.pid for entry in processes.table() if entry.parent == os.getpid()}


def in_thread(call: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def here(call: Callable[[], object]) -> object:
    return call()


SEARCHES = """
import os, threading, time
from torchx.scheduling.patterns import in_time

def work():
    print(in_time("key", lambda data: os.getpid(), None), flush=True)
    go.wait()
    print(in_time("key", lambda data: os.getpid(), None), flush=True)
    time.sleep(600)

go = threading.Event()
worker = threading.Thread(target=work, daemon=True)
try:
    worker.start()
    time.sleep(600)
except KeyboardInterrupt:
    go.set()
worker.join()
"""


def test_a_search_outlives_an_interrupt_but_not_its_parent() -> None:
    argv = [sys.executable, "-c", SEARCHES]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
        assert program.stdout is not None
        child = program.stdout.readline()
        os.killpg(program.pid, signal.SIGINT)
        assert program.stdout.readline() == child != ""
        program.kill()
        assert program.stdout.read() == ""  # which ends once no process has it open


@pytest.mark.parametrize("run", [here, in_thread])
def test_a_search_has_a_limit_in_every_thread(
    run: Callable[[Callable[[], object]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = re.compile(SLOW).search
    handler = signal.getsignal(signal.SIGVTALRM)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SearchTooLongError):
            run(lambda: any_matches(search, ["short", LINE]))
        monkeypatch.setattr(patterns, "MOST_CPU", 5.0)
        assert run(lambda: any_matches(search, ["b", "aa"])) is True
        assert run(lambda: any_matches(search, ["b"])) is False
    assert signal.getsignal(signal.SIGVTALRM) is handler
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0


def found_by(pattern: str) -> dict[str, Callable[[], object]]:
    """Returns calls that search for a pattern in a line, by their names."""
    data = LINE.encode() + b"\n"
    keep = line_filter(LogQuery(regex=pattern), lambda moment: 0)
    assert keep is not None
    return {
        "log --regex of local jobs and Slurm, wait --for": lambda: matching(data, re.compile(pattern)),
        "log --regex of containers and pods": lambda: keep((0, 0, data)),
        "log --regex of a scheduler of a plugin": lambda: list(filter_regex(pattern, [LINE])),
        "results --metric": lambda: _search(LINE, [parse_metric("x:=" + pattern)], {}),
    }


@pytest.mark.parametrize("run", [here, in_thread])
@pytest.mark.parametrize("name", list(found_by("x")))
def test_a_slow_pattern_of_a_query_is_an_error(
    name: str, run: Callable[[Callable[[], object]], object]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UsageError, match="takes too long"):
            run(found_by(SLOW)[name])


@pytest.mark.parametrize("name", list(found_by("x")))
def test_searches_in_threads_share_a_process(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept for the next line, has no other file of this process, and ends with the thread."""
    monkeypatch.setattr(patterns, "MOST_CPU", 5.0)
    children: list[set[int]] = []
    before = own_children()
    quick = found_by("(a+)b")[name]
    expected = quick()

    def search() -> None:
        for _ in range(3):
            found = quick()
            assert found == expected
            children.append(own_children() - before)
        (child,) = children[-1]
        opened = [path for path in Path(f"/proc/{child}/fd").iterdir() if int(path.name) > 2]
        assert [os.readlink(path).partition(":")[0] for path in opened] == ["socket"]

    with open(os.devnull, "rb"):
        in_thread(search)
    assert children[0] == children[-1] != set()
    assert own_children() - before == set()


def test_a_slow_pattern_ends_a_followed_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def log_of(engine: object, run: object, query: LogQuery) -> Iterator[LogChunk]:
        assert query.regex is not None
        data = LINE.encode() + b"\n"
        yield LogChunk("1", 0, 1, Stream.COMBINED, 0.0, matching(data, re.compile(query.regex)))

    run = SimpleNamespace(app_id="a", state="RUNNING", number=1, ended=None)
    sweep: Any = SimpleNamespace(
        header=SimpleNamespace(scheduler="x", native=False), runs=[run], has_ended=False
    )
    engine: Any = SimpleNamespace(describe=lambda app_id: "it runs")
    monkeypatch.setattr(sweep_logs, "_log_of", log_of)
    monkeypatch.setattr(sweep_logs, "view", SimpleNamespace(require=lambda app_id: sweep))
    query = LogQuery(follow=True, regex=SLOW)
    with pytest.raises(UsageError, match="takes too long"):
        list(sweep_logs._follow(lambda name: engine, "s", query, sweep))


async def _lines(pattern: str) -> list[str]:
    return [line async for line in aio.each(filter_regex(pattern, [LINE]))]


def test_a_slow_pattern_is_an_error_in_asyncio() -> None:
    with pytest.raises(UsageError, match="takes too long"):
        asyncio.run(_lines(SLOW))


def test_a_slow_rule_of_retries_does_not_match() -> None:
    failure = Failure(3, lines=[LINE])
    assert RetryRules.of({"retry_on": ["log:" + SLOW]}).refusal(failure).endswith("is not in retry_on")
    assert RetryRules.of({"no_retry_on": ["log:" + SLOW]}).refusal(failure) == ""


@pytest.mark.parametrize("run", [here, in_thread])
def test_a_slow_probe_ends_with_its_reason(run: Callable[[Callable[[], object]], object]) -> None:
    ready = "log:" + SLOW
    watch = Watch(ServiceRule(ready, Probe.of(ready), 60.0, "60s"), lambda: None)
    run(lambda: watch.feed(1, LINE.encode() + b"\n"))
    assert not watch.is_ready(0.0)
    assert "the search for the pattern takes too long" in watch.reason()
    run(lambda: watch.feed(1, b"aaa\n"))  # it is not searched any more
    assert not watch.is_ready(0.0)


def test_a_probe_searches_unfinished_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MOST_CPU", 5.0)
    check = LineCheck("^ready$")
    check.feed(1, b"not ready\nrea")
    assert check.poll() is None
    check.feed(2, b"dy")
    assert check.poll() is None
    check.feed(1, b"dy")
    assert check.poll() == ""


PROGRAM = """
import sys
sys.argv = ["x"]
exec(compile(open({path!r}).read().split('if __name__ ==')[0], "node", "exec"))
MOST_CPU = 0.05
{check}
"""

CHECKS = {
    "judge.py": """
failure = Failure(3, None, ["aaa"])
assert RetryRules.of({"retry_on": ["log:(a+)+$"]}).refusal(failure) == ""
slow = Failure(3, None, ["a" * 60 + "b"])
assert RetryRules.of({"retry_on": ["log:(a+)+$"]}).refusal(slow)
""",
    "readiness.py": """
check = LineCheck("(a+)+$")
check.feed(1, b"a" * 60 + b"b")
assert check.poll() is None and check.answer, check.answer
check = LineCheck("(a+)+$")
check.feed(1, b"aaa")
assert check.poll() == ""
""",
}


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("judge.py", "python3.6"),
        ("judge.py", "python3.8"),
        ("judge.py", ""),
        ("readiness.py", "python3.8"),
        ("readiness.py", ""),
    ],
)
def test_nodes_limit_searches_too(name: str, python: str, tmp_path: Path) -> None:
    """Their files run with old Pythons: those of this machine, if it has them."""
    program = shutil.which(python) if python else sys.executable
    if program is None or subprocess.run([program, "-c", ""], capture_output=True).returncode:
        program = sys.executable
    path = tmp_path / name
    path.write_text(node_file(name), encoding="utf-8")
    code = PROGRAM.format(path=str(path), check=CHECKS[name])
    done = subprocess.run([program, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
