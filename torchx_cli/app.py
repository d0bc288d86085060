"""Table of the commands, each loaded on demand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from torchx.command_line import UNKNOWN, ArgumentError
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.printable import one_line
from torchx.suggestions import did_you_mean
from torchx.version import __version__
from torchx_cli.command import TorchxCommand, expand_flags, flag_table, skip_type_conversion
from torchx_cli.door import feature
from torchx_cli.flags import option, set_flags
from torchx_cli.terminal.output import print_stderr, say

with lazy_imports:
    import ast
    import inspect
    import shlex

    from torchx_cli import plugin_commands, session

GROUPS: dict[str, dict[str, str]] = {
    "Run": {
        "run": "Run an application from a component.",
        "rerun": "Submit an application again, as it was submitted.",
        "attach": "Attach to a running application: logs and result.",
        "wait": "Wait until applications end or meet another condition.",
        "exec": "Run a program in a replica.",
        "cp": "Copy files from or to a replica.",
        "port": "Forward a local port to a port of a replica.",
        "cancel": "Cancel applications.",
    },
    "See": {
        "list": "List applications, newest first.",
        "status": "Show the status of an application.",
        "why": "Explain why an application failed, waits or still runs.",
        "log": "Print the output of an application.",
        "events": "Show the events of applications.",
        "top": "Show running applications and their replicas live.",
        "describe": "Show the roles and replicas of an application.",
        "report": "Write a page about an application.",
    },
    "Compare": {
        "results": "Compare the runs of a sweep.",
        "diff": "Compare two applications.",
        "tracker": "Show tracked metadata and artifacts of runs.",
    },
    "Hangs and queues": {
        "stacks": "Show the Python stacks of an application's processes.",
        "nodes": "Show the nodes through which replicas have failed.",
        "queue": "Show this machine's GPUs and the jobs that wait for them.",
    },
    "Clean up": {
        "delete": "Delete ended applications with their logs.",
        "prune": "Remove old ended applications and leftover files.",
    },
    "Set up": {
        "runopts": "List the run options of a scheduler.",
        "builtins": "List the named components.",
        "lint": "Check the components of a file.",
        "configure": "Write a starter .torchxconfig.",
        "config": "Show the effective configuration and its sources.",
        "context": "Name machines behind ssh, for --context.",
        "doctor": "Check the configured engines and suggest fixes.",
        "plugins": "List the installed plugins.",
        "completion": "Print a shell completion script.",
        "schema": "Print the JSON Schema of each command's output.",
        "mcp": "Serve the commands as tools for an agent.",
    },
}
"""The commands by group: name -> one line of help."""

TOOLS = GROUPS["Set up"]
"""The commands that concern no application."""

FOLDERS = {
    **dict.fromkeys(TOOLS, "commands.tools"),
    "context": "contexts",
    "cp": "contexts",
    "diff": "diff",
    "mcp": "mcp",
    "nodes": "nodes",
    "report": "report",
    "rerun": "rerun",
    "results": "sweep",
    "schema": "schemas",
    "top": "top",
}
"""The folders of the commands, if not `commands`; those of features can be deleted."""

COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
"""All commands, in the order of `torchx --help`."""

OTHER_NAMES = {
    "attach": "follow fg",
    "builtins": "components",
    "configure": "init",
    "doctor": "sinfo check health",
    "runopts": "options opts schedulers scheduler",
    "results": "metrics",
    "results --best": "best",
    "run --each": "sweep array",
    "run --workspace": "sync",
    "cp": "copy scp rsync download upload",
    "status --watch": "watch",
    "--help": "help",
    "--version": "version",
    "cancel": "kill stop scancel terminate abort down",
    "delete": "rm remove del",
    "diff": "compare cmp",
    "describe": "inspect info show",
    "exec": "ssh shell",
    "list": "ls ps job jobs get history sacct squeue",
    "log": "logs tail output",
    "port": "port-forward forward proxy tunnel",
    "prune": "gc clean cleanup",
    "queue": "gpus gpu show-gpus nvidia-smi",
    "queue hold": "pause suspend",
    "rerun": "retry restart resubmit resume again",
    "run": "start submit launch sbatch srun torchrun apply create up",
    "top": "stats monitor htop",
    "stacks": "py-spy pystack stack gdb traceback",
    "status": "state stat",
    "why": "explain diagnose reason debug",
}
"""Command name -> the names of commands of other tools with the same purpose."""

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
TYPER: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}


def load(name: str) -> TyperCommand | TyperGroup:
    """Imports a command by its name and returns it."""
    module = feature(f"{FOLDERS.get(name, 'commands')}.{name}")
    app: typer.Typer | None = getattr(module, "app", None)  # command groups define their own
    if app is None:
        app = typer.Typer(**TYPER)
        function: Callable[..., object] = getattr(module, f"{name}_")
        _evaluate_annotations(function)
        if hasattr(module, "FLAGS"):
            set_flags(function, module.FLAGS)
        app.command(
            name,
            cls=TorchxCommand,
            context_settings={**SETTINGS, **getattr(module, "SETTINGS", {})},
            short_help=COMMANDS[name],
            epilog=getattr(module, "EXAMPLES", None),
        )(function)
    command = typer.main.get_command(app)
    assert isinstance(command, (TyperCommand, TyperGroup))
    _restore_help(command)
    return command


def _evaluate_annotations(function: Callable[..., object]) -> None:
    """Evaluates the annotations of a function, which are text: Typer would do it four times.

    Unlike `get_type_hints` of Python 3.10, this does not add `Optional` because of a default.
    """
    function.__annotations__ = inspect.get_annotations(function, eval_str=True)


def _restore_help(command: Any) -> None:
    """Adds the docstrings that PYTHONOPTIMIZE=2 removes from functions to a command."""
    if sys.flags.optimize > 1:
        for one in (command, *getattr(command, "commands", {}).values()):
            source = inspect.getsource(inspect.unwrap(one.callback))
            one.help = one.help or ast.get_docstring(cast(ast.FunctionDef, ast.parse(source).body[0]))


def _after_command(flag: str, args: Sequence[str]) -> str | None:
    """Returns the hint for a flag of a command that was put before it, None for any other flag."""
    start = next((at for at, arg in enumerate(args) if arg.partition("=")[0] == flag), len(args))
    for at, name in enumerate(args[start:], start):
        if name in COMMANDS:
            if not any(flag in param.opts for param in load(name).params):
                return None
            line = shlex.join([*args[:start], name, *args[start:at], *args[at + 1 :]])
            return f"put it after the command: torchx {line}"
    return None


def _expanded(group: TyperGroup, ctx: Any, args: list[str]) -> list[str]:
    """Returns the arguments of a group of commands, with the flags before the command in full."""
    if ctx.resilient_parsing:  # during shell completion
        return args
    table = flag_table(group.get_params(ctx), False, ctx.command_path)
    return list(expand_flags(args, table, ctx.info_name))


class Group(TyperGroup):
    """A command with others, which are called without a conversion of types."""

    # ctx is Any: Typer uses click or its own copy of it, depending on its version
    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the parameters, including --help."""
        return skip_type_conversion(super().get_params(ctx))


