"""The background processes of the user on this machine."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from torchx.machine import processes
from torchx.printable import counted, few, memory_size
from torchx.scheduling.findings import Finding, Verdict

MOST_NAMES = 5
"""Maximum applications that are named for one kind of process."""

_STARTED = r"; from (torchx(?:_cli)?(?:\.\w+)+) import main; main\(sys\.argv\[1:\]\)"
"""The code of a process that :func:`torchx.supervisor.process.python_command` starts."""


class Background(NamedTuple):
    """A background process.

    Attributes:
        module: the module that it runs.
        subject: the application, sweep or folder that it works for; may be empty.
        memory: its resident memory in bytes.
    """

    module: str
    subject: str
    memory: int


def running() -> Iterator[Background]:
    """Yields the background processes of the user; yields none without /proc."""
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in processes.table():
        place = f"/proc/{entry.process.pid}"
        try:
            if os.stat(place).st_uid != os.geteuid():  # noqa: PTH116
                continue
        except OSError:  # it has ended
            continue
        arguments = os.fsdecode(processes.read_proc(f"{place}/cmdline")).split("\0")
        for index, argument in enumerate(arguments):
            started = re.search(_STARTED, argument)
            if started is not None and index and arguments[index - 1] == "-c":
                # behind the code: the folder of this package, then the arguments of `main`
                paths = [Path(path) for path in arguments[index + 2 :] if path.startswith("/")]
                yield Background(started[1], paths[0].name if paths else "", entry.pages * page)
                break


def findings() -> list[Finding]:
    """Returns one finding for each kind of process: number, memory, applications, purpose."""
    kinds: dict[str, list[Background]] = {}
    for process in running():
        kinds.setdefault(process.module, []).append(process)
    if not kinds:
        return [Finding("none", Verdict.ABSENT, "no job, sweep or notification needs one")]
    return [_finding(module, kinds[module]) for module in sorted(kinds)]


def _finding(module: str, members: list[Background]) -> Finding:
    count = counted(len(members), "process", "processes")
    memory = memory_size(sum(process.memory for process in members))
    subjects = sorted({process.subject for process in members if process.subject})
    text = f"{count}, {memory}" + (f", for {few(subjects, MOST_NAMES)}" if subjects else "")
    text = ". ".join(part for part in (text, _purpose(module)) if part)
    return Finding(module.removesuffix(".__main__").rpartition(".")[2], Verdict.GOOD, text)


def _purpose(module: str) -> str:
    """Returns the first line of a module's documentation, without importing it; empty if it is not found."""
    try:
        spec = find_spec(module)
        source = ""
        if spec and spec.origin:
            source = Path(spec.origin).read_text(encoding="utf-8")
        documentation = ast.get_docstring(ast.parse(source)) or ""
    except (OSError, ImportError, SyntaxError, ValueError):  # of another version
        return ""
    return documentation.partition("\n")[0].rstrip(".")
