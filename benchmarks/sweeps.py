"""Duration of the commands for sweeps of many runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from measure import CANNOT, Place, Row, compared, limited, main, paired
from startup import multiply

SLOWEST_SUBMISSION = 5_000
"""Milliseconds of the submission of 10,000 runs."""
OF_LIST = 2.0
"""The time of a query, compared with a list of as many jobs."""


def rows(place: Place) -> Iterator[Row]:
    """Measures a sweep of 10,000 runs."""
    runs, rounds = place.size(10_000, 10), place.size(10, 1)
    home = place.folder / ".torchx"
    app_id = place.submit("utils.echo")
    place.run(place.torchx("log", "--follow", app_id))
    multiply(home, app_id, runs)
    each = ("run", "-s", "local_cwd", "-d", "--each", f"msg=1..{runs}", "utils.echo")
    took = place.run(place.torchx(*each))
    yield limited(
        f"`torchx run --each` of {runs:,} runs", 1000 * took, "ms", SLOWEST_SUBMISSION, floor="", peer=CANNOT
    )
    place.run(place.torchx("cancel", "@last"))
    (folder,) = (home / "sweeps").glob("[!.]*")
    finish(folder, runs)
    listing = place.timed(*place.torchx("list", "-s", "local_cwd"))
    for command in ("status", "results"):
        times = paired(place.timed(*place.torchx(command, "@last")), listing, rounds=rounds)
        yield compared(
            f"`torchx {command}` of {runs:,} ended runs", times, f"`list` of {runs:,} jobs",
            of_floor=OF_LIST, no_peer=CANNOT,
        )  # fmt: skip


def finish(folder: Path, runs: int) -> None:
    """Writes the journal of a sweep whose runs have ended."""
    lines = []
    for number in range(1, runs + 1):
        at = 1.79e9 + number
        lines.append({"e": "begin", "n": number, "id": f"{folder.name}-{number}", "t": at})
        ended = {"e": "end", "n": number, "s": "SUCCEEDED", "t": at + 2, "c": 0, "b": at + 1}
        lines.append({**ended, "u": [4_000_000, 0.5, None]})
    requests = folder / "requests.jsonl"  # none if all runs had ended before the cancellation
    lines.append({"e": "done", "t": 1.8e9, "upto": requests.stat().st_size if requests.exists() else 0})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / "journal.jsonl").write_text(text)


if __name__ == "__main__":
    main(__doc__, rows)
