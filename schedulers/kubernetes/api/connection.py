"""Connections to a cluster: time limits, closing, and reasons for failures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from threading import Event, Thread, Timer
from typing import Any

from torchx.lazy import lazy_imports

with lazy_imports:
    import socket

    from urllib3 import exceptions


BROKEN_OFF = "it closed the connection"
LATE = "it timed out"


@contextmanager
def ended_at(response: Any, end: float) -> Iterator[None]:
    """Limits the total time of reading a response; the time limit of a socket applies to each read.

    Args:
        response: the response; its connection is closed at the deadline.
        end: the deadline, by the monotonic clock.

    Raises:
        TimeoutError: the response was incomplete at the deadline.
    """
    late = Event()

    def give_up() -> None:
        late.set()
        hang_up(response)

    watchdog = Timer(max(end - time.monotonic(), 0.1), give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    except Exception:
        if late.is_set():
            raise TimeoutError(LATE) from None
        raise
    finally:
        watchdog.cancel()
    if late.is_set():
        raise TimeoutError(LATE)


def within(limit: float, make: Callable[[], Any]) -> Any:
    """Makes a connection within a time limit.

    Raises:
        TimeoutError: it took longer; a connection that is made later is closed.
    """
    made: Queue[Any] = Queue()
    abandoned = Event()

    def run() -> None:
        try:
            connection = make()
        except BaseException as error:  # the caller raises it
            made.put((None, error))
            return
        made.put((connection, None))
        if abandoned.is_set():
            connection.shutdown()

    Thread(target=run, name="connect", daemon=True).start()
    try:
        connection, error = made.get(timeout=limit)
    except Empty:
        abandoned.set()
        raise TimeoutError(LATE) from None
    if error is not None:
        raise error
    return connection


def why(error: BaseException) -> str:
    """Returns the reason of a connection error, as a short phrase."""
    inner = error
    while isinstance(inner, exceptions.MaxRetryError) and inner.reason is not None:
        inner = inner.reason
    text = str(inner)
    if isinstance(inner, exceptions.ProxyError):
        return "its proxy rejected the connection"
    if "Failed to resolve" in text or "[Errno -2]" in text or "nodename nor servname" in text:
        return "unknown host"
    for known in ("Connection refused", "No route to host", "Network is unreachable"):
        if known in text:
            return known.lower()
    if isinstance(inner, exceptions.ConnectTimeoutError):
        return "the connection timed out"
    if isinstance(inner, (exceptions.ReadTimeoutError, TimeoutError)):
        return LATE
    if isinstance(inner, exceptions.SSLError):
        if "CERTIFICATE_VERIFY_FAILED" in text:
            return "its certificate is not trusted"
        return f"TLS: {text}"
    if isinstance(inner, (exceptions.ProtocolError, ConnectionError)):
        return BROKEN_OFF
    return " ".join(text.split())[:200] or type(inner).__name__


def hang_up(response: Any) -> None:
    """Closes a stream; a thread that reads from it sees its end."""
    with suppress(OSError, ValueError):  # it is closed already
        sock = getattr(response.connection, "sock", None)
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
            return
        # a connection of this response only: the pool has dropped it
        with socket.socket(fileno=os.dup(response.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def lines_of(response: Any) -> Iterator[bytes]:
    """Yields the lines of a stream with their line ends; the last line may lack one."""
    held: list[bytes] = []  # joined once: a line may be long
    for data in response.stream(1 << 16):
        first, newline, rest = data.partition(b"\n")
        held.append(first)
        if not newline:
            continue
        yield b"".join([*held, newline])
        *whole, last = rest.split(b"\n")
        for line in whole:
            yield line + b"\n"
        held = [last]
    if any(held):
        yield b"".join(held)
