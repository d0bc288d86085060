"""Logs of schedulers that give them one replica at a time, as one stream."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import datetime

import pytest
from memory_scheduler import MemoryScheduler

from torchx.errors import StateError
from torchx.runner import Runner, logs
from torchx.scheduling.logs import LogQuery, Stream
from torchx.specs.app import AppDef, Role
from torchx.specs.status import AppState


@pytest.fixture
def runner() -> Iterator[Runner]:
    with Runner("s", {"memory": MemoryScheduler}) as made:
        yield made


def submit(runner: Runner) -> str:
    roles = [Role("a", "img", entrypoint="x", num_replicas=3), Role("b", "img", entrypoint="x")]
    handle = runner.run(AppDef("app", roles), "memory")
    scheduler = runner.scheduler("memory")
    assert isinstance(scheduler, MemoryScheduler)
    job = scheduler.jobs["app-0"]
    for role, k in (("a", 0), ("a", 1), ("a", 2), ("b", 0)):
        job.lines[role, k] = [f"{role}{k} one\n", f"{role}{k} two\n"]
    return handle


def log_of(runner: Runner, handle: str, query: LogQuery) -> list[str]:
    return [chunk.data.decode() for chunk in runner.log_chunks(handle, query)]


def test_replicas_come_one_after_the_other(runner: Runner) -> None:
    handle = submit(runner)
    chunks = list(runner.log_chunks(handle, LogQuery()))
    assert [(chunk.role, chunk.replica) for chunk in chunks[::2]] == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert {(chunk.attempt, chunk.stream, chunk.time) for chunk in chunks} == {(1, Stream.COMBINED, 0.0)}
    assert list(runner.log_lines(handle, "a", 1)) == ["a1 one\n", "a1 two\n"]


def test_the_wanted_replicas_and_the_last_lines(runner: Runner) -> None:
    handle = submit(runner)
    wanted = LogQuery({"a": frozenset({0, 2})})
    assert log_of(runner, handle, wanted) == ["a0 one\n", "a0 two\n", "a2 one\n", "a2 two\n"]
    assert log_of(runner, handle, LogQuery({"b": frozenset()})) == ["b0 one\n", "b0 two\n"]
    assert log_of(runner, handle, LogQuery(tail=3)) == ["a2 two\n", "b0 one\n", "b0 two\n"]
    assert log_of(runner, handle, LogQuery(tail=0)) == []


def test_following_ends_with_the_application(runner: Runner) -> None:
    handle = submit(runner)
    scheduler = runner.scheduler("memory")
    assert isinstance(scheduler, MemoryScheduler)
    chunks = runner.log_chunks(handle, LogQuery(follow=True))
    first = [next(chunks).data.decode() for _ in range(8)]
    assert sorted(first) == sorted(
        f"{r}{k} {n}\n" for r, k in ("a0", "a1", "a2", "b0") for n in ("one", "two")
    )
    scheduler.jobs["app-0"].end(AppState.SUCCEEDED)
    assert len(list(chunks)) == 4


def test_error_of_one_replica_reaches_reader_and_stops_others() -> None:
    class Torn(MemoryScheduler):
        def log_iter(
            self,
            app_id: str,
            role_name: str,
            k: int = 0,
            regex: str | None = None,
            since: datetime | None = None,
            until: datetime | None = None,
            should_tail: bool = False,
            streams: Stream | None = None,
        ) -> Iterable[str]:
            if k == 1:
                raise StateError("the connection broke")
            while True:
                yield "and on\n"

    with Runner("s", {"memory": Torn}) as runner:
        handle = runner.run(AppDef("app", [Role("a", "img", entrypoint="x", num_replicas=3)]), "memory")
        with pytest.raises(StateError, match="the connection broke"):
            for _ in runner.log_chunks(handle, LogQuery(follow=True)):
                pass
    for thread in threading.enumerate():
        if thread.name.startswith("log a/"):
            thread.join(10)
            assert not thread.is_alive()


class Unattended(MemoryScheduler):
    """An engine that ends what a failure leaves behind only when it is called for."""

    def reconcile(self, app_id: str) -> None:
        self.jobs[app_id].end(AppState.FAILED)


@pytest.mark.parametrize("by", ["wait", "follow one", "follow all"])
def test_waiting_and_following_reconcile_the_application(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "RECONCILE_EVERY", 0.02)
    with Runner("s", {"memory": Unattended}) as runner:
        handle = submit(runner)
        before = runner.status(handle)
        assert before is not None and before.state is AppState.RUNNING, "a query changes nothing"
        if by == "wait":
            runner.wait(handle, wait_interval=0.02)
        else:
            wanted = {"b": frozenset[int]()} if by == "follow one" else {}
            assert "b/0 has ended\n" in log_of(runner, handle, LogQuery(wanted, follow=True))
        after = runner.status(handle)
        assert after is not None and after.state is AppState.FAILED
