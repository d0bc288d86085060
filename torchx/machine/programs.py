"""Programs of this machine: why a file that exists cannot be started."""

from __future__ import annotations

import os
from pathlib import Path

from torchx.machine import files

LONGEST_FIRST_LINE = 256
"""The bytes of a script's first line that Linux reads."""


def defect_of_script(path: Path) -> str:
    """Returns why an executable file that exists cannot be started; empty if its #! is no reason."""
    try:
        descriptor = files.open_file(path, own=False, follow=True)
        try:
            head = os.read(descriptor, LONGEST_FIRST_LINE)
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    if not head.startswith(b"#!"):
        return ""
    line = head[2:].split(b"\n")[0]
    parts = line.split()
    if not parts:
        return "has a first line without an interpreter"
    interpreter = os.fsdecode(parts[0])
    if line.endswith(b"\r"):
        return "has line ends of Windows, so its interpreter is not found; convert it, e.g. with dos2unix"
    return "" if Path(interpreter).exists() else f"needs the interpreter {interpreter}, which does not exist"
