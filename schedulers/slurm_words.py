"""Words as a shell and as sbatch read them, whatever is in them."""

from __future__ import annotations

import shlex

APP_ID, REPLICA_ID, IMG_ROOT = "\0torchx_app\0", "\0torchx_replica\0", "\0torchx_root\0"
"""Stand for what only the job knows; no argument and no variable can hold a zero byte."""


def word(text: str) -> str:
    """Returns a text as one word of a shell; what only the job knows is a variable of the script.

    >>> word("a b"), word(f"id={REPLICA_ID},$HOME")
    ("'a b'", 'id="$torchx_replica"\\',$HOME\\'')
    """
    parts = text.split("\0")
    if len(parts) == 1:
        return shlex.quote(text)
    quoted = (f'"${part}"' if at % 2 else shlex.quote(part) if part else "" for at, part in enumerate(parts))
    return "".join(quoted)


def directive(name: str, value: object) -> str:
    """Returns a line of #SBATCH.

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
    """Returns the lines that put a text into a variable of bash, as it is.

    >>> print("\\n".join(heredoc("x", "a\\nb")))
    IFS= read -r -d '' x <<'END'
    a
    b
    END
    """
    lines = text.split("\n")
    mark = "END"
    while mark in lines:
        mark += "_"
    return [f"IFS= read -r -d '' {variable} <<'{mark}'", *lines, mark]
