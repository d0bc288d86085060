"""The flags of `torchx run` for sweeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchx.command_line import ArgumentError
from torchx.errors import UsageError
from torchx_cli.flags import count

if TYPE_CHECKING:
    from torchx.json_limits import Data


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


def sweep_flags(flags: Data) -> SweepFlags:
    """Returns the flags of a sweep.

    Raises:
        UsageError: --zip or --at-once is given without --each, or is invalid.
    """
    each, at_once = list(flags["each"]), flags["at_once"]
    for name in ("zip", "at_once"):
        if flags[name] and not each:
            raise UsageError(f"--{name.replace('_', '-')} requires --each", code="conflicting_flags")
    limit = count("--at-once", at_once)
    if limit is not None and limit > 100_000:
        raise ArgumentError(f"--at-once takes a number of runs, got `{at_once}`", flag="--at-once")
    return SweepFlags(each, flags["zip"], limit, list(flags["after"]))
