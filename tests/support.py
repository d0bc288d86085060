"""Helpers of the tests: waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, timeout: float = 120.0) -> T:
    """Returns the first true value of ``condition``; fails when ``timeout`` seconds bring none."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {timeout} s still not: {what}")
        time.sleep(0.01)
