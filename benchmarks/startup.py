"""Duration of commands and imports, compared with Typer or Python alone and with the peer."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import CANNOT, NOT_MEASURED, Place, Row, compared, limited, main, paired, span

TYPER = "`import typer`"
MOST_OF_DIFF = 300
"""Milliseconds that the comparison of two applications may take."""

PLAIN = "import dataclasses, typing, enum, re"
"""The standard modules that a module of plain data classes needs."""


def rows(place: Place) -> Iterator[Row]:
    """Measures the query commands with 10,000 recorded jobs."""
    app_id = place.submit("--tag", "sweep=1", "utils.echo")
    place.run(place.torchx("log", "--follow", app_id))
    jobs = place.size(10_000, 10)
    multiply(place.folder / ".torchx", app_id, jobs)
    handle = f"local_cwd://torchx/{app_id}"
    rounds = place.size(20, 1)
    import_typer = place.timed(sys.executable, "-c", "import typer")
    for words, of_floor, of_peer, peer in (
        (["--help"], None, 1.0, place.peer_timed("--help")),
        (["status", handle], 1.5, None, None),
        (["list"], 1.4, None, None),
        (["list", "-s", "local_cwd"], None, None, None),
        (["list", "-s", "local_cwd", "--tag", "sweep=1"], None, None, None),
        (["--version"], None, None, place.peer_timed("--version")),
        (["builtins"], None, None, place.peer_timed("builtins")),
        (
            ["run", "-s", "local_cwd", "--dryrun", "utils.echo"],
            None,
            0.45,
            place.peer_timed("run", "-s", "local_cwd", "--dryrun", "utils.echo"),
        ),
    ):
        times = paired(place.timed(*place.torchx(*words)), import_typer, peer, rounds=rounds)
        name = " ".join(words).replace(handle, "HANDLE")
        if words[0] == "list":
            name += f"`, {jobs:,} ended jobs on record`"
        yield compared(
            f"`torchx {name}`".replace("``", ""), times, TYPER, of_floor=of_floor, of_peer=of_peer,
            no_peer=CANNOT if words[0] in ("status", "list") else NOT_MEASURED,
        )  # fmt: skip

    compare = place.torchx("diff", handle, f"{handle[:-6]}000000")
    times = paired(place.timed(*compare), import_typer, rounds=rounds)
    yield limited(
        "`torchx diff A B`", 1000 * statistics.median(times.ours), "ms", MOST_OF_DIFF,
        floor=f"{span(times.floor)} {TYPER}", peer=CANNOT,
    )  # fmt: skip
    yield from imports(place, rounds)


def imports(place: Place, rounds: int) -> Iterator[Row]:
    """Measures the imports of a component file, compared with the standard modules they need."""
    floor = place.timed(sys.executable, "-c", PLAIN)
    peer_python = str(Path(place.peer).parent / "python") if place.peer else None
    for words, of_floor in (
        ("import torchx.specs", 1.5),
        ("from torchx.specs import AppDef, Role, Resource, macros, runopts", 1.5),
        ("import torchx.specs.api", 1.5),
        ("import torchx.runner", None),
    ):
        # -I: the peer's Python must not find our package
        peer = place.timed(peer_python, "-I", "-c", words) if peer_python else None
        times = paired(place.timed(sys.executable, "-c", words), floor, peer, rounds=rounds)
        yield compared(f"`{words}`", times, f"`{PLAIN}`", of_floor=of_floor)


def multiply(home: Path, app_id: str, jobs: int) -> None:
    """Records copies of an ended job, under other ids."""
    files = {path.name: path.read_text() for path in (home / "jobs" / app_id).iterdir() if path.is_file()}
    line = (home / "ended.jsonl").read_text()
    lines = []
    for number in range(jobs - 1):
        new = f"{app_id[:-6]}{number:06}"
        folder = home / "jobs" / new
        folder.mkdir(mode=0o700)
        for name, text in files.items():
            (folder / name).write_text(text.replace(app_id, new))
        lines.append(line.replace(app_id, new))
    with open(home / "ended.jsonl", "a") as file:
        file.writelines(lines)


if __name__ == "__main__":
    main(__doc__, rows)
