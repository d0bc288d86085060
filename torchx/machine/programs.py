"""Programs of this machine: why a file that exists cannot be started."""

from __future__ import annotations

import os
import re
from pathlib import Path

from torchx.machine import files

LONGEST_FIRST_LINE = 256
"""The bytes of a script's first line that Linux reads."""

WINDOWS = "has line ends of Windows, so its interpreter is not found; convert it, e.g. with dos2unix"


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
    # the kernel separates only by spaces and tabs, and a text of it ends with a zero byte
    line = re.split(rb"[\n\0]", head[2:])[0].strip(b" \t")
    if not line.strip():
        return "has a first line without an interpreter"
    interpreter, *arguments = (os.fsdecode(part) for part in re.split(rb"[ \t]+", line))
    if interpreter.endswith("/env") and len(arguments) == 1 and arguments[0].endswith("\r"):
        return WINDOWS
    if not interpreter.startswith("/"):
        return ""  # relative to the folder in which it starts
    try:
        Path(interpreter).stat()
    except (FileNotFoundError, NotADirectoryError):
        if interpreter.endswith("\r"):
            return WINDOWS
        return f"needs the interpreter {interpreter}, which does not exist"
    except OSError:
        return ""  # unknown, such as in a folder of another user
    return ""
