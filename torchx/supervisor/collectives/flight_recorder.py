"""PyTorch's flight recorder: which rank has not entered which collective.

It is switched on by variables. A byte in a pipe requests the dump of a rank; ``fr_trace``, of the PyTorch
that the ranks run, compares the dumps.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torchx.machine import files

DUMP, PIPE = "fr_", "dump-"
"""Beginnings of the names of dumps and pipes, which the rank follows."""

ENTRIES = "2000"
"""Collectives that are recorded for each rank."""

DUMPED_WITHIN = 15.0
"""Maximum seconds for dumps; PyTorch reads its pipe once per second."""

READ_WITHIN = 120.0
"""Maximum seconds to compare the dumps, of which PyTorch takes some to start."""

MOST_TEXT = 1 << 20

READER = Path(__file__).with_name("reader.py")
"""The program that the Python of the ranks runs."""

_GROUP = r"group info: (?:\S*?:)?(\S+)"
_SEQUENCE = r"sequence number: (\d+)"
_COLLECTIVE = r"collective: (?:\w+:)?(\w+)$"
_MISSING = r"missing ranks: \{(.*)\}"
_CULPRIT = r"Culprit rank (\d+); ([^,]*)"


def variables(folder: Path) -> dict[str, str]:
    """Returns the variables that switch it on.

    Args:
        folder: the folder for dumps.
    """
    return {
        "TORCH_FR_BUFFER_SIZE": ENTRIES,
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/{DUMP}",
        # the names of these variables before PyTorch 2.9, and those that only NCCL has
        "TORCH_NCCL_TRACE_BUFFER_SIZE": ENTRIES,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/{DUMP}",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/{PIPE}",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }


def request_dumps(folder: Path) -> list[Path]:
    """Requests the dumps of all ranks and waits for them; returns those that were written."""
    before = time.time_ns()
    expected = [folder / f"{DUMP}{rank}" for rank in _ranks_with_pipe(folder)]
    end = time.monotonic() + DUMPED_WITHIN
    sizes: dict[Path, int] = {}
    while time.monotonic() < end:
        current = {path: size for path in expected if (size := _size(path, before))}
        if len(current) == len(expected) and current == sizes:
            break  # no longer growing
        sizes = current
        time.sleep(0.1)
    return sorted(sizes)


def _ranks_with_pipe(folder: Path) -> list[str]:
    """Writes to the pipe of each rank that reads it; returns these ranks."""
    ranks = []
    for path in sorted(folder.glob(f"{PIPE}*.pipe")):
        with suppress(OSError):  # without a reader: an earlier attempt
            status = path.lstat()
            if not stat.S_ISFIFO(status.st_mode) or status.st_uid != os.geteuid():
                continue
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                os.write(descriptor, b"1\n")
            finally:
                os.close(descriptor)
            ranks.append(path.name[len(PIPE) : -len(".pipe")])
    return ranks


def _size(path: Path, since: int) -> int:
    """Returns the size of a dump; 0 if it was written before a time."""
    try:
        status = path.lstat()
    except OSError:
        return 0
    # the clock of a file system is some milliseconds behind
    if status.st_mtime_ns >= since - 50_000_000:
        return status.st_size
    return 0


def interpreter_of(pid: int) -> str:
    """Returns the Python of a process, that of its virtual environment if it has one; empty for no Python."""
    try:
        program = Path(f"/proc/{pid}/exe").readlink()
        first = files.read_file(f"/proc/{pid}/cmdline", 1 << 20, own=False).split(b"\0")[0]
    except OSError:
        return ""
    if "python" not in program.name.lower():
        return ""
    given = Path(os.fsdecode(first))
    with suppress(OSError):
        if given.is_absolute() and given.samefile(program):
            return str(given)
    return str(program)


def compare(folder: Path, dumps: Sequence[Path], pids: Sequence[int]) -> str:
    """Compares dumps by the Python of a rank; returns the text of ``fr_trace``, empty if it cannot run.

    Args:
        folder: a folder for a temporary copy of the dumps.
        dumps: the dumps.
        pids: processes of ranks.
    """
    python = next(filter(None, map(interpreter_of, pids)), "")
    if not python or not dumps:
        return ""
    source = READER.read_text(encoding="utf-8")
    argv = [python, "-c", source, str(folder), DUMP, *map(str, dumps)]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=READ_WITHIN, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr)[:MOST_TEXT].decode("utf-8", "replace")


def findings(text: str) -> list[str]:
    """Returns the ranks that have not entered a collective, and those that entered another one.

    Args:
        text: the output of ``fr_trace``.

    >>> findings('''Not all ranks joining collective, sequence number: 2
    ... group info: 0:default_pg
    ... collective: gloo:all_reduce
    ... missing ranks: {1}''')
    ['rank 1 has not entered all_reduce, collective 2 of default_pg']
    """
    found: list[str] = []
    sequence = group = collective = ""
    for line in text.splitlines():
        if (match := re.search(_SEQUENCE, line)) is not None:
            sequence, group, collective = match[1], "", ""
        elif (match := re.match(_GROUP, line)) is not None:
            group = match[1]
        elif (match := re.match(_COLLECTIVE, line)) is not None:
            collective = match[1]
        elif (match := re.match(_MISSING, line)) is not None:
            ranks = sorted(map(int, re.findall(r"\d+", match[1])))
            if len(ranks) == 1:
                who = f"rank {ranks[0]} has"
            else:
                who = f"ranks {', '.join(map(str, ranks))} have"
            found.append(f"{who} not entered {collective}, collective {sequence} of {group}")
        elif "Culprit rank" in line:
            found += [
                f"rank {rank} has not entered {collective}, collective {sequence} of {group}, but another one"
                for rank, _ in re.findall(_CULPRIT, line)
            ]
    return list(dict.fromkeys(found))
