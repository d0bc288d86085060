"""The answers of an engine that the parts of a process share."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Mapping

import pytest

from torchx.scheduling.pace import Answers, sharing


class Engine:
    """An engine that counts its queries."""

    def __init__(self) -> None:
        self.queries: list[set[str]] = []
        self.error: BaseException | None = None
        self.answers: Answers[int] = Answers(self.query)

    def query(self, keys: Collection[str]) -> Mapping[str, int]:
        self.queries.append(set(keys))
        if self.error is not None:
            raise self.error
        return dict.fromkeys(keys, len(self.queries))

    def about(self, key: str, since: float = 0.0) -> int | None:
        with sharing(since):
            return self.answers.about(key)


def test_an_interrupted_query_is_no_answer() -> None:
    engine = Engine()
    assert engine.about("a") == 1
    engine.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        engine.about("b")
    engine.error = None
    assert (engine.about("b"), engine.about("a")) == (3, 3)


def test_a_shared_error_does_not_grow() -> None:
    engine = Engine()
    engine.error = OSError("unreachable")
    depths = set()
    for _ in range(20):
        with pytest.raises(OSError, match="unreachable") as raised:
            engine.about("a")
        depths.add(len(traceback.extract_tb(raised.value.__traceback__)))
    assert len(engine.queries) == 1
    assert len(depths) <= 2


def test_a_changed_engine_is_queried_again() -> None:
    engine = Engine()
    assert [engine.about("a") for _ in range(3)] == [1, 1, 1]
    engine.answers.restart()
    assert engine.about("a") == 2
    assert engine.about("a", since=float("inf")) == 3
    assert engine.answers.about("a") == 4  # of a part that does not share
