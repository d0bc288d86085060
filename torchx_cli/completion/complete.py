"""Candidates for a partial command line, for the shells, which call `torchx __complete`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torchx.printable import one_line
from torchx_cli.completion.offers import Offer
from torchx_cli.terminal.output import say


def complete(args: Sequence[str]) -> int:
    """Prints the candidates, one per line, each followed by a tab and its description, if any.

    Args:
        args: the shell, followed by the line up to the cursor (bash), or by the arguments after the
            program, the last one partial (other shells).
    """
    shell, line = (args[0], list(args[1:])) if args else ("", [])
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
        return [*args, ""] if ended else args
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
    from torchx_cli.app import COMMANDS, build, load

    root = Line(args, _params(build()), nested=True)
    if root.wants is not None or not root.rest:
        if root.wants is None and not current.startswith("-"):
            yield from (Offer(name, text) for name, text in COMMANDS.items())
            return
        yield from root.offers("", current)
        return
    name, *rest = root.rest
    if name not in COMMANDS:
        return
    command = load(name)
    below = getattr(command, "commands", None)
    if below is not None:  # a command group
        if not rest:
            yield from (Offer(subcommand, "") for subcommand in below)
            return
        name, command, rest = f"{name} {rest[0]}", below[rest[0]], rest[1:]
    line = Line(rest, _params(command), nested=name == "run")
    yield from line.offers(name, current)


def _params(command: Any) -> list[Any]:
    return [param for param in command.params if getattr(param, "opts", None)]


class Line:
    """The arguments after a command, parsed leniently.

    Args:
        args: the arguments.
        params: the parameters of the command.
        nested: whether the first positional argument ends the flags of the command.
    """

    def __init__(self, args: list[str], params: Iterable[Any], nested: bool) -> None:
        options = [p for p in params if p.param_type_name == "option"]
        self.flags = {spelling: p for p in options for spelling in (*p.opts, *p.secondary_opts)}
        self.values: dict[str, list[str]] = {}
        self.rest: list[str] = []
        self.wants: Any = None
        """The flag whose value is being completed."""
        remaining = iter(args)
        for arg in remaining:
            if arg == "--" or (nested and not arg.startswith("-")):
                self.rest += [arg] if arg != "--" else []
                self.rest += remaining
                break
            if not arg.startswith("-") or arg == "-":
                self.rest.append(arg)
                continue
            name, equals, value = arg.partition("=")
            flag = self.flags.get(name)
            if flag is None or getattr(flag, "is_flag", False):
                continue
            given = value if equals else next(remaining, None)
            if given is None:
                self.wants = flag
            else:
                self.values.setdefault(flag.name, []).append(given)

    def offers(self, command: str, current: str) -> Iterator[Offer]:
        """Yields the candidates for the partial argument."""
        from torchx_cli.completion import offers

        if self.wants is not None:
            yield from offers.of_flag(self.wants.name, command, current, self.values, self.rest)
        elif command == "run" and self.rest:
            yield from offers.of_component(self.rest[0], self.rest[1:], current)
        elif current.startswith("-") and "=" in current:
            name, _, value = current.partition("=")
            flag = self.flags.get(name)
            if flag is not None:
                for offer in offers.of_flag(flag.name, command, value, self.values, self.rest):
                    yield Offer(f"{name}={offer.text}", offer.help)
        elif current.startswith("-"):
            for spelling, flag in self.flags.items():
                yield Offer(spelling, getattr(flag, "help", None) or "")
            yield Offer("--help", "Show the help of the command.")
        else:
            yield from offers.of_argument(command, self.rest, current)
