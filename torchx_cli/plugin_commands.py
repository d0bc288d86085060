"""Commands that other packages add, by entry points of the group `torchx.cli.cmds`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "torchx.cli.cmds"


def plugin_commands() -> dict[str, Callable[[], Any]]:
    """Returns name -> a function that makes the command, for each command that a package adds."""
    from torchx.plugins.groups import entry_points

    def maker(point: EntryPoint) -> Callable[[], Any]:
        return lambda: _made(point)

    return {point.name: maker(point) for point in entry_points(GROUP)}


def _made(point: EntryPoint) -> Any:
    from torchx.plugins.foreign import foreign

    hint = f"it is the entry point {point.value} of the group {GROUP}"
    with foreign(f"plugin command `{point.name}` cannot be loaded", hint):
        return adapt(point.name, point.load())


def adapt(name: str, loaded: Any) -> Any:
    """Makes a command of what an entry point gives.

    That is a Typer program or command, or a class (or an object) with the methods
    `add_arguments(parser)` and `run(args)` that argparse programs have.

    Raises:
        PluginError: it is neither.
    """
    import typer

    if isinstance(loaded, typer.Typer):
        return typer.main.get_command(loaded)
    if not hasattr(loaded, "add_arguments") and hasattr(loaded, "make_context"):
        return loaded
    command = loaded() if isinstance(loaded, type) else loaded
    if not (hasattr(command, "add_arguments") and hasattr(command, "run")):
        from torchx.errors import PluginError

        raise PluginError(
            f"plugin command `{name}` is no command: {loaded!r}",
            hint="it takes a Typer program, or a class with add_arguments(parser) and run(args)",
        )
    return _Argparse(name, command)


class _Argparse(TyperCommand):
    """A command whose words are read by an argparse parser that its author fills."""

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
        import argparse

        parser = argparse.ArgumentParser(prog=ctx.command_path)
        self._command.add_arguments(parser)
        args = parser.parse_args(ctx.args)
        run = getattr(args, "func", self._command.run)  # the usual way to name a nested command
        return run(args)
