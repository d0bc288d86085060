"""Duration and size of the views of applications with many replicas."""

from __future__ import annotations

from collections.abc import Iterator

from measure import CANNOT, Place, Row, limited, main, paired, span

SLOWEST, LARGEST = 2_000, 3.0
"""Milliseconds and megabytes of a report."""


def rows(place: Place) -> Iterator[Row]:
    """Measures views of 1,000 replicas."""
    replicas = place.size(1000, 5)
    yield from report(place, replicas)


def report(place: Place, replicas: int) -> Iterator[Row]:
    """Measures a report of an ended application: its duration and its size."""
    app_id = place.submit("utils.sh", "--num_replicas", str(replicas), "sleep 3")
    place.run(place.torchx("log", "--follow", app_id))
    page, output = place.folder / "run.html", place.folder / "output"
    command = place.torchx("report", app_id, "-o", str(page))
    describe = place.torchx("describe", app_id, "-o", "json")
    times = paired(
        lambda: place.run(command, output), lambda: place.run(describe, output), rounds=place.size(5, 1)
    )
    what = f"`torchx report HANDLE` of {replicas:,} replicas"
    took = sorted(times.ours)[len(times.ours) // 2] * 1000
    yield limited(what, took, "ms", SLOWEST, floor=f"{span(times.floor)} `describe -o json`", peer=CANNOT)
    yield limited("its page", page.stat().st_size / 1e6, "MB", LARGEST, floor="", peer=CANNOT)


if __name__ == "__main__":
    main(__doc__, rows)
