"""Threads that a command can do without; the limit of processes of a user (``ulimit -u``) counts them."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any


def begin(target: Callable[..., Any], *args: Any, name: str = "") -> threading.Thread | None:
    """Starts a daemon thread with the context variables of this one; None if the user may start no other.

    Args:
        target: the function to run.
        args: its arguments.
        name: the name of the thread.
    """
    run = contextvars.copy_context().run
    thread = threading.Thread(target=run, args=(target, *args), name=name or None, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
