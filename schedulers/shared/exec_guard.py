"""Ends a program that `torchx exec` runs in a container when the command line is killed.

Engines leave such a program running when the connection ends. So a second one, a shell, runs beside it, whose
input ends with the connection: then it ends all processes that have a mark in their environment.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from torchx.errors import StateError

VARIABLE = "TORCHX_EXEC_ID"
"""The variable with the mark of a program and its descendants."""

AFTER = 0.2
"""Seconds after which a program has a guard; most programs have ended by then."""

LONGEST_START = 10.0
"""Maximum seconds to wait at the end of a program for a guard that starts."""

ENDED = b"ended\n"
"""The message to a guard that its program has ended."""

# busybox's grep reads only to the first NUL
_SCRIPT = r"""
read -r ended && exit
for signal in HUP TERM TERM TERM TERM KILL; do
    found=
    for file in /proc/[0-9]*/environ; do
        tr '\000' '\n' < "$file" | grep -qxF -e "$0" || continue
        found=1 pid=${file#/proc/}
        kill -s "$signal" "${pid%/*}"
    done
    test -n "$found" || exit
    sleep 1
done 2> /dev/null
"""

# the environment of the container would make the shell a process of the application
_START = 'export TORCHX_JOB_ID=; exec sh -c "$@"'


class Channel(Protocol):
    """The input of the program that guards another one."""

    def finish(self, data: bytes) -> None:
        """Sends data, and returns when the program has ended or after a short time."""

    def close(self) -> None:
        """Ends the connection."""


def new_mark() -> str:
    """Returns an environment variable with its value that marks a program."""
    return f"{VARIABLE}={os.urandom(12).hex()}"


class Guard:
    """Context manager: guards a program while it runs, in a container with a shell, grep and tr.

    Args:
        mark: the mark of the program.
        start: runs a command beside the program, and returns its input.
    """

    def __init__(self, mark: str, start: Callable[[list[str]], Channel]) -> None:
        self._mark, self._start = mark, start
        self._over, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="exec guard", daemon=True)

    def __enter__(self) -> Guard:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = kind is None
        self._over.set()
        if self._ended:
            self._thread.join(LONGEST_START)

    def _run(self) -> None:
        if self._over.wait(AFTER):
            return
        try:
            channel = self._start(["sh", "-c", _START, "sh", _SCRIPT, self._mark])
        except StateError:
            return  # the program runs without it
        try:
            self._over.wait()
            if self._ended:
                channel.finish(ENDED)
        except OSError:
            return  # the container has ended
        finally:
            channel.close()
