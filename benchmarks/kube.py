"""Duration and size of requests for Kubernetes, by number of replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measure import NOT_MEASURED, Place, Row, compared, limited, main, paired

ONE = "the same with 1 replica"


def rows(place: Place) -> Iterator[Row]:
    """Measures dry-runs of 1,000 and 10,000 replicas, and of a single one."""
    one = words(1)
    output = place.folder / "manifests.yaml"
    place.run(place.torchx(*one), output)
    small = size_of(output)
    for replicas in (place.size(1000, 10), place.size(10_000, 100)):
        many = words(replicas)
        times = paired(
            place.timed(*place.torchx(*many)), place.timed(*place.torchx(*one)), rounds=place.size(15, 1)
        )
        yield compared(
            f"`torchx run -s kubernetes --dryrun`, {replicas:,} replicas", times, ONE, of_floor=1.1
        )
        place.run(place.torchx(*many), output)
        yield limited(
            f"the manifests of {replicas:,} replicas", size_of(output), "kB", 10,
            floor=f"{small:.1f} kB {ONE}", peer=NOT_MEASURED,
        )  # fmt: skip


def words(replicas: int) -> list[str]:
    """Returns the command line of a dry run."""
    return [
        "run", "-s", "kubernetes", "--dryrun", "-o", "yaml",
        "dist.torchrun", "-j", f"{replicas}x8", "--gpu", "8", "--script", "train.py",
    ]  # fmt: skip


def size_of(file: Path) -> float:
    """Returns the size of a file in kB."""
    return file.stat().st_size / 1000


if __name__ == "__main__":
    main(__doc__, rows)
