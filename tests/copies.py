"""Copies of `torchx cp` in tests: files to copy, and the comparison of two folders."""

from __future__ import annotations

import subprocess
from pathlib import Path

from program import torchx

MAKE = (
    "mkdir -p out/sub && echo hi > out/sub/a && ln -s sub/a out/link && chmod 751 out/sub/a && : > out/empty;"
    "head -c 2000000 /dev/urandom > out/big;"
)


def same(one: Path, other: Path) -> bool:
    """Returns True if two folders have the same files, links and modes."""
    listing = (
        "cd \"$1\" && find . -printf '%p %m %y %l\\n' | sort; find . -type f -exec sha256sum {} + | sort"
    )
    outputs = [subprocess.check_output(["sh", "-c", listing, "sh", each]) for each in (one, other)]
    return outputs[0] == outputs[1]


def cp(*words: str) -> str:
    """Copies, and returns stderr."""
    done = torchx("cp", *words)
    assert done.returncode == 0, done.stderr
    return done.stderr
