"""Copies a file: `python -m torchx.apps.utils.copy_main --src A --dst B`."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence

from torchx.lazy import lazy_imports

with lazy_imports:
    import fsspec


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the arguments of the program."""
    parser = argparse.ArgumentParser(description="copy a file; both ends are paths or URLs that fsspec knows")
    parser.add_argument("--src", required=True, help="the file to copy")
    parser.add_argument("--dst", required=True, help="the file to write")
    parser.add_argument("--bufsize", type=int, default=1 << 20, help="bytes copied at a time")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    """Copies the file."""
    args = parse_args(argv)
    with fsspec.open(args.src, "rb") as source, fsspec.open(args.dst, "wb") as target:
        shutil.copyfileobj(source, target, args.bufsize)


if __name__ == "__main__":
    main(sys.argv[1:])
