"""Connections to a cluster: their time limits, their ends, and the reasons for which they fail."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from threading import Event, Thread, Timer
from typing import Any

BROKEN_OFF = "it broke the connection off"
LATE = "it does not answer in time"


@contextmanager
def ended_at(response: Any, end: float) -> Iterator[None]:
    """Reads an answer until a time: the limit of a socket is for each of its reads, and bytes that drip in
    would never reach it.

    Args:
        response: the answer; its connection is closed at that time.
        end: the time, by the monotonic clock.

    Raises:
        TimeoutError: it was not complete by then.
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
    """Returns a connection that a package makes without a time limit of its own.

    Raises:
        TimeoutError: it took longer; the connection is closed when it comes.
    """
    made: Queue[Any] = Queue()
    abandoned = Event()

    def run() -> None:
        try:
            found = make()
        except BaseException as error:  # the caller raises it
            made.put((None, error))
            return
        made.put((found, None))
        if abandoned.is_set():
            found.shutdown()

    Thread(target=run, name="connect", daemon=True).start()
    try:
        found, error = made.get(timeout=limit)
    except Empty:
        abandoned.set()
        raise TimeoutError(LATE) from None
    if error is not None:
        raise error
    return found


def why(error: BaseException) -> str:
    """Returns the reason why a cluster does not answer, as a short phrase."""
    import urllib3.exceptions as kinds

    inner = error
    while isinstance(inner, kinds.MaxRetryError) and inner.reason is not None:
        inner = inner.reason
    text = str(inner)
    if isinstance(inner, kinds.ProxyError):
        return "its proxy does not let it through"
    if "Failed to resolve" in text or "[Errno -2]" in text or "nodename nor servname" in text:
        return "there is no host of this name"
    for known in ("Connection refused", "No route to host", "Network is unreachable"):
        if known in text:
            return known.lower()
    if isinstance(inner, kinds.ConnectTimeoutError):
        return "it does not take a connection in time"
    if isinstance(inner, (kinds.ReadTimeoutError, TimeoutError)):
        return LATE
    if isinstance(inner, kinds.SSLError):
        return "its certificate is not trusted" if "CERTIFICATE_VERIFY_FAILED" in text else f"TLS: {text}"
    if isinstance(inner, (kinds.ProtocolError, ConnectionError)):
        return BROKEN_OFF
    return " ".join(text.split())[:200] or type(inner).__name__


def hang_up(response: Any) -> None:
    """Closes a stream, also while another thread reads from it: that one then sees its end."""
    import socket

    with suppress(OSError, ValueError):  # it is closed already
        found = getattr(response.connection, "sock", None)
        if found is not None:
            found.shutdown(socket.SHUT_RDWR)
            return
        # a connection for this answer alone: only the answer has it still
        with socket.socket(fileno=os.dup(response.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def lines_of(response: Any) -> Iterator[bytes]:
    """Yields the lines of a stream as they come, each with its line end; the last may lack its own."""
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
