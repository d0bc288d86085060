"""Duration and size of scripts for Slurm, by number of replicas."""

from __future__ import annotations

from collections.abc import Iterator

from measure import NOT_MEASURED, Place, Row, compared, limited, main, paired

ONE = "the same with 1 replica"


def rows(place: Place) -> Iterator[Row]:
    """Measures dry-runs of 1,000 and 10,000 replicas, and of a single one."""
    one = words(1)
    output = place.folder / "script"
    place.run(place.torchx(*one), output)
    small = output.stat().st_size / 1000
    for replicas in (place.size(1000, 10), place.size(10_000, 100)):
        many = words(replicas)
        times = paired(
            place.timed(*place.torchx(*many)), place.timed(*place.torchx(*one)), rounds=place.size(15, 1)
        )
        yield compared(f"`torchx run -s slurm --dryrun`, {replicas:,} replicas", times, ONE, of_floor=1.1)
        place.run(place.torchx(*many), output)
        yield limited(
            f"application and script of {replicas:,} replicas", output.stat().st_size / 1000, "kB", 20,
            floor=f"{small:.1f} kB {ONE}", peer=NOT_MEASURED,
        )  # fmt: skip


def words(replicas: int) -> list[str]:
    """Returns the command line of a dry run."""
    job = ("dist.torchrun", "-j", f"{replicas}x8", "--gpu", "8", "--script", "train.py")
    return ["run", "-s", "slurm", "--dryrun", *job]


if __name__ == "__main__":
    main(__doc__, rows)
