"""The flags of `torchx run` for sweeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from torchx.command_line import ArgumentError
from torchx.errors import UsageError
from torchx_cli.flags import SWEEP, count, option, switch

Each = Annotated[
    list[str],
    option(
        "--each",
        metavar="NAME=VALUES",
        help="Run once for each value: lr=1e-3,3e-4, seed=1..3, or @runs.csv (repeatable: each "
        "combination). NAME is a flag of the component, or a {NAME} placeholder in its arguments.",
        group=SWEEP,
    ),
]
Zip = Annotated[
    bool,
    switch("--zip", help="With --each: pair the values in order instead of combining all.", group=SWEEP),
]
AtOnce = Annotated[
    str,
    option(
        "--at-once",
        metavar="N",
        help="With --each: at most N runs at a time (0: all; default: 1 on this machine, else all).",
        group=SWEEP,
    ),
]


After = Annotated[
    list[str],
    option(
        "--after",
        metavar="APP[:ok|any|failed]",
        help="Start after this application has succeeded (default), ended or failed; if it "
        "ends otherwise, start nothing (repeatable: wait for all).",
        group=SWEEP,
    ),
]


@dataclass
class SweepFlags:
    """The values of the flags.

    Attributes:
        each: the parameters.
        zipped: combine them in order, not as a grid.
        at_once: maximum number of runs at the same time; 0 for no limit, None for the default.
        after: the applications to wait for, each with a condition.
    """

    each: list[str] = field(default_factory=list)
    zipped: bool = False
    at_once: int | None = None
    after: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.each or self.after)


def sweep_flags(each: list[str], zipped: bool, at_once: str, after: list[str]) -> SweepFlags:
    """Returns the flags of a sweep.

    Raises:
        UsageError: --zip or --at-once is given without --each, or is invalid.
    """
    for flag, given in (("--zip", zipped), ("--at-once", at_once)):
        if given and not each:
            raise UsageError(f"{flag} requires --each", code="conflicting_flags")
    limit = count("--at-once", at_once)
    if limit is not None and limit > 100_000:
        raise ArgumentError(f"--at-once takes a number of runs, got `{at_once}`", flag="--at-once")
    return SweepFlags(each, zipped, limit, after)
