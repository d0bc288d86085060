"""The commands: a table of names, each loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from torchx.printable import one_line
from torchx.version import __version__
from torchx_cli.command import TorchxCommand, lighten, spell_out
from torchx_cli.terminal.output import say

COMMANDS: dict[str, str] = {
    "run": "Run an application from a component.",
    "status": "Tell how an application fares.",
    "log": "Print the output of an application.",
    "attach": "Stay with an application that runs: its logs and its result.",
    "exec": "Run a program in a replica.",
    "wait": "Wait for the end of applications.",
    "cancel": "End an application.",
    "list": "List applications, newest first.",
    "describe": "Show what an application is made of.",
    "delete": "Remove an ended application with its logs.",
    "prune": "Remove ended applications, and what was left over.",
    "runopts": "Show the run options of the schedulers.",
    "builtins": "List the components that can be run by name.",
    "configure": "Write a .torchxconfig to start from.",
    "config": "Show the configuration that counts, and where each value stands.",
    "tracker": "Show what runs have told their trackers.",
    "lint": "Check the components of a file.",
    "doctor": "Look at the engines: what is reachable, what is wrong, how to mend it.",
    "plugins": "Show what other packages add.",
    "completion": "Print what makes a shell complete the words of torchx.",
}
"""Name of each command -> its one line of help; the command lives in `torchx_cli.commands.NAME`."""

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
TYPER: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}


def load(name: str) -> TyperCommand | TyperGroup:
    """Imports a command by its name and returns it."""
    module = importlib.import_module(f"torchx_cli.commands.{name}")
    app: typer.Typer | None = getattr(module, "app", None)  # a group of commands brings its own
    if app is None:
        app = typer.Typer(**TYPER)
        function: Callable[..., object] = getattr(module, f"{name}_")
        settings = {**SETTINGS, **getattr(module, "SETTINGS", {})}
        cls = getattr(module, "COMMAND", TorchxCommand)
        app.command(name, cls=cls, context_settings=settings, short_help=COMMANDS[name])(function)
    command = typer.main.get_command(app)
    assert isinstance(command, (TyperCommand, TyperGroup))
    return command


class Torchx(TyperGroup):
    """The program itself: knows the names of its commands, and loads the one that is called."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = {}

    # ctx is Any: its class is click's own or the one inside Typer, depending on Typer's age
    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the parameters, --help among them."""
        return lighten(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the words before the command; abbreviations are spelled out first."""
        if not ctx.resilient_parsing:  # otherwise a shell asks for completions of half a line
            args = list(spell_out(args, self.get_params(ctx), False, ctx.command_path))
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns the end of the usage line, the same with all versions of click."""
        return ["[OPTIONS]", "COMMAND [ARGS]..."]

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of all commands."""
        from torchx_cli.plugin_commands import plugin_commands

        return [*COMMANDS, *(name for name in plugin_commands() if name not in COMMANDS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Loads a command; returns None when there is none of this name."""
        if cmd_name in COMMANDS:
            return load(cmd_name)
        from torchx_cli.plugin_commands import plugin_commands

        make = plugin_commands().get(cmd_name)
        return make() if make is not None else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands from the table: help must not import them all."""
        rows = [(one_line(name), COMMANDS.get(name, "(from a plugin)")) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command that the first word names.

        Raises:
            UsageError: there is none.
        """
        from torchx.errors import UsageError
        from torchx.suggestions import did_you_mean

        if args[0] not in COMMANDS and self.get_command(ctx, args[0]) is None:
            hint = did_you_mean(args[0], self.list_commands(ctx), "all commands: torchx --help")
            raise UsageError(f"unknown command `{args[0]}`", hint=hint)
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=Torchx, context_settings=SETTINGS, **TYPER)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"torchx-{__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def torchx(
    ctx: typer.Context,
    log_level: Annotated[
        str,
        typer.Option(
            "--log_level",
            metavar="LEVEL",
            show_default=False,
            help="Level of torchx's own log messages on stderr. Default: $LOGLEVEL, or WARNING.",
        ),
    ] = "",
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="NAME",
            show_default=False,
            help="Lay the sections [profile:NAME:...] of the configuration on top.",
        ),
    ] = "",
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Launch applications made of replicas on this machine, Docker, Slurm or Kubernetes.

    The same application runs on all of them. Begin with: torchx run utils.echo --msg hi
    """
    from torchx_cli.session import Session

    ctx.obj = Session(profile=profile or None, log_level=log_level)
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())


def build() -> TyperGroup:
    """Returns the program as a command."""
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    return command
