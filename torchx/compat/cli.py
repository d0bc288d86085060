"""Functions of TorchX's command line that other packages import."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from torchx.cli.cmd_base import SubCommand
from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.specs.app import AppDef
from torchx.specs.handles import parse_app_handle, parse_log_target
from torchx_cli.main import PROG
from torchx_cli.main import main as run_program
from torchx_cli.terminal.output import has_colour

with lazy_imports:
    from torchx_cli import app, plugin_commands

_CODES = {"GREEN": "32", "BLUE": "34", "GRAY": "2", "ORANGE": "38:2:238:76:44", "ENDC": "0"}


def colour(name: str) -> str:
    """Returns the control sequence of a colour; empty unless stdout shows colours."""
    return f"\033[{_CODES[name]}m" if has_colour(sys.stdout) else ""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command line.

    Args:
        argv: the arguments after the program name (default: those of this process).

    Raises:
        SystemExit: the command did not succeed.
    """
    if code := run_program(argv):
        raise SystemExit(code)


class ProgramCommand(SubCommand):
    """A command of the program, as an object of the kind that plugin commands are.

    Args:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Accepts all arguments; the program parses them."""
        subparser.add_argument("args", nargs=argparse.REMAINDER)

    def run(self, args: argparse.Namespace) -> None:
        """Runs the command."""
        main([self._name, *args.args])


def get_default_sub_cmds() -> dict[str, SubCommand]:
    """Returns the built-in commands by name."""
    return {name: ProgramCommand(name) for name in app.COMMANDS}


def get_sub_cmds() -> dict[str, SubCommand]:
    """Returns the commands by name: built-in ones and those of plugins."""
    return {name: ProgramCommand(name) for name in plugin_commands.plugin_commands()} | get_default_sub_cmds()


def run_main(subcmds: dict[str, SubCommand], argv: Sequence[str] | None = None) -> None:
    """Runs one command line of a program that has its own commands.

    Args:
        subcmds: its commands by name.
        argv: the arguments after the program name (default: those of this process).

    Raises:
        SystemExit: the command did not succeed.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    at = next((place for place, arg in enumerate(args) if not arg.startswith("-")), len(args))
    command = subcmds.get(args[at]) if at < len(args) else None
    if command is None or isinstance(command, ProgramCommand):
        main(args)
        return
    parser = argparse.ArgumentParser(prog=f"{PROG} {args[at]}")
    command.add_arguments(parser)
    command.run(parser.parse_args(args[at + 1 :]))


def prefix_line(prefix: str, line: str) -> str:
    r"""Returns a line with a prefix, also after each carriage return that is not its end.

    >>> prefix_line("a/0 ", "10 %\r20 %\n")
    'a/0 10 %\ra/0 20 %\n'
    """
    return prefix + line.replace("\r", f"\r{prefix}").replace(f"\r{prefix}\n", "\r\n")


def find_role_replicas(app: AppDef, role_name: str | None) -> list[tuple[str, int]]:
    """Returns the roles and ids of all replicas, or of those of one role."""
    return [
        (role.name, k)
        for role in app.roles
        if role_name in (None, role.name)
        for k in range(role.num_replicas)
    ]


def validate(job_identifier: str) -> None:
    """Exits if a text is not a handle, with or without role and replicas."""
    try:
        parse_app_handle(parse_log_target(job_identifier).handle)
    except TorchxError as error:
        raise SystemExit(f"error: {error.message}") from error
