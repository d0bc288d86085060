"""Command lines for a shell with parts that the shell is to expand."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


class noquote(str):
    """An argument that is not quoted."""


def args_join(args: Iterable[str]) -> str:
    """Joins arguments to a command line, and quotes each that is not a :class:`noquote`.

    >>> args_join(["echo", "a b", noquote("$HOME")])
    "echo 'a b' $HOME"
    """
    return " ".join(arg if isinstance(arg, noquote) else shlex.quote(arg) for arg in args)
