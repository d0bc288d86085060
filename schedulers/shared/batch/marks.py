"""The mark of torchx in the comment of a Slurm job: its token, and the folders of its files."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from torchx.schedulers.shared.batch.paths import TOKEN

PREFIX = "torchx:"


class Mark(NamedTuple):
    """The mark of a job.

    Attributes:
        token: distinguishes the job from others with the same id.
        folder: the folder of its files.
        fallback: the one that its script uses if its nodes do not share the first; None without.
    """

    token: str
    folder: Path
    fallback: Path | None = None

    def __str__(self) -> str:
        if self.fallback is None:
            folders = [self.folder]
        else:
            folders = [self.folder, self.fallback]
        return PREFIX + ":".join([self.token, *(quote(str(folder)) for folder in folders)])


@lru_cache(10_000)  # a listing reads that of each job several times
def token_of(comment: str) -> str:
    """Returns the token in the comment of a job of torchx; empty for other jobs.

    >>> token_of("my text torchx:b1c2:/home/a%20b/slurm/jobs/x"), token_of("my text")
    ('b1c2', '')
    """
    return _split(comment)[0]


def _split(comment: str) -> tuple[str, str]:
    """Returns the token in a comment, and the text after it; both are empty without a mark."""
    _, prefix, rest = comment.rpartition(PREFIX)
    token, colon, text = rest.strip().partition(":")
    if prefix and colon and TOKEN.fullmatch(token):
        return (token, text)
    return ("", "")


def mark_of(comment: str) -> Mark | None:
    """Returns the mark in the comment of a job of torchx; None for other jobs.

    >>> mark_of("my text torchx:b1c2:/home/a%20b/slurm/jobs/x")
    Mark(token='b1c2', folder=PosixPath('/home/a b/slurm/jobs/x'), fallback=None)
    """
    token, text = _split(comment)
    if not token:
        return None
    folder, colon, fallback = (unquote(part, errors="surrogateescape") for part in text.partition(":"))
    return Mark(token, Path(folder), Path(fallback) if colon else None)
