"""Runs a command in a process of its own, which ends with the call, and reads its output up to a limit."""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import anyio
from anyio.abc import ByteReceiveStream, Process

from torchx.excerpts import plain_line
from torchx.json_limits import without_none
from torchx.supervisor.process import python_command
from torchx_cli.mcp import paging
from torchx_cli.terminal.masking import mask, mask_text

MOST_OUTPUT = 1 << 25
"""Maximum bytes of the output of a command as a whole."""

MOST_ERRORS = 1 << 14
"""Maximum bytes of the messages of a command; the last ones are kept."""

MOST_LINE = 1 << 20
"""Maximum bytes of a line; the beginning is kept."""

LONGEST_LINE = 600
"""Maximum characters of a line of a log."""


class Reader(Protocol):
    """Reads the output of a command."""

    def feed(self, data: bytes) -> bool:
        """Takes a part of the output; returns False if no more is needed."""


class Whole:
    """Keeps the whole output up to a limit."""

    def __init__(self) -> None:
        self.data = bytearray()

    def feed(self, data: bytes) -> bool:
        """Takes a part of the output."""
        self.data += data
        return len(self.data) <= MOST_OUTPUT


class Lines:
    """Keeps as many lines as fit into an answer.

    Args:
        skipped: the number of lines before the first one.
        last: keep the last lines instead of the first ones.
    """

    def __init__(self, skipped: int = 0, *, last: bool = False) -> None:
        self._skipped, self._last = skipped, last
        self._rest = b""
        self._size = 0
        self.lines: deque[Any] = deque()
        self.begin = skipped
        self.is_cut = False

    def feed(self, data: bytes) -> bool:
        """Takes a part of the output; returns False when the answer is full."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:MOST_LINE]
        return all(self._add(line) for line in lines)

    def end(self) -> None:
        """Takes the last line, which may lack its end."""
        if self._rest and not self.is_cut:
            self._add(self._rest)

    def _add(self, line: bytes) -> bool:
        if self._skipped:
            self._skipped -= 1
            return True
        item = _item(line.decode("utf-8", "replace"))
        size = paging.size(item) + 1
        if self.lines and self._size + size > paging.LARGEST and not self._last:
            self.is_cut = True
            return False
        self.lines.append(item)
        self._size += size
        while self._size > paging.LARGEST and len(self.lines) > 1:
            self._size -= paging.size(self.lines.popleft()) + 1
            self.begin += 1
            self.is_cut = True
        return True


def _item(text: str) -> Any:
    """Returns a JSON object of a log as a short line, and another one as data."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = text  # a part of an error, or too long
    if not isinstance(data, dict):
        return _short(text)
    if "line" not in data:
        return paging.shortened(mask(without_none(data)))
    return _short(f"{data.get('role')}/{data.get('replica')} | {data['line']}")


def _short(text: str) -> str:
    line = mask_text(plain_line(text))
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[: LONGEST_LINE - 2]}.."


class Ended(NamedTuple):
    """The end of a command.

    Attributes:
        code: its exit code; None if not all of its output was needed.
        errors: its messages on stderr.
    """

    code: int | None
    errors: str


async def run(argv: Sequence[str], reader: Reader) -> Ended:
    """Runs a command line of this program; ends it when the call is cancelled, or the reader has enough."""
    command = python_command("torchx_cli.mcp.child", [], isolated=False)
    process = await anyio.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = bytearray()
    try:
        # a process that has failed to start has printed the reason
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.send(json.dumps(list(argv)).encode() + b"\n")
        async with anyio.create_task_group() as group:
            group.start_soon(_read_errors, process.stderr, errors)
            complete = await _feed(process.stdout, reader)
            if not complete:
                group.cancel_scope.cancel()
        code = await process.wait() if complete else None
    finally:
        await _end(process)
    return Ended(code, errors.decode("utf-8", "replace"))


async def _feed(stream: ByteReceiveStream, reader: Reader) -> bool:
    async for data in stream:
        if not reader.feed(data):
            return False
    return True


async def _read_errors(stream: ByteReceiveStream, errors: bytearray) -> None:
    async for data in stream:
        errors += data
        del errors[:-MOST_ERRORS]


async def _end(process: Process) -> None:
    """Ends a process, if it runs, and closes its pipes."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()
        await process.aclose()
