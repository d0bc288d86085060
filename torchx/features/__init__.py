"""The door of features: flags of `torchx run` as rows of a table, read without the feature itself."""

from __future__ import annotations

from typing import NamedTuple


class Flag(NamedTuple):
    """A flag of ``torchx run``.

    Attributes:
        flag: its spellings, such as ``-d --detach``; its name is that of the last one.
        metavar: the form of its value; empty for a switch.
        help: its line of help.
        group: the title of its group on the help page.
        repeats: whether it may be repeated.
    """

    flag: str
    metavar: str
    help: str
    group: str = "Features"
    repeats: bool = False

    @property
    def name(self) -> str:
        """Its name as a parameter, such as ``detach``."""
        return self.flag.rpartition(" ")[2].lstrip("-").replace("-", "_")
