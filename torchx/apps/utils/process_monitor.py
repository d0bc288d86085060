"""Runs a program that a file starts, or that a file or a timeout ends."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

from torchx.lazy import lazy_imports

with lazy_imports:
    import fsspec

TIMEOUT_EXIT_CODE = 34
"""The exit code if the program did not start in time."""


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the arguments of the program."""
    parser = argparse.ArgumentParser(description="run a program, and end it on a condition")
    parser.add_argument("--timeout", type=float, help="end the program after so many seconds")
    parser.add_argument("--start_on_file", help="start once this path or URL exists")
    parser.add_argument("--exit_on_file", help="end the program once this path or URL exists")
    parser.add_argument("--poll_rate", type=float, default=1, help="seconds between two checks")
    parser.add_argument("--kill_timeout", type=float, default=60, help="seconds between TERM and KILL")
    parser.add_argument("entrypoint", help="the program")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    """Runs the program.

    Raises:
        SystemExit: the program failed, or was ended.
    """
    args = parse_args(argv)
    end = None if args.timeout is None else time.monotonic() + args.timeout
    while args.start_on_file and not _exists(args.start_on_file):
        if not _pause(args.poll_rate, end):
            raise SystemExit(TIMEOUT_EXIT_CODE)
    process = subprocess.Popen([args.entrypoint, *args.args])
    try:
        while process.poll() is None:
            if args.exit_on_file and _exists(args.exit_on_file):
                break
            try:
                process.wait(_seconds(args.poll_rate, end) if args.exit_on_file or end else None)
            except subprocess.TimeoutExpired:
                if end is not None and time.monotonic() >= end:
                    break
    finally:
        _end(process, args.kill_timeout)
    if process.returncode:
        raise SystemExit(process.returncode)


def _exists(path: str) -> bool:
    filesystem, name = fsspec.core.url_to_fs(path)
    found: bool = filesystem.exists(name)
    return found


def _seconds(poll_rate: float, end: float | None) -> float:
    return poll_rate if end is None else max(0.0, min(poll_rate, end - time.monotonic()))


def _pause(poll_rate: float, end: float | None) -> bool:
    """Waits for the next check; returns False after the timeout."""
    time.sleep(_seconds(poll_rate, end))
    return end is None or time.monotonic() < end


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
