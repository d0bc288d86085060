"""How a command reads its words: abbreviations, repeated flags, and no detour through pydantic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from typer.core import TyperCommand

from torchx.errors import UsageError
from torchx.suggestions import did_you_mean
from torchx_cli.terminal.output import tell


class TorchxCommand(TyperCommand):
    """A command whose parameters are all flags, `str` or `list[str]`.

    Unambiguous abbreviations of flags are accepted, `-` for `_` within them too; a flag that takes
    one value is refused when it comes twice.
    """

    # ctx is Any: its class is click's own or the one inside Typer, depending on Typer's age
    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the parameters, --help among them."""
        return lighten(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns what the usage line says after the name of the command."""
        names = [p.metavar for p in self.get_params(ctx) if p.param_type_name == "argument"]
        return ["[OPTIONS]", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments and the flags, alike in all versions of Typer."""
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
        """Reads the words after the command; abbreviations are spelled out first."""
        if not ctx.resilient_parsing:  # otherwise a shell asks for completions of half a line
            args = list(spell_out(args, self.get_params(ctx), ctx.allow_interspersed_args, ctx.command_path))
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def lighten(params: list[Any]) -> list[Any]:
    """Hands values that need no conversion through as they are, and returns the parameters.

    Typer 0.27 and later takes each value through pydantic, whose import takes as long as all the
    rest of a short command. Text and flags need none of it. Required values are checked here too:
    Typer 0.16 and 0.17 do not notice a missing one with click 8.3 and later.
    """
    for param in params:
        if "process_value" not in vars(param):
            _hand_through(param)
    return params


def _hand_through(param: Any) -> None:
    def process_value(ctx: Any, value: Any) -> Any:
        # versions of click differ in the mark for a value that is absent
        if not isinstance(value, (str, bool, list, tuple)) or value == ():
            if param.required:
                name = param.metavar or param.human_readable_name
                raise UsageError(
                    f"missing {param.param_type_name} '{name}'", hint=f"see: {ctx.command_path} --help"
                )
            value = () if getattr(param, "multiple", False) or param.nargs == -1 else None
        return value if param.callback is None else param.callback(ctx, param, value)

    param.process_value = process_value


def spell_out(args: list[str], params: Iterable[Any], interspersed: bool, command: str) -> Iterator[str]:
    """Yields the words of a command line with each flag in full, and a flag's value as a word of its own.

    Args:
        args: the words after the command.
        params: the parameters of the command.
        interspersed: whether flags may come after the first word that is none.
        command: what was typed to get here, for the hint of an error.

    Raises:
        UsageError: a flag is unknown, ambiguous, or came twice.
    """
    spellings = {
        spelling: p for p in params for spelling in (*p.opts, *p.secondary_opts) if spelling[:1] == "-"
    }
    seen: set[str] = set()
    words = iter(args)
    for word in words:
        if word == "--" or (not interspersed and not _is_flag(word)):
            yield word
            yield from words
            return
        if not _is_flag(word):
            yield word
            continue
        name, equals, value = word.partition("=")
        if name not in spellings and word[1] != "-" and word[:2] in spellings:
            yield from _short(word, spellings, words, seen)
            continue
        full = _full_name(name, spellings, command)
        yield full
        if getattr(spellings[full], "is_flag", False):
            if equals:
                raise UsageError(f"{full} takes no value, got `{value}`")
            continue
        _once(full, spellings, seen)
        if equals:
            yield value
        else:
            yield _next(full, words)


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _short(word: str, spellings: dict[str, Any], words: Iterator[str], seen: set[str]) -> Iterator[str]:
    """Takes apart `-fn5` and `-slocal_cwd`: flags of one letter, the last with its value."""
    for at, letter in enumerate(word[1:], start=1):
        flag = f"-{letter}"
        if flag not in spellings:
            raise UsageError(f"unknown flag `{flag}` in `{word}`", hint=did_you_mean(word, spellings))
        yield flag
        if not getattr(spellings[flag], "is_flag", False):
            _once(flag, spellings, seen)
            rest = word[at + 1 :].removeprefix("=")
            if rest:
                yield rest
            else:
                yield _next(flag, words)
            return


def _next(flag: str, words: Iterator[str]) -> str:
    word = next(words, None)
    if word is None:
        raise UsageError(f"{flag} takes a value")
    return word


def _once(flag: str, spellings: dict[str, Any], seen: set[str]) -> None:
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
    found = {full for key, full in by_plain.items() if key.startswith(plain)}
    if not found or len(name) == len(dashes) or len({spellings[f].name for f in found}) > 1:
        if len(found) > 1:
            raise UsageError(f"`{name}` can mean {', '.join(sorted(found))}")
        raise UsageError(
            f"unknown flag `{name}`", hint=did_you_mean(name, spellings, f"see: {command} --help")
        )
    full = min(found, key=len)
    tell(f"note: {name} is short for {full}")
    return full
