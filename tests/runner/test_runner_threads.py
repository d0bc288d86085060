"""A runner in the middle of other things: threads that share it, an event loop, somebody's process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from memory_scheduler import MemoryScheduler
from project.sources import ROOT, modules, tree_of
from support import wait_until

from torchx.errors import StateError
from torchx.runner import Runner, aio, get_runner
from torchx.specs import AppDef, AppState, Role

OPTIONS = {"grace_period": 5.0}


def sh(script: str, name: str = "job") -> AppDef:
    return AppDef(name, [Role("w", "", entrypoint="sh", args=["-c", script])])


@pytest.fixture
def runner() -> Iterator[Runner]:
    with get_runner("threads") as made:
        yield made


@pytest.mark.long
def test_threads_share_one_runner(runner: Runner) -> None:
    """Each submits jobs, reads and waits for those of others, and ends what others have started."""
    rounds, threads = 3, 8
    running: dict[str, threading.Event] = {}
    barrier = threading.Barrier(threads)

    def wait_and_tell(handle: str) -> None:
        runner.wait(handle)
        running[handle].set()

    def work(number: int) -> list[str]:
        seen = []
        for turn in range(rounds):
            barrier.wait(60)
            short = runner.run(sh(f"echo {number}.{turn}"), "local_cwd", OPTIONS)
            long = runner.run(sh("echo up; exec sleep 600", "long"), "local_cwd", OPTIONS)
            running[long] = threading.Event()
            barrier.wait(60)
            others = sorted(running)[(number + 1) % threads]  # another's, and each has one thread to end it
            assert next(iter(runner.log_lines(others, "w", should_tail=True))) == "up\n"
            waiting = threading.Thread(
                target=lambda handle=long: (runner.wait(handle), running[handle].set())
            )
            waiting.start()
            runner.cancel(others)
            assert running[long].wait(60), "the wait for a job that another thread has cancelled is over"
            waiting.join()
            ended = runner.wait(long)
            assert ended is not None
            assert ended.state is AppState.CANCELLED
            assert list(runner.log_lines(short, "w", should_tail=True)) == [f"{number}.{turn}\n"]
            seen.append(short)
            barrier.wait(60)
            if number == 0:
                running.clear()
        return seen

    with ThreadPoolExecutor(threads) as pool:
        handles = [handle for done in pool.map(work, range(threads)) for handle in done]
    assert len(set(handles)) == rounds * threads
    listed = {app.app_handle: app.state for app in runner.list("local_cwd")}
    assert {listed[handle] for handle in handles} == {AppState.SUCCEEDED}
    assert runner.resolve_handle("@last") in listed


def test_threads_that_come_at_once_get_the_same_scheduler() -> None:
    made: list[MemoryScheduler] = []

    def slow(session: str, **params: object) -> MemoryScheduler:
        time.sleep(0.02)  # what takes a moment to make is where two would be made
        made.append(MemoryScheduler(session))
        return made[-1]

    with Runner("s", {"memory": slow}) as runner, ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(lambda _: runner.scheduler("memory"), range(8))}) == 1
    assert len(made) == 1
    assert made[0].closed


def test_deleted_under_the_feet_of_who_waits_and_reads(runner: Runner) -> None:
    handle = runner.run(sh("echo up; exec sleep 600"), "local_cwd", OPTIONS)
    with ThreadPoolExecutor(2) as pool:
        lines = iter(runner.log_lines(handle, "w", should_tail=True))
        assert next(lines) == "up\n"
        waited = pool.submit(runner.wait, handle)
        read = pool.submit(list, lines)
        runner.delete(handle)
        status = waited.result(60)
        assert status is None or status.state is AppState.CANCELLED
        assert read.result(60) == []
    assert runner.status(handle) is None


# --- asyncio ---------------------------------------------------------------------------------------


def test_awaited_together(runner: Runner) -> None:
    async def one(number: int) -> tuple[str, list[str]]:
        handle = await aio.call(runner.run, sh(f"echo {number}; echo end"), "local_cwd")
        lines = [line async for line in aio.each(runner.log_lines(handle, "w", should_tail=True))]
        status = await aio.call(runner.wait, handle)
        assert status is not None
        return status.state.name, lines

    async def many() -> list[tuple[str, list[str]]]:
        return await asyncio.gather(*(one(number) for number in range(4)))

    assert asyncio.run(many()) == [("SUCCEEDED", [f"{number}\n", "end\n"]) for number in range(4)]


@pytest.mark.parametrize("way", ["call", "each", "to_thread"])
def test_cancelled_task_leaves_job_and_blocks_no_other(runner: Runner, way: str) -> None:
    handle = runner.run(sh("echo up; exec sleep 600"), "local_cwd", OPTIONS)

    async def watch() -> None:
        if way == "call":
            await aio.call(runner.wait, handle)
        elif way == "each":
            async for _ in aio.each(runner.log_lines(handle, "w", should_tail=True)):
                pass
        else:  # as docs/python.md describes it
            while True:
                status = await asyncio.to_thread(runner.wait, handle, timeout=0.5)
                if status is None or status.is_terminal():
                    return

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(watch(), 0.2)

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 10, "the loop ends, whatever the job does"
    status = runner.status(handle)
    assert status is not None
    assert status.state is AppState.RUNNING
    runner.cancel(handle)
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("torchx ")], "threads end")


def test_errors_arrive_where_they_are_awaited(runner: Runner) -> None:
    async def main() -> None:
        with pytest.raises(StateError):
            await aio.call(runner.log_lines, "local_cwd://threads/gone", "w")
        with pytest.raises(RuntimeError, match="next has nothing more"):
            await aio.call(next, iter([]))

        def broken() -> Iterator[int]:
            yield 1
            raise StateError("the rest is gone")

        seen = []
        with pytest.raises(StateError, match="the rest is gone"):
            async for item in aio.each(broken()):
                seen.append(item)
        assert seen == [1]

    asyncio.run(main())


def test_who_reads_slowly_is_not_run_away_from() -> None:
    given = []

    def quick() -> Iterator[int]:
        for number in range(aio.AHEAD * 3):
            given.append(number)
            yield number

    async def main() -> None:
        async for number in aio.each(quick()):
            assert len(given) - number <= aio.AHEAD + 2
            if number == 10:
                break

    asyncio.run(main())
    assert len(given) < aio.AHEAD * 2


# --- a guest in somebody's process -----------------------------------------------------------------

GUEST = """
import os, signal, sys, threading, warnings

