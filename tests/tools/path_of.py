"""Counts how far a command goes: the files that it touches, and the calls from one part to another.

Call it as ``python path_of.py ROOT COMMAND...``; the last line on stderr is JSON. A part is a folder of
`torchx` or `schedulers`, or the command line. Calls of the loader of lazy modules, and of the bodies of
modules and classes, are left out.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

LOADER = "torchx/lazy.py"


class Counter:
    """Counts the calls of functions of this project.

    Args:
        root: its folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = f"{root.resolve()}/"
        self._files: dict[CodeType, str] = {}
        self.touched: set[str] = set()
        self.crossings = 0

    def count(self, frame: FrameType, event: str, arg: Any) -> None:
        """Counts a call; as for ``sys.setprofile``."""
        name = frame.f_code.co_name
        is_function = name == "<lambda>" or not name.startswith("<")  # not a part of one
        if event != "call" or not is_function or not self._file(frame.f_code):
            return
        file = self._file(frame.f_code)
        self.touched.add(file)
        caller = frame.f_back
        while caller is not None and not self._file(caller.f_code):
            caller = caller.f_back
        if caller is not None:
            self.crossings += part(self._file(caller.f_code)) != part(file)

    def _file(self, code: CodeType) -> str:
        """Returns the file of a function of this project; empty for others."""
        file = self._files.get(code)
        if file is None:
            file = ""
            path = os.path.realpath(code.co_filename)
            own = Path(code.co_filename).is_absolute() and path.startswith(self._root)
            if own and "site-packages" not in path and code.co_flags & CO_OPTIMIZED:
                file = path.removeprefix(self._root)
            if file == LOADER or file.startswith("tests/"):
                file = ""
            self._files[code] = file
        return file


def part(file: str) -> str:
    """Returns the part that a file belongs to.

    >>> part("torchx/jobs/view.py"), part("torchx/errors.py"), part("torchx_cli/terminal/output.py")
    ('torchx/jobs', 'torchx', 'torchx_cli')
    """
    folder, _, rest = file.partition("/")
    if folder in ("torchx", "schedulers") and "/" in rest:
        return f"{folder}/{rest.partition('/')[0]}"
    return folder


def main() -> None:
    """Runs a command, and prints its counts."""
    root = Path(sys.argv[1])
    sys.path.insert(0, str(root))
    from torchx_cli import __main__

    counter = Counter(root)

    def report() -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # None ends it
        data = {"files": sorted(counter.touched), "crossings": counter.crossings}
        sys.stderr.write(f"\n{json.dumps(data)}\n")

    atexit.register(report)
    sys.argv = ["torchx", *sys.argv[2:]]
    threading.setprofile(counter.count)
    sys.setprofile(counter.count)
    __main__.program()


if __name__ == "__main__":
    main()
