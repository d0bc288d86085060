"""Program that writes the report about a stalled job: stacks, and the ranks of stalled collectives."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from torchx.jobs.paths import LogPaths
from torchx.machine import files, stack_taker
from torchx.scheduling.stacks import AppStacks, parse_stacks
from torchx.scheduling.stacks_text import as_text
from torchx.supervisor.collectives import flight_recorder, nccl_ras

LACKS_STACKS = 3
"""Exit code: py-spy could not read a Python program."""


def main(argv: list[str]) -> None:
    """Writes the report; exits with :data:`LACKS_STACKS` if stacks are missing.

    Args:
        argv: the handle of the job, the folder of its logs, and the port of its NCCL; 0 for none.
    """
    folder = Path(argv[1])
    stacks = parse_stacks(json.dumps(stack_taker.take(argv[0])))
    write(folder, stacks)
    found = [*_of_flight_recorder(LogPaths(folder), stacks), *_of_nccl(LogPaths(folder), int(argv[2]))]
    if found:
        write(folder, stacks, found)
    finish(stacks)


def _of_flight_recorder(logs: LogPaths, stacks: AppStacks) -> list[str]:
    """Returns the findings of PyTorch's flight recorder, whose output is stored beside the stacks."""
    text = ""
    for folder in sorted(logs.flight_recorder.glob("*/")):
        dumps = flight_recorder.request_dumps(folder)
        pids = [process.pid for process in stacks.processes if process.rank is not None]
        text += flight_recorder.compare(folder, dumps, pids or [p.pid for p in stacks.processes])
    if text:
        files.write_file(logs.flight_recorder.with_suffix(".txt"), text.encode("utf-8", "surrogateescape"))
    return flight_recorder.findings(text)


def _of_nccl(logs: LogPaths, port: int) -> list[str]:
    """Returns the findings of NCCL, whose answer is stored beside the stacks."""
    text = nccl_ras.query(port) if port else ""
    if text:
        files.write_file(logs.folder / "nccl_ras.txt", text.encode("utf-8", "surrogateescape"))
    return nccl_ras.findings(text)


def finish(stacks: AppStacks) -> None:
    """Exits with :data:`LACKS_STACKS` if stacks of a Python program are missing."""
    if stacks.notes or any(process.note and not process.threads for process in stacks.processes):
        sys.exit(LACKS_STACKS)


def write(folder: Path, stacks: AppStacks, findings: Sequence[str] = ()) -> None:
    """Writes a report as text and as JSON.

    Args:
        folder: the folder of the logs.
        stacks: the stacks.
        findings: other sources' conclusions, a line each, which precede the stacks.
    """
    logs = LogPaths(folder)
    data = {**stacks.to_json(), "findings": list(findings)}
    files.write_file(logs.stacks.with_suffix(".json"), json.dumps(data).encode())
    # last: a reader that finds it finds the other one too
    text = "\n".join([*findings, *([""] if findings else []), *as_text(stacks), ""])
    files.write_file(logs.stacks, text.encode("utf-8", "surrogateescape"))
