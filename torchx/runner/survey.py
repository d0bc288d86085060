"""Asking several schedulers at once: one that does not answer holds nobody up for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from torchx.errors import StateError, TorchxError

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that a scheduler has when others are asked the same; one that is asked alone has its own limits."""

EXPECTED = (TorchxError, NotImplementedError, ImportError, OSError)
"""What a scheduler that cannot be asked raises; anything else is a mistake in a program."""


def survey(
    names: Iterable[str], question: Callable[[str], T], patience: float = PATIENCE
) -> dict[str, T | Exception]:
    """Asks all of them at the same time, and returns what each answers, or why it does not.

    Args:
        names: the schedulers, in the order of the answers.
        question: asks the one of a name.
        patience: seconds that all of it may take.

    Raises:
        Exception: what none of the schedulers is expected to raise.
    """
    answers: dict[str, T | Exception] = {}

    def ask(name: str) -> None:
        try:
            answers[name] = question(name)
        except Exception as error:  # it is raised where somebody sees it
            answers[name] = error

    order = list(names)
    threads = [threading.Thread(target=ask, args=(name,), daemon=True, name=f"ask {name}") for name in order]
    for thread in threads:
        thread.start()
    end = time.monotonic() + patience
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    late = StateError(f"it does not answer within {patience:.0f} s")
    told = {name: answers.get(name, late) for name in order}
    for answer in told.values():
        if isinstance(answer, Exception) and not isinstance(answer, EXPECTED):
            raise answer
    return told
