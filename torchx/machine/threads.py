"""Threads that a command can do without; the limit of processes of a user (``ulimit -u``) counts them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def begin(target: Callable[..., Any], *args: Any, name: str = "") -> threading.Thread | None:
    """Starts a daemon thread; returns None if this user may not start a further one.

    Args:
        target: the function to run.
        args: its arguments.
        name: the name of the thread.
    """
    thread = threading.Thread(target=target, args=args, name=name or None, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