class Subcommands(Group):
    """A command with commands of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments; without any, prints the help and ends as for a wrong command line."""
        if not args and not ctx.resilient_parsing:
            print_stderr(ctx.get_help())
            raise typer.Exit(2)
        rest: list[str] = super().parse_args(ctx, _expanded(self, ctx, args))
        return rest

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command named by the first argument.

        Raises:
            UsageError: the command does not exist.
        """
        name = args[0]
        if name not in self.commands:
            see = f"its commands: {', '.join(self.commands)}   see: {ctx.command_path} --help"
            raise UsageError(
                f"unknown command `{name}` of {ctx.command_path}",
                hint=did_you_mean(name, self.commands, see),
                code="unknown_command",
                facts={"given": name},
            )
        return super().resolve_command(ctx, args)


class Torchx(Group):
    """The `torchx` program, which imports only the command that is called."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments before the command, with abbreviated flags expanded."""
        try:
            args = _expanded(self, ctx, args)
        except ArgumentError as error:
            if error.code == UNKNOWN:
                error.hint = _after_command(error.flag, args) or error.hint
            raise
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns the end of the usage line, identical for all versions of click."""
        return ["[OPTIONS]", "COMMAND [ARGS]..."]

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of all commands."""
        return [
            *COMMANDS,
            *(name for name in plugin_commands.plugin_commands() if name not in COMMANDS),
        ]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns the command with this name, or None."""
        if cmd_name in COMMANDS:
            return load(cmd_name)

        make = plugin_commands.plugin_commands().get(cmd_name)
        if make is not None:
            return make()
        return None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands from the table, without importing them."""
        of_plugins = {
            one_line(name): "(from a plugin)" for name in self.list_commands(ctx) if name not in COMMANDS
        }
        width = max(map(len, [*COMMANDS, *of_plugins]))
        for title, commands in {**GROUPS, "Plugins": of_plugins}.items():
            if commands:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command named by the first argument.

        Raises:
            UsageError: the command does not exist.
        """
        if args[0] not in COMMANDS and self.get_command(ctx, args[0]) is None:
            meant = next((name for name, others in OTHER_NAMES.items() if args[0] in others.split()), args[0])
            known = [*self.list_commands(ctx), *OTHER_NAMES]
            hint = did_you_mean(meant, known, "all commands: torchx --help")
            if args[0].endswith(".py"):
                hint = f"to run a script: torchx run utils.python --script {shlex.quote(args[0])}"
            raise UsageError(
                f"unknown command `{args[0]}`", hint=hint, code="unknown_command", facts={"given": args[0]}
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=Torchx, context_settings=SETTINGS, **TYPER)


def _version(requested: bool) -> None:
    if requested:
        say(f"torchx-{__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def torchx(
    ctx: typer.Context,
    log_level: Annotated[
        str,
        option(
            "--log_level",
            metavar="LEVEL",
            help="Log level of torchx's own messages on stderr (default: $LOGLEVEL or WARNING).",
        ),
    ] = "",
    profile: Annotated[
        str, option("--profile", metavar="NAME", help="Apply the configuration sections [profile:NAME:...].")
    ] = "",
    context: Annotated[
        str, option("--context", metavar="NAME", help="Run the command on another machine: torchx context.")
    ] = "",
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Launch applications made of replicas on this machine, Docker, Slurm or Kubernetes.

    The same application runs on all of them. To get started: torchx run utils.echo --msg hi
    """
    ctx.obj = session.Session(profile=profile or None, log_level=log_level, context=context)
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())


def build() -> TyperGroup:
    """Returns the program as a command."""
    _evaluate_annotations(torchx)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    _restore_help(command)
    return command
