"""Quote text for a shell and for sbatch."""

from __future__ import annotations

import shlex

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
    quoted = (f'"${part}"' if at % 2 else shlex.quote(part) if part else "" for at, part in enumerate(parts))
    return "".join(quoted)


def directive(name: str, value: object) -> str:
    """Returns an #SBATCH line.

    >>> directive("exclusive", True), directive("comment", 'a "b" # c')
    ('#SBATCH --exclusive', '#SBATCH --comment="a \\\\"b\\\\" # c"')
    """
    if value is True:
        return f"#SBATCH --{name}"
    text = str(value)
    if not text or not _PLAIN.issuperset(text):
        inner = text.replace("\\", "\\\\").replace('"', '\\"')
        text = f'"{inner}"'
    return f"#SBATCH --{name}={text}"


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,=@%+[]&|*~")


def heredoc(variable: str, text: str) -> list[str]:
    """Returns the lines that assign a text to a bash variable.

    Slurm drops empty lines from the script of a heterogeneous job and rejects carriage returns, so both are
    replaced by markers and restored by the script.

    >>> print("\\n".join(heredoc("x", "a\\n\\nb")))
    IFS= read -r -d '' x <<'END'
    a
    EMPTY
    b
    END
    x=${x//EMPTY/}
    """
    restore = []
    if "\r" in text:
        marker = absent("CR", text)
        text = text.replace("\r", marker)
        restore.append(f"{variable}=${{{variable}//{marker}/$'\\r'}}")
    lines = text.split("\n")
    if "" in lines:
        marker = absent("EMPTY", text)
        lines = [line or marker for line in lines]
        restore.insert(0, f"{variable}=${{{variable}//{marker}/}}")
    mark = absent("END", lines)
    return [f"IFS= read -r -d '' {variable} <<'{mark}'", *lines, mark, *restore]


def absent(marker: str, text: str | list[str]) -> str:
    """Appends underscores to a marker until the text does not contain it.

    No suffix of a marker is also a prefix, so adjacent text cannot form another one.
    """
    while marker in text:
        marker += "_"
    return marker
