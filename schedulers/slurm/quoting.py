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

    Slurm drops empty lines from the script of a job with several roles, and refuses a script with carriage
    returns: other words stand for both, and are taken out again.

    >>> print("\\n".join(heredoc("x", "a\\n\\nb")))
    IFS= read -r -d '' x <<'END'
    a
    EMPTY
    b
    END
    x=${x//EMPTY/}
    """
    back = []
    if "\r" in text:
        word = _absent("CR", text)
        text = text.replace("\r", word)
        back.append(f"{variable}=${{{variable}//{word}/$'\\r'}}")
    lines = text.split("\n")
    if "" in lines:
        word = _absent("EMPTY", text)
        lines = [line or word for line in lines]
        back.insert(0, f"{variable}=${{{variable}//{word}/}}")
    mark = _absent("END", lines)
    return [f"IFS= read -r -d '' {variable} <<'{mark}'", *lines, mark, *back]


def _absent(word: str, where: str | list[str]) -> str:
    """Returns a word that is not there; none of its ends is a begin of it, so that none arises beside one."""
    while word in where:
        word += "_"
    return word
