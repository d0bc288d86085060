"""Processor instructions of commands, which do not depend on the load of the machine.

`run` is missing: valgrind 3.19 does not know the system calls that start a job.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

from measure import CANNOT, NOT_MEASURED, Place, Row, limited, main

DRY_RUN = ("run", "-s", "local_cwd", "--dryrun", "utils.echo")


def missing() -> str:
    """Returns the requirement that this machine lacks."""
    if shutil.which("valgrind") is None:
        return "valgrind counts the instructions; install it with: apt install valgrind"
    return ""


def rows(place: Place) -> Iterator[Row]:
    """Counts the instructions of the process of a command, without those of its children."""
    app_id = place.submit("utils.echo")
    place.run(place.torchx("log", "--follow", app_id))
    handle = f"local_cwd://torchx/{app_id}"
    floor = f"{counted(place, [sys.executable, '-c', 'import typer']):.0f} million `import typer`"
    commands: list[tuple[Sequence[str], int, bool]] = [
        (["--help"], 270, True),
        (["status", handle], 380, False),
        (["list", "-s", "local_cwd"], 380, False),
        (["log", handle], 380, False),
        (DRY_RUN, 480, True),
    ]
    for arguments, most, peer_can in commands[: place.size(len(commands), 2)]:
        peer = CANNOT
        if peer_can:
            peer = NOT_MEASURED
            if place.peer is not None:
                peer = f"{counted(place, [place.peer, *arguments]):.0f} million"
        name = " ".join(arguments).replace(handle, "HANDLE")
        ours = counted(place, place.torchx(*arguments))
        yield limited(f"`torchx {name}`", ours, "million", most, floor=floor, peer=peer)


def counted(place: Place, command: Sequence[str]) -> float:
    """Returns the instructions of a command in millions; its first run writes the bytecode of its modules."""
    place.run(command)
    program = shutil.which(command[0], path=place.env["PATH"]) or command[0]
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, *command[1:]],
        env=place.env, cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None or done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} was not measured: {done.stderr[-500:]}")
    return int(found[1]) / 1e6


if __name__ == "__main__":
    main(__doc__, rows, missing)
