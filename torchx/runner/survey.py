"""Concurrent queries of several schedulers, with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from torchx.errors import TorchxError, UnreachableError
from torchx.machine import threads

T = TypeVar("T")

PATIENCE = 5.0
"""Maximum seconds of a query of several schedulers."""

EXPECTED = (TorchxError, NotImplementedError, ImportError, OSError)
"""Errors of unavailable schedulers; other errors are defects."""


class LateError(UnreachableError):
    """A scheduler has not answered yet."""


def survey(
    names: Iterable[str], query: Callable[[str], T], patience: float | None = None
) -> dict[str, T | Exception]:
    """Queries all schedulers concurrently, and returns the answer or the error of each.

    Args:
        names: the schedulers, in the order of the answers.
        query: queries the scheduler of a name.
        patience: maximum seconds in total (default: :data:`PATIENCE`).

    Raises:
        Exception: an error that is not in :data:`EXPECTED`.
    """
    answers: dict[str, T | Exception] = {}

    def run(name: str) -> None:
        try:
            answers[name] = query(name)
        except Exception as error:  # raised below, in the calling thread
            answers[name] = error

    order = list(names)
    if patience is None:
        patience = PATIENCE
    begun = {name: threads.begin(run, name, name=f"query {name}") for name in order}
    for name, thread in begun.items():
        if thread is None:
            run(name)
    end = time.monotonic() + patience
    for thread in begun.values():
        if thread is not None:
            thread.join(max(end - time.monotonic(), 0.0))
    late = LateError(f"no answer within {patience:.0f} s")
    complete = {name: answers.get(name, late) for name in order}
    for answer in complete.values():
        if isinstance(answer, Exception) and not isinstance(answer, EXPECTED):
            raise answer
    return complete
