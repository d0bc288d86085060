"""Argument parsing of commands: abbreviations, repeated flags, no import of pydantic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from typer.core import TyperCommand

from torchx.errors import UsageError
from torchx.suggestions import did_you_mean
from torchx_cli.terminal.output import print_stderr


class TorchxCommand(TyperCommand):
    """A command whose parameters are all flags, `str` or `list[str]`.

    Accepts unambiguous abbreviations of flags and `-` in place of `_`. Rejects a flag that takes one
    value if it is repeated.
    """

    # ctx is Any: Typer uses click or its own copy of it, depending on its version
    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the parameters, including --help."""
        return skip_type_conversion(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns the parts of the usage line after the command name."""
        names = [p.metavar for p in self.get_params(ctx) if p.param_type_name == "argument"]
        return ["[OPTIONS]", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments and flags, identical for all versions of Typer."""
        params = self.get_params(ctx)
        arguments = [
            (p.metavar, getattr(p, "help", None) or "") for p in params if p.param_type_name == "argument"
        ]
        records = (p.get_help_record(ctx) for p in params if p.param_type_name == "option")
        flags = [record for record in records if record is not None]
        for title, rows in (("Arguments", arguments), ("Options", flags)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments of the command, with abbreviated flags expanded."""
        if not ctx.resilient_parsing:  # True during shell completion
            args = list(
                expand_flags(args, self.get_params(ctx), ctx.allow_interspersed_args, ctx.command_path)
            )
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def skip_type_conversion(params: list[Any]) -> list[Any]:
    """Disables type conversion, which strings and switches do not need, and returns the parameters.

    Typer 0.27 and later converts each value with pydantic, whose import takes as long as the rest of a
    short command. Required values are checked here because Typer 0.16 and 0.17 miss a missing one with
    click 8.3 and later.
    """
    for param in params:
        if "process_value" not in vars(param):
            _skip_conversion(param)
    return params


def _skip_conversion(param: Any) -> None:
    def process_value(ctx: Any, value: Any) -> Any:
        # versions of click mark a missing value differently
        if not isinstance(value, (str, bool, list, tuple)) or value == ():
            if param.required:
                name = param.metavar or param.human_readable_name
                raise UsageError(
                    f"missing {param.param_type_name} '{name}'", hint=f"see: {ctx.command_path} --help"
                )
            value = () if getattr(param, "multiple", False) or param.nargs == -1 else None
        return value if param.callback is None else param.callback(ctx, param, value)

    param.process_value = process_value


def expand_flags(args: list[str], params: Iterable[Any], interspersed: bool, command: str) -> Iterator[str]:
    """Yields the arguments with each flag in full and each value as a separate argument.

    Args:
        args: the arguments after the command.
        params: the parameters of the command.
        interspersed: whether flags may follow a positional argument.
        command: the command path, for error hints.

    Raises:
        UsageError: a flag is unknown, ambiguous or repeated.
    """
    spellings = {
        spelling: p for p in params for spelling in (*p.opts, *p.secondary_opts) if spelling[:1] == "-"
    }
    seen: set[str] = set()
    remaining = iter(args)
    for arg in remaining:
        if arg == "--" or (not interspersed and not _is_flag(arg)):
            yield arg
            yield from remaining
            return
        if not _is_flag(arg):
            yield arg
            continue
        name, equals, value = arg.partition("=")
        if name not in spellings and arg[1] != "-" and arg[:2] in spellings:
            yield from _split_short_flags(arg, spellings, remaining, seen)
            continue
        full = _full_name(name, spellings, command)
        yield full
        if getattr(spellings[full], "is_flag", False):
            if equals:
                raise UsageError(f"{full} takes no value, got `{value}`")
            continue
        _check_repeated(full, spellings, seen)
        if equals:
            yield value
        else:
            yield _next_value(full, remaining)


def _is_flag(arg: str) -> bool:
    return arg.startswith("-") and arg != "-"


def _split_short_flags(
    arg: str, spellings: dict[str, Any], remaining: Iterator[str], seen: set[str]
) -> Iterator[str]:
    """Splits combined single-letter flags such as `-fn5` and `-slocal_cwd`."""
    for at, letter in enumerate(arg[1:], start=1):
        flag = f"-{letter}"
        if flag not in spellings:
            raise UsageError(f"unknown flag `{flag}` in `{arg}`", hint=did_you_mean(arg, spellings))
        yield flag
        if not getattr(spellings[flag], "is_flag", False):
            _check_repeated(flag, spellings, seen)
            rest = arg[at + 1 :].removeprefix("=")
            if rest:
                yield rest
            else:
                yield _next_value(flag, remaining)
            return


def _next_value(flag: str, remaining: Iterator[str]) -> str:
    value = next(remaining, None)
    if value is None:
        raise UsageError(f"{flag} takes a value")
    return value


def _check_repeated(flag: str, spellings: dict[str, Any], seen: set[str]) -> None:
    param = spellings[flag]
    if param.name in seen and not param.multiple:
        raise UsageError(f"{flag} is given twice; it takes one value")
    seen.add(param.name)


def _full_name(name: str, spellings: dict[str, Any], command: str) -> str:
    if name in spellings:
        return name
    dashes = "--" if name.startswith("--") else "-"
    plain = dashes + name[len(dashes) :].replace("-", "_")
    by_plain = {dashes + s[len(dashes) :].replace("-", "_"): s for s in spellings if s.startswith(dashes)}
    if plain in by_plain:
        return by_plain[plain]
    matches = {full for key, full in by_plain.items() if key.startswith(plain)}
    if not matches or len(name) == len(dashes) or len({spellings[f].name for f in matches}) > 1:
        if len(matches) > 1:
            raise UsageError(f"`{name}` can mean {', '.join(sorted(matches))}")
        raise UsageError(
            f"unknown flag `{name}`", hint=did_you_mean(name, spellings, f"see: {command} --help")
        )
    full = min(matches, key=len)
    print_stderr(f"note: {name} is short for {full}")
    return full
