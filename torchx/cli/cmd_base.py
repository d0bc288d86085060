"""Base class of commands added by other packages through the entry point group ``torchx.cli.cmds``."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod


class SubCommand(ABC):
    """A command that parses its arguments with argparse.

    Subclassing is optional: any class with these two methods works.
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
