"""Program that takes the stacks of a stalled job, and writes them beside its logs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from torchx.jobs.paths import LogPaths
from torchx.machine import files, stack_taker
from torchx.scheduling.stacks import AppStacks, parse_stacks
from torchx.scheduling.stacks_text import as_text

LACKS_STACKS = 3
"""Exit code: py-spy could not read a Python program."""


def main(argv: list[str]) -> None:
    """Writes the stacks as text and as JSON; exits with :data:`LACKS_STACKS` if some are missing.

    Args:
        argv: the handle of the job, and the folder of its logs.
    """
    write(Path(argv[1]), parse_stacks(json.dumps(stack_taker.take(argv[0]))))


def write(folder: Path, stacks: AppStacks) -> None:
    """Writes a report as text and as JSON; exits with :data:`LACKS_STACKS` if stacks are missing.

    Args:
        folder: the folder of the logs.
        stacks: the stacks.
    """
    logs = LogPaths(folder)
    files.write_file(logs.stacks.with_suffix(".json"), json.dumps(stacks.to_json()).encode())
    # last: a reader that finds it finds the other one too
    files.write_file(logs.stacks, "\n".join([*as_text(stacks), ""]).encode("utf-8", "surrogateescape"))
    if stacks.notes or any(process.note and not process.threads for process in stacks.processes):
        sys.exit(LACKS_STACKS)
