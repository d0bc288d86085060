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
        begin = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"after {timeout} s still not: {what}")
        time.sleep(min(max(0.01, 2 * (now - begin)), 0.1))  # a slow condition is checked less often
