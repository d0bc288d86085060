"""Half a command line -> the words that may come next; called by the shells as `torchx __complete`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torchx.printable import one_line
from torchx_cli.completion.offers import Offer
from torchx_cli.terminal.output import say


def complete(args: Sequence[str]) -> int:
    """Prints the words that may come next, one a line, each with a tab and a remark where there is one.

    Args:
        args: the shell; then, of bash, the line up to the cursor, and of the others the words of it after
            the program, the last of them unfinished.
    """
    shell, words = (args[0], list(args[1:])) if args else ("", [])
    bash = shell == "bash"
    if bash:
        words = split(words[0] if words else "")[1:]
    if not words:
        return 0
    try:
        found = list(offers(words[:-1], words[-1]))
    except Exception:  # in the middle of a line that is being typed, no error helps
        return 0
    seen: set[str] = set()
    for offer in found:
        if offer.word != one_line(offer.word):
            continue  # a shell would put its control characters on the line
        if offer.word.startswith(words[-1]) and offer.word not in seen:
            seen.add(offer.word)
            remark = one_line(offer.help)
            say(_for_bash(offer.word, words[-1]) if bash else f"{offer.word}\t{remark}".rstrip("\t"))
    return 0


def split(line: str) -> list[str]:
    """Returns the words of half a line, the unfinished one last.

    >>> split("torchx status ab"), split("torchx status "), split("torchx run 'a b")
    (['torchx', 'status', 'ab'], ['torchx', 'status', ''], ['torchx', 'run', 'a b'])
    """
    for quote in ("", "'", '"'):
        try:
            words = shlex.split(line + quote)
        except ValueError:
            continue
        ended = not quote and (not line or (line[-1].isspace() and not line.endswith("\\ ")))
        return [*words, ""] if ended else words
    return []


def _for_bash(word: str, current: str) -> str:
    """Returns a word as bash wants it: quoted, without what stands before its last break.

    >>> _for_bash("local_cwd://torchx/a-1", "local_cwd://t")
    '//torchx/a-1'
    """
    breaks = os.environ.get("COMP_WORDBREAKS", ":=")
    start = max((current.rfind(sign) + 1 for sign in ":=" if sign in breaks), default=0)
    rest = word[start:]
    return "".join(c if c.isalnum() or c in "_-./:=,@%+~" or ord(c) > 127 else "\\" + c for c in rest)


def offers(words: list[str], current: str) -> Iterator[Offer]:
    """Yields what may stand in place of the unfinished word.

    Args:
        words: the words after the program and before the unfinished one.
        current: the unfinished word.
    """
    from torchx_cli.app import COMMANDS, build, load

    root = Line(words, _params(build()), nested=True)
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
    if below is not None:  # a group of commands
        if not rest:
            yield from (Offer(each, "") for each in below)
            return
        name, command, rest = f"{name} {rest[0]}", below[rest[0]], rest[1:]
    line = Line(rest, _params(command), nested=name == "run")
    yield from line.offers(name, current)


def _params(command: Any) -> list[Any]:
    return [param for param in command.params if getattr(param, "opts", None)]


class Line:
    """The words after a command, read as far as they go.

    Args:
        words: the words.
        params: what the command takes.
        nested: the first word that is no flag ends the flags, as the words after it are another's.
    """

    def __init__(self, words: list[str], params: Iterable[Any], nested: bool) -> None:
        options = [p for p in params if p.param_type_name == "option"]
        self.flags = {spelling: p for p in options for spelling in (*p.opts, *p.secondary_opts)}
        self.values: dict[str, list[str]] = {}
        self.rest: list[str] = []
        self.wants: Any = None
        """The flag whose value the unfinished word is."""
        left = iter(words)
        for word in left:
            if word == "--" or (nested and not word.startswith("-")):
                self.rest += [word] if word != "--" else []
                self.rest += left
                break
            if not word.startswith("-") or word == "-":
                self.rest.append(word)
                continue
            name, equals, value = word.partition("=")
            flag = self.flags.get(name)
            if flag is None or getattr(flag, "is_flag", False):
                continue
            given = value if equals else next(left, None)
            if given is None:
                self.wants = flag
            else:
                self.values.setdefault(flag.name, []).append(given)

    def offers(self, command: str, current: str) -> Iterator[Offer]:
        """Yields what may stand in place of the unfinished word."""
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
                    yield Offer(f"{name}={offer.word}", offer.help)
        elif current.startswith("-"):
            for spelling, flag in self.flags.items():
                yield Offer(spelling, getattr(flag, "help", None) or "")
            yield Offer("--help", "Show what the command takes.")
        else:
            yield from offers.of_argument(command, self.rest, current)
