"""The files in which a script writes its progress: the numbers of its attempt and run, and its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from torchx.schedulers.shared.batch.paths import BatchPaths, read_own
from torchx.schedulers.shared.batch.record import LATEST


class ScriptEnd(NamedTuple):
    """End of a script, as written by the script.

    Attributes:
        code: exit code.
        at: time of the end, in seconds since the epoch.
        roles: number of roles known to have ended; 0 for scripts of earlier versions.
    """

    code: int
    at: float
    roles: int = 0

    @property
    def proved(self) -> bool:
        """True if each role is known to have ended with 0."""
        return self.code == 0 and self.roles > 0


def read_script_end(paths: BatchPaths) -> ScriptEnd | None:
    """Returns the end of the script, or None if it has not ended."""
    match = re.fullmatch(_SCRIPT_END, read_own(paths.over) or b"")
    if match is None or float(match[2]) >= LATEST:
        return None
    return ScriptEnd(int(match[1]), float(match[2]), int(match[3] or 0))


_SCRIPT_END = re.compile(rb"\s*[0-9]{1,18} ([0-9]{1,3}) ([0-9]{1,12})(?: ([0-9]{1,6}))?\s*")


def attempts_of(paths: BatchPaths) -> int:
    """Returns the number of the current attempt of the job, or 0 before its start."""
    return _number_in(paths.attempt)


def run_of(paths: BatchPaths) -> int:
    """Returns the number of the current run of the job, from 1."""
    return max(_number_in(paths.run), 1)


def _number_in(path: Path) -> int:
    match = None
    if data := read_own(path):
        match = re.fullmatch(rb"\s*([0-9]{1,9})\s*", data)
    if match:
        return int(match[1])
    return 0
