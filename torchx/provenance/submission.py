"""The facts of a submission that could change after it, read in the command itself; loads few modules."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from torchx import settings
from torchx.provenance import repository as repositories
from torchx.provenance.repository import Head, Repository

if TYPE_CHECKING:
    from torchx.provenance.model import Source

LONGEST_FACTS = 300
"""Maximum characters of the commit and the branch that travel with an application."""


class Submission(NamedTuple):
    """The facts of a submission that could change after it.

    Attributes:
        directory: the working directory.
        at: the time, seconds since the epoch.
        repository: the repository of the working directory; None without one.
        head: its branch and its commit.
        inherited: the complete source of an earlier application, which counts instead.
        earlier: the folder of the record of that application.
        notes: facts for the user, one sentence each.
    """

    directory: str
    at: float
    repository: Repository | None = None
    head: Head = Head()
    inherited: Source | None = None
    earlier: str = ""
    notes: tuple[str, ...] = ()


def is_enabled() -> bool:
    """Returns True unless the user disabled the record by ``TORCHX_PROVENANCE=0``."""
    return os.environ.get(settings.TORCHX_PROVENANCE, "") not in ("0", "false", "off")


def look() -> Submission:
    """Returns the facts of a submission; takes well under a millisecond."""
    try:
        directory = os.getcwd()  # noqa: PTH109  # a string
    except OSError as error:  # removed
        return Submission("", time.time(), notes=(f"the working directory is unknown: {error.strerror}",))
    repository = repositories.find(directory)
    if repository is None:
        head = Head()
    else:
        head = repositories.head(repository)
    return Submission(directory, time.time(), repository, head)


def small_facts(submission: Submission) -> dict[str, str]:
    """Returns the metadata with the commit and the branch, which travel with an application to its engine."""
    source = submission.inherited or submission.head
    text = f"{source.commit or ''} {source.branch}".strip()
    if source.commit:
        return {settings.SOURCE: text[:LONGEST_FACTS]}
    return {}
