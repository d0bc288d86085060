"""Asyncio support: blocking calls that do not delay cancellation, and live log lines.

The methods of a runner block. ``asyncio.to_thread`` makes them awaitable, but its threads are joined when the
loop ends: a task that was cancelled while it waited for a job keeps ``asyncio.run`` from returning until the
job ends. The threads of these two functions are never joined::

    status = await aio.call(runner.wait, handle)
    async for line in aio.each(runner.log_lines(handle, "trainer", should_tail=True)):
        ...
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

AHEAD = 1000
"""The number of items that a thread of :func:`each` reads ahead."""


async def call(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a blocking call in a separate thread, and returns its result.

    When the task is cancelled, the thread is not joined: the call continues, its result is discarded. So a
    cancelled wait ends immediately and leaves the job running; a cancelled submission may still submit.

    Args:
        function: the function.
        args: its arguments.
        kwargs: its arguments by name.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()
    name = getattr(function, "__name__", "call")

    def set_outcome(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return  # cancelled in the meantime
        if error is None:
            result.set_result(value)  # type: ignore[arg-type]  # T may be None itself
        else:
            result.set_exception(error)

    def work() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = context.run(function, *args, **kwargs)
        except StopIteration as caught:  # futures reject it
            error = RuntimeError(f"{name} has nothing more")
            error.__cause__ = caught
        except BaseException as caught:  # raised in the awaiting task
            error = caught
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(set_outcome, value, error)

    threading.Thread(target=work, name=f"torchx {name}", daemon=True).start()
    return await result


async def each(items: Iterable[T]) -> AsyncIterator[T]:
    """Yields the items of a blocking iterable, which a separate thread reads.

    When the task is cancelled, or stops reading, the thread ends at the next item, or at the end of the job.

    Args:
        items: the iterable, such as ``Runner.log_lines``.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Queue[tuple[T | None, BaseException | None, bool]] = asyncio.Queue()
    room = threading.Semaphore(AHEAD)
    stop = threading.Event()

    def give(item: T | None, error: BaseException | None, last: bool) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(found.put_nowait, (item, error, last))

    def read() -> None:
        try:
            for item in items:
                room.acquire()
                if stop.is_set():
                    return
                give(item, None, False)
        except BaseException as error:  # raised in the reading task
            give(None, error, True)
        else:
            give(None, None, True)
        finally:
            if isinstance(items, Generator):
                items.close()  # releases its resources immediately

    threading.Thread(target=read, name="torchx each", daemon=True).start()
    try:
        while True:
            item, error, last = await found.get()
            if error is not None:
                raise error
            if last:
                return
            room.release()
            yield item  # type: ignore[misc]  # T may be None itself
    finally:
        stop.set()
        room.release()
