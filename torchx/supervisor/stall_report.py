"""Program that takes the stacks of a stalled job, and writes them beside its logs."""

from __future__ import annotations

import json
from pathlib import Path

from torchx.jobs.paths import LogPaths
from torchx.machine import files, stack_taker
from torchx.scheduling.stacks import parse_stacks
from torchx.scheduling.stacks_text import as_text


def main(argv: list[str]) -> None:
    """Writes the stacks as text and as JSON.

    Args:
        argv: the handle of the job, and the folder of its logs.
    """
    logs = LogPaths(Path(argv[1]))
    stacks = parse_stacks(json.dumps(stack_taker.take(argv[0])))
    files.write_file(logs.stacks.with_suffix(".json"), json.dumps(stacks.to_json()).encode())
    # last: a reader that finds it finds the other one too
    files.write_file(logs.stacks, "\n".join([*as_text(stacks), ""]).encode("utf-8", "surrogateescape"))
