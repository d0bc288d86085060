"""Base class of commands added by other packages through the entry point group ``torchx.cli.cmds``."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn

from torchx.lazy import lazy_imports

with lazy_imports:
    from torchx import runner as torchx_runner
    from torchx.specs import handles

if TYPE_CHECKING:
    from torchx.runner.api import Runner


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


class AppHandleSubCommand(SubCommand):
    """A command for one application, whose handle is its argument."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Adds the argument ``app_handle``."""
        subparser.add_argument("app_handle", metavar="HANDLE", help="The handle of the application.")

    def run(self, args: argparse.Namespace) -> None:
        """Runs the command with a runner, which is closed afterwards."""
        with torchx_runner.get_runner() as runner:
            self.run_with_runner(args, runner)

    @abstractmethod
    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        """Runs the command.

        Args:
            args: the parsed arguments.
            runner: manages the application.
        """

    def exit_missing_app(self, app_handle: str) -> NoReturn:
        """Ends the command, as its scheduler does not know the application.

        Raises:
            UnknownAppException: always.
        """
        raise handles.UnknownAppException(app_handle)
