"""The base class of commands that other packages add, by entry points of the group ``torchx.cli.cmds``."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod


class SubCommand(ABC):
    """A command whose arguments argparse parses.

    A class with these two methods need not be derived from it.
    """

    @abstractmethod
    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Adds the command's arguments.

        Args:
            subparser: the parser of this command.
        """

    @abstractmethod
    def run(self, args: argparse.Namespace) -> None:
        """Runs the command.

        Args:
            args: the parsed arguments.
        """
