"""Commands added by other packages through the entry point group `torchx.cli.cmds`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from torchx.errors import PluginError
from torchx.lazy import lazy_imports
from torchx.plugins.groups import entry_points

with lazy_imports:
    import argparse

    from torchx.plugins import foreign

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "torchx.cli.cmds"


def plugin_commands() -> dict[str, Callable[[], Any]]:
    """Returns the name of each plugin command with a function that loads it."""

    def loader(point: EntryPoint) -> Callable[[], Any]:
        return lambda: _load(point)

    return {point.name: loader(point) for point in entry_points(GROUP)}


def _load(point: EntryPoint) -> Any:
    hint = f"it is the entry point {point.value} of the group {GROUP}"
    with foreign.foreign(f"plugin command `{point.name}` cannot be loaded", hint):
        return adapt(point.name, point.load())


def adapt(name: str, loaded: Any) -> Any:
    """Returns a command for the object that an entry point refers to.

    The object is a Typer app or command, or a class (or an object) with the methods
    `add_arguments(parser)` and `run(args)`, as in argparse programs.

    Raises:
        PluginError: the object is not a command.
    """
    if isinstance(loaded, typer.Typer):
        return typer.main.get_command(loaded)
    if not hasattr(loaded, "add_arguments") and hasattr(loaded, "make_context"):
        return loaded
    if isinstance(loaded, type):
        command = loaded()
    else:
        command = loaded
    if not (hasattr(command, "add_arguments") and hasattr(command, "run")):
        raise PluginError(
            f"plugin command `{name}` is not a command: {loaded!r}",
            hint="expected a Typer app or a class with add_arguments(parser) and run(args)",
        )
    return _Argparse(name, command)


class _Argparse(TyperCommand):
    """A command that parses its arguments with argparse."""

    def __init__(self, name: str, command: Any) -> None:
        super().__init__(
            name,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
            add_help_option=False,
        )
        self._command = command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return list(args)

    def invoke(self, ctx: Any) -> Any:
        parser = argparse.ArgumentParser(prog=ctx.command_path)
        self._command.add_arguments(parser)
        args = parser.parse_args(ctx.args)
        run = getattr(args, "func", self._command.run)  # the argparse convention for subcommands
        return run(args)
