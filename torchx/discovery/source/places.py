"""Places in user files: how to show them, and which one caused an exception."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.machine.files import FilePath

with lazy_imports:
    import linecache
    import traceback

_LONGEST = 300
_LONGEST_LINE = 80


class Place(NamedTuple):
    """A line of a file.

    Attributes:
        path: the file.
        line: the line, from 1.
        text: the line without its indentation; empty if unreadable.
    """

    path: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        where = f"{shown(self.path)}:{self.line}"
        if len(self.text) <= _LONGEST_LINE:
            text = self.text
        else:
            text = self.text[: _LONGEST_LINE - 1] + "…"
        if text:
            return f"{where}, {text}"
        return where


def shown(path: FilePath) -> str:
    """Returns a path relative to the working directory, else relative to home, else in full.

    >>> shown(Path.cwd() / "train.py")
    'train.py'
    """
    full = Path(path).absolute()
    for base, start in ((_cwd(), ""), (_home(), "~" + os.sep)):
        if base is not None and base != Path(base.anchor) and base in full.parents:
            return f"{start}{full.relative_to(base)}"
    return str(full)


def _cwd() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # the working directory was removed
        return None


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # a user without a home, as in some containers
        return None


def describe_exception(error: BaseException) -> str:
    """Returns the type and the first line of an exception, as one line.

    >>> describe_exception(ValueError("no such city"))
    'ValueError: no such city'
    """
    if isinstance(error, TorchxError):  # already a message for users
        return error.message
    if isinstance(error, SyntaxError):
        text = error.msg
    elif isinstance(error, KeyError) and len(error.args) == 1:
        text = repr(error.args[0])
    else:
        text = str(error)
    first = text.strip().split("\n", 1)[0][:_LONGEST]
    name = type(error).__name__
    if first:
        return f"{name}: {first}"
    return name


def blame(error: BaseException, path: str) -> Place | None:
    """Finds the line of the user's code that an exception comes from.

    This is the innermost line within the folder of ``path``, except installed packages; for a
    syntax error, the line it names.

    Args:
        error: the exception.
        path: the component's file.
    """
    folder = Path(path).absolute().parent
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Place(error.filename, error.lineno, (error.text or "").strip())
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if _is_own(file, folder):
            found = Place(file, line, linecache.getline(file, line).strip())
    return found


def _is_own(file: str, folder: Path) -> bool:
    path = Path(file).absolute()
    return folder in path.parents and "site-packages" not in path.parts and path.exists()
