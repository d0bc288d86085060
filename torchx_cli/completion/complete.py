"""Candidates for a partial command line, for the shells, which call `torchx __complete`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from torchx.command_line import same
from torchx.lazy import lazy_imports
from torchx.printable import one_line
from torchx_cli.command import flag_table
from torchx_cli.completion.offers import Offer, of_argument, of_component, of_flag
from torchx_cli.terminal.output import say

with lazy_imports:
    from torchx_cli import app


def complete(args: Sequence[str]) -> int:
    """Prints the candidates, one per line, each followed by a tab and its description, if any.

    Args:
        args: the shell, followed by the line up to the cursor (bash), or by the arguments after the
            program, the last one partial (other shells).
    """
    if args:
        shell, line = (args[0], list(args[1:]))
    else:
        shell, line = ("", [])
    bash = shell == "bash"
    if bash:
        line = split(line[0] if line else "")[1:]
    if not line:
        return 0
    current = line[-1]
    try:
        candidates = list(offers(line[:-1], current))
    except Exception:  # an error message would disturb the line being typed
        return 0
    seen: set[str] = set()
    for offer in candidates:
        if offer.text != one_line(offer.text):
            continue  # a shell would insert its control characters into the line
        if offer.text.startswith(current) and offer.text not in seen:
            seen.add(offer.text)
            description = one_line(offer.help)
            say(_for_bash(offer.text, current) if bash else f"{offer.text}\t{description}".rstrip("\t"))
    return 0


def split(line: str) -> list[str]:
    """Splits a partial command line; the last item is the partial argument.

    >>> split("torchx status ab"), split("torchx status "), split("torchx run 'a b")
    (['torchx', 'status', 'ab'], ['torchx', 'status', ''], ['torchx', 'run', 'a b'])
    """
    for quote in ("", "'", '"'):
        try:
            args = shlex.split(line + quote)
        except ValueError:
            continue
        ended = not quote and (not line or (line[-1].isspace() and not line.endswith("\\ ")))
        if ended:
            return [*args, ""]
        return args
    return []


def _for_bash(text: str, current: str) -> str:
    """Returns a candidate for bash: quoted, without the part before its last break character.

    >>> _for_bash("local_cwd://torchx/a-1", "local_cwd://t")
    '//torchx/a-1'
    """
    breaks = os.environ.get("COMP_WORDBREAKS", ":=")
    start = max((current.rfind(sign) + 1 for sign in ":=" if sign in breaks), default=0)
    rest = text[start:]
    return "".join(c if c.isalnum() or c in "_-./:=,@%+~" or ord(c) > 127 else "\\" + c for c in rest)


def offers(args: list[str], current: str) -> Iterator[Offer]:
    """Yields the candidates for a partial argument.

    Args:
        args: the arguments before it.
        current: the partial argument.
    """
    root = Line(app.build(), args)
    if root.pending is not None or not root.rest:
        if root.pending is None and not current.startswith("-"):
            yield from (Offer(name, text) for name, text in app.COMMANDS.items())
            return
        yield from root.offers("", current)
        return
    if root.rest[0] in app.COMMANDS and len(root.rest) == 1:
        yield from map(Offer, getattr(app.load(root.rest[0]), "commands", ()))
    parsed = parse(args, others=True)
    if parsed is not None:
        name, line = parsed
        yield from line.offers(name, current)


def parse(args: Sequence[str], *, others: bool = False) -> tuple[str, Line] | None:
    """Returns the command of a command line with its arguments, parsed leniently.

    Args:
        args: all arguments.
        others: the flags of features of other packages count too; without them, no feature is searched.

    Returns:
        The name of the command, such as ``status`` or ``config show``, and its arguments; None if the command
        is unknown or one of a plugin.
    """
    line = Line(app.build(), list(args))
    name, *rest = line.rest or [""]
    if name not in app.COMMANDS:
        return None
    command: Any = app.load(name)
    while (below := getattr(command, "commands", None)) is not None:
        line = Line(command, rest)
        if not line.rest or line.rest[0] not in below:
            return None
        command, rest = below[line.rest[0]], line.rest[1:]
        name = f"{name} {line.rest[0]}"
    if others and name == "run":
        command.add_flags()
    return name, Line(command, rest)


class Line:
    """The arguments after a command, parsed leniently.

    Args:
        command: the command.
        args: the arguments.
    """

    def __init__(self, command: Any, args: list[str]) -> None:
        interspersed = command.context_settings.get(
            "allow_interspersed_args", command.allow_interspersed_args
        )
        self._params = {p.name: p for p in command.params if p.param_type_name == "option"}
        self._table = flag_table(self._params.values(), interspersed, "", lenient=True)
        split = self._table.split(args)
        self.hits = split.hits
        self.values, self.rest, self.pending = split.values(), split.rest, split.pending
        self.given = {hit.flag.name for hit in split.hits}
        self._ended = split.ended

    def offers(self, command: str, current: str) -> Iterator[Offer]:
        """Yields the candidates for the partial argument."""
        if self.pending is not None:
            yield from of_flag(self.pending.name, command, current, self.values, self.rest)
        elif command == "run" and self.rest:
            yield from of_component(self.rest[0], self.rest[1:], current)
        elif self._ended or not current.startswith("-"):
            yield from of_argument(command, self.rest, current)
        elif "=" in current:
            spelling, _, value = current.partition("=")
            hit = self._table.exact.get(same(spelling))
            if hit is not None:
                for offer in of_flag(hit.flag.name, command, value, self.values, self.rest):
                    yield Offer(f"{spelling}={offer.text}", offer.help)
        else:
            for hit in self._table.exact.values():
                yield Offer(hit.spelling, self._params[hit.flag.name].help or "")
            yield Offer("--help", "Show the help of the command.")
