"""Quote text for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

APP_ID, REPLICA_ID, IMG_ROOT = "\0torchx_app\0", "\0torchx_replica\0", "\0torchx_root\0"
"""Placeholders for values known only inside the job; arguments cannot contain a zero byte."""


def quote(text: str) -> str:
    """Quotes a text as one shell argument; placeholders become variables of the script.

    >>> quote("a b"), quote(f"id={REPLICA_ID},$HOME")
    ("'a b'", 'id="$torchx_replica"\\',$HOME\\'')
    """
    parts = text.split("\0")
    if len(parts) == 1:
        return shlex.quote(text)
    quoted = [part and shlex.quote(part) for part in parts]
    quoted[1::2] = [f'"${name}"' for name in parts[1::2]]
    return "".join(quoted)


def packed(files: Mapping[str, str]) -> Iterator[str]:
    """Yields lines for the end of a script that ``node/unpack.sh`` turns into files.

    The lines are comments: no shell reads them, and none is empty, since Slurm drops empty lines from the
    script of a heterogeneous job. Slurm also rejects carriage returns, which are escaped.

    Args:
        files: the content of each file, by its path; a line break at its end is added if missing.

    >>> list(packed({"a": "x\\n\\ny\\r\\n"}))
    ['#> a', '#| x', '#|', '#\\\\ y\\\\r', '#> end']
    """
    for path, text in files.items():
        yield f"#> {path}"
        for line in text.removesuffix("\n").split("\n"):
            if "\r" in line:
                escaped = line.replace("\\", r"\\").replace("\r", r"\r")
                yield f"#\\ {escaped}"
            else:
                yield f"#| {line}" if line else "#|"
    yield "#> end"