before = {number: signal.getsignal(number) for number in signal.valid_signals()}
mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
hooks = sys.excepthook, threading.excepthook, sys.displayhook, warnings.showwarning
umask = os.umask(0o022); os.umask(umask)
cwd, env = os.getcwd(), dict(os.environ)

import torchx.runner
from torchx.components import utils

runner = torchx.runner.get_runner()
handle = runner.run(utils.echo("hi"), "local_cwd")
assert runner.wait(handle).state.name == "SUCCEEDED"
assert list(runner.log_lines(handle, "echo")) == ["hi\\n"]
runner.list("local_cwd"); runner.describe(handle); runner.cancel(handle); runner.delete(handle)
try:
    runner.run(utils.echo("hi"), "nowhere")
except torchx.specs.UnknownSchedulerException:
    pass

assert before == {number: signal.getsignal(number) for number in signal.valid_signals()}
assert mask == signal.pthread_sigmask(signal.SIG_BLOCK, [])
assert hooks == (sys.excepthook, threading.excepthook, sys.displayhook, warnings.showwarning)
assert threading.enumerate() == [threading.main_thread()]
assert (cwd, env) == (os.getcwd(), dict(os.environ))
now = os.umask(0o022)
assert now == umask
import logging
assert not logging.getLogger().handlers and not logging.getLogger("torchx").handlers
try:  # no other process looks after its children
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    pass
else:
    raise AssertionError("a child is left")
"""


def test_a_process_is_left_as_it_was(tmp_path: Path) -> None:
    """No signal handler, hook, thread, child or word is left, also not by a runner that was never closed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", GUEST],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_happens_when_an_object_is_thrown_away() -> None:
    import ast

    wrong = [
        f"{path}:{node.lineno}"
        for path in modules().values()
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "__del__"
    ]
    assert not wrong
