"""Evaluates Booth's function and stores the result for a tracker: a target to try optimisers on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from torchx.runtime.tracking import FsspecResultTracker

DEFAULT_BASE = "/tmp/torchx-util-booth"  # noqa: S108 - the documented default


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the arguments of the program."""
    parser = argparse.ArgumentParser(description="evaluate Booth's function at (x1, x2)")
    parser.add_argument("--x1", type=float, required=True, help="first argument")
    parser.add_argument("--x2", type=float, required=True, help="second argument")
    parser.add_argument("--tracker_base", default=DEFAULT_BASE, help="folder of the results, a path or URL")
    parser.add_argument("--trial_idx", type=int, default=0, help="the key of the result")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    """Evaluates the function and stores the result."""
    args = parse_args(argv)
    value = (args.x1 + 2 * args.x2 - 7) ** 2 + (2 * args.x1 + args.x2 - 5) ** 2
    FsspecResultTracker(args.tracker_base)[args.trial_idx] = {"booth_eval": value}


if __name__ == "__main__":
    main(sys.argv[1:])
