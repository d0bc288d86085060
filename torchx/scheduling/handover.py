"""The end of a program that runs before that of a replica: it reports a failure, or becomes that program.

It is a part of the sources of such programs, see preflight.py, and works with Python 3.8.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import NoReturn


def note(line: str) -> None:
    """Writes a line to the error output."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def fail(line: str, code: int) -> NoReturn:
    """Reports a failure, also as the error of the replica, and ends this process."""
    note(line)
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        details = {"message": line, "extraInfo": {"timestamp": str(int(time.time()))}}
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump({"message": details}, file)
        except OSError:
            pass
    os._exit(code)


def own_environment() -> dict[bytes, bytes]:
    """Returns the environment that this process was started with; Python may have added a locale."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
            return {name: value for name, _, value in entries}
    except OSError:
        return dict(os.environb)


def become(command: list[str], environment: Mapping[bytes, bytes]) -> NoReturn:
    """Becomes a program; ends with the exit code of a shell if it cannot be run."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):  # Python ignores the first two
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - no shell
    except OSError as error:
        note(f"{command[0]}: {error.strerror}")
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
