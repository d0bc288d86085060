"""Argument parsing of commands: abbreviations, repeated flags, no import of pydantic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from typer.core import TyperCommand

from torchx.command_line import UNKNOWN, ArgumentError, Flag, FlagTable, Hit, Split
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx_cli.door import feature, has_others
from torchx_cli.flags import OLDER_SPELLINGS, OMITTED, OUTPUT
from torchx_cli.terminal.output import note_all

with lazy_imports:
    import shlex

    from torchx_cli import hints


class TorchxCommand(TyperCommand):
    """A command whose parameters are all flags, `str` or `list[str]`.

    Accepts unambiguous abbreviations of flags and `-` in place of `_`. Rejects a flag that takes one
    value if it is repeated.
    """

    # ctx is Any: Typer uses click or its own copy of it, depending on its version
    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the parameters, including --help."""
        return skip_type_conversion(super().get_params(ctx))

    def add_flags(self) -> bool:
        """Adds the flags of features of other packages to `run`; returns False if there are none to add."""
        return self.name == "run" and has_others() and bool(feature("features.flags").extend(self))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns the parts of the usage line after the command name."""
        names = [p.metavar for p in self.get_params(ctx) if p.param_type_name == "argument"]
        return ["[OPTIONS]", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments and flags, identical for all versions of Typer."""
        self.add_flags()
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                groups.setdefault("Arguments", []).append((param.metavar, param.help or ""))
            elif record := param.get_help_record(ctx):
                title = getattr(param, "rich_help_panel", None) or "Options"
                if param.name == "help" and OUTPUT in groups:
                    title = OUTPUT
                groups.setdefault(title, []).append(record)
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments of the command, with abbreviated flags expanded."""
        if not ctx.resilient_parsing:  # True during shell completion
            table = flag_table(self.get_params(ctx), ctx.allow_interspersed_args, ctx.command_path)
            try:
                args = list(expand_flags(args, table, ctx.info_name))
            except ArgumentError as error:
                if error.code != UNKNOWN or not self.add_flags():
                    raise
                return self.parse_args(ctx, args)
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


_EXAMPLES = {
    "HANDLE": "the newest application: {} @last",
    "A": "with the one before: {} @last~1 @last",
    "B": "with the one before: {} @last~1 @last",
    "COMMAND": "a shell: {} APP sh",
    "PORT": "a port by its number: {} APP 8000",
}
"""Missing argument -> a command line with it."""


def _skip_conversion(param: Any) -> None:
    def process_value(ctx: Any, value: Any) -> Any:
        # versions of click mark a missing value differently
        if not isinstance(value, (str, bool, list, tuple)) or value == ():
            if param.required:
                name = param.metavar or param.human_readable_name
                example = _EXAMPLES.get(name.partition("[")[0].strip(), "")
                if example:
                    example = f"{example.format(ctx.command_path)}   "
                raise UsageError(
                    f"missing {param.param_type_name} `{name}`",
                    hint=f"{example}see: {ctx.command_path} --help",
                    code="missing_argument",
                )
            value = None
            if getattr(param, "multiple", False) or param.nargs == -1:
                value = ()
        if param.callback is None:
            return value
        return param.callback(ctx, param, value)

    param.process_value = process_value


EXACT_COMMANDS = ("cancel", "delete", "prune", "queue", "configure")
"""The commands that end, remove or replace something: their flags have to be written in full."""

EXACT_FLAGS = (
    "--on-stall",
    "--time-limit",
    "--requeue",
    "--retry-on",
    "--no-retry-on",
    "--checkpoint-dir",
    "--once",
    "--as-it-was",
    "--all-users",
    "--allow",
    "--ranks",
)
"""Flags of other commands for which this holds too; a part of the last three is another flag."""


OF_PROGRAMS = ("torchx", "run", "rerun", "exec")
"""The commands whose further arguments belong to a program, and may be empty."""

MAY_BE_EMPTY = ("workspace", "parent_run_id", "note")
"""Parameters whose empty value means none."""

EMPTY = "is a variable of your shell empty?"


def flag_table(
    params: Iterable[Any], interspersed: bool, command: str, *, lenient: bool = False
) -> FlagTable:
    """Returns the flags of a command.

    Args:
        params: its parameters.
        interspersed: whether flags may follow a positional argument.
        command: the command path, for error hints.
        lenient: skip errors, for a partial command line.
    """
    flags = (
        Flag(
            param.name,
            _listed(param),
            takes="" if getattr(param, "is_flag", False) else param.metavar or "a value",
            repeats=param.multiple or param.metavar in OMITTED,
            is_help=param.name == "help",
            otherwise=OMITTED.get(param.metavar, ""),
            exact=command.rpartition(" ")[2] in EXACT_COMMANDS or param.opts[0] in EXACT_FLAGS,
            unlisted=_unlisted(param),
        )
        for param in params
        if param.param_type_name == "option"
    )
    see = [f"see: {command} --help"]
    if command.endswith("rerun"):
        see.insert(0, "to change an argument: --set FLAG=VALUE")
    return FlagTable(flags, hints=see, interspersed=interspersed, lenient=lenient)


def _listed(param: Any) -> tuple[str, ...]:
    if param.hidden:
        return ()
    return (*param.opts, *param.secondary_opts)


def _unlisted(param: Any) -> tuple[str, ...]:
    if param.hidden:
        return tuple(param.opts)
    return tuple(old for old, new in OLDER_SPELLINGS.items() if new in param.opts)


def _check_separated(split: Split) -> None:
    """Checks that `rerun` gets new arguments after `--`: a forgotten `--set` would replace all of them.

    Raises:
        ArgumentError: an argument follows the application without `--`.
    """
    handle, *others = split.rest[: len(split.rest) - split.separated] or [""]
    if others:
        first, line = others[0], shlex.join(others)
        hint = f"to replace all arguments of the program: torchx rerun {handle} -- {line}"
        if "=" in first:
            hint = f"to change one: --set {shlex.quote(first)}   {hint}"
        raise ArgumentError(f"unexpected argument `{first}`", hint=hint, code="unexpected_argument")


def _check_value(hit: Hit) -> None:
    """Checks that the value of a flag is not empty, nor a list of nothing.

    Raises:
        ArgumentError: it is.
    """
    nothing = " \t\n" + "," * ("," in hit.flag.takes)
    if hit.value is not None and not hit.value.strip(nothing) and hit.flag.name not in MAY_BE_EMPTY:
        raise ArgumentError(
            f'{hit.spelling} takes {hit.flag.takes}, got "{hit.value}"',
            flag=hit.spelling,
            given=hit.value,
            hint=f"leave it out for the default; {EMPTY}",
        )


def _check_letter(given: list[str], split: Split) -> None:
    """Checks that `-c` is before a run option: `-c 4` means CPUs in other tools, and no `-cfg`.

    Raises:
        ArgumentError: it does not.
    """
    options = [hit.value or "" for hit in split.hits if hit.spelling == "-cfg"]
    if "-c" in given and not all("=" in value for value in options):
        hint = "for a run option: -cfg KEY=VALUE"
        raise ArgumentError("unknown flag `-c`", flag="-c", hint=hint, code=UNKNOWN)


def expand_flags(args: list[str], table: FlagTable, command: str = "") -> Iterator[str]:
    """Yields the arguments with each flag in full and each value as a separate argument, for Typer.

    Raises:
        ArgumentError: a flag is unknown, ambiguous or repeated, or its value is missing.
    """
    try:
        split = table.split(args)
    except ArgumentError as error:
        if error.code == UNKNOWN:
            error.hint = hints.of_flag(command, error, args) or error.hint
        error.hint = error.hint or hints.of_number([command, *args])
        raise
    if command == "rerun":
        _check_separated(split)
    if "-n" in table.exact and "".join(split.rest[:1]).startswith("-"):
        hint = hints.of_number([command, split.rest[0]])
        raise ArgumentError(f"unknown flag `{split.rest[0]}`", hint=hint, code=UNKNOWN)
    _check_letter(args[: len(args) - len(split.rest)], split)
    note_all(split.notes)
    own = split.rest
    if command in OF_PROGRAMS:
        own = own[:1]
    if "" in own:
        raise ArgumentError("an argument is empty", given="", hint=EMPTY)
    for hit in split.hits:
        _check_value(hit)
        yield hit.spelling
        if hit.value is not None:
            yield hit.value
    if split.rest:
        yield from ("--", *split.rest)
