"""The journal of deliveries: nothing is sent without an entry, and pauses grow until the sender gives up."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from hooks import hooks_at

from torchx.notifications import sender
from torchx.notifications.delivery import Result
from torchx.notifications.plan import Notify
from torchx.notifications.sender import Sender
from torchx.notifications.store import SENDING, Delivery, Store

PAYLOAD = {"state": "FAILED", "text": "a-1 FAILED"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "notifications")


def state(each: Delivery) -> tuple[str, int, str]:
    return each.state, each.tries, each.message


def test_nothing_is_sent_if_the_try_cannot_be_recorded(store: Store) -> None:
    with hooks_at() as hooks:
        store.create(Notify([hooks.url]))
        store.journal.unlink()
        Sender(store, "end", PAYLOAD).run()
        assert not hooks.requests


def test_a_full_disk_delays_the_try(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with hooks_at() as hooks:
        store.create(Notify([hooks.url]))
        clock, real, full = Clock(), Store.add, [OSError(errno.ENOSPC, "No space left on device")]

        def add(self: Store, *args: Any) -> None:
            if full:
                raise full.pop()
            assert clock.pauses == [0.0, sender.LONGEST_PAUSE]
            real(self, *args)

        monkeypatch.setattr(Store, "add", add)
        fake = SimpleNamespace(time=clock.now, monotonic=clock.now, sleep=clock.sleep)
        monkeypatch.setattr(sender, "time", fake)
        Sender(store, "end", PAYLOAD).run()
        assert len(hooks.requests) == 1


def test_an_interrupted_try_is_final(store: Store) -> None:
    with hooks_at() as hooks:
        store.create(Notify([hooks.url, hooks.url + "2"], ["end"]))
        store.add(0, "end", SENDING)
        Sender(store, "end", PAYLOAD).run()
        interrupted = ("unknown", 1, "the sender was killed during a try")
        assert [state(each) for each in store.deliveries()] == [interrupted, ("delivered", 1, "")]
        assert len(hooks.requests) == 1
        Sender(store, "end", PAYLOAD).run()
        assert len(hooks.requests) == 1


class Clock:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.at, self.pauses = 1e9, list[float]()

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.at += seconds


def test_pauses_grow_and_end_after_a_day(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    fake = SimpleNamespace(time=clock.now, monotonic=clock.now, sleep=clock.sleep)
    monkeypatch.setattr(sender, "time", fake)
    monkeypatch.setattr("torchx.notifications.store.time", fake)
    monkeypatch.setattr(sender, "deliver", lambda target, payload: Result("retry", "connection refused"))
    store.create(Notify(["https://hooks.example.com/x"], ["failure"]))
    Sender(store, "end", PAYLOAD).run()
    assert clock.pauses[:5] == [0.0, 0.25, 0.5, 1.0, 2.0]
    assert clock.pauses[-1] == 900.0
    assert 23.5 * 3600 < sum(clock.pauses) <= 24 * 3600
    (given_up,) = store.deliveries()
    assert state(given_up) == ("failed", len(clock.pauses), "connection refused; gave up")


def test_two_targets_do_not_wait_for_each_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, arrived = list[str](), threading.Event()

    def deliver(target: str, payload: object) -> Result:
        tried.append(target[-1])
        if target[-1] == "b":
            arrived.set()
        else:
            assert arrived.wait(60), "the other target waits for this one"
        return Result("delivered" if len(tried) > 4 or target[-1] == "b" else "retry")

    monkeypatch.setattr(sender, "deliver", deliver)
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.001)
    store.create(Notify(["https://hooks.example.com/a", "https://hooks.example.com/b"], ["end"]))
    Sender(store, "end", PAYLOAD).run()
    assert sorted(tried) == ["a", "a", "a", "a", "b"]
    assert {each.state for each in store.deliveries()} == {"delivered"}


def test_long_pauses_are_left_to_a_smaller_process(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, restarts = Clock(), list[float]()
    fake = SimpleNamespace(time=clock.now, monotonic=clock.now, sleep=clock.sleep)
    monkeypatch.setattr(sender, "time", fake)
    monkeypatch.setattr(sender, "deliver", lambda target, payload: Result("retry", "connection refused"))
    store.create(Notify(["https://hooks.example.com/a"], ["end"]))

    def restart(pause: float) -> NoReturn:
        restarts.append(pause)
        raise SystemExit

    with pytest.raises(SystemExit):
        Sender(store, "end", PAYLOAD, restart).run()
    assert restarts == [64.0]
    assert max(clock.pauses) < sender.LONG_PAUSE
    assert [each.tries for each in store.deliveries()] == [9]
