"""The parser of all command lines: commands, components and shell completion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from torchx.errors import UsageError
from torchx.suggestions import nearest

TRUE_TEXTS = frozenset({"true", "1", "yes", "on"})
FALSE_TEXTS = frozenset({"false", "0", "no", "off"})
_NUMBER = r"-(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?$|-inf$|-nan$"


UNKNOWN, NO_VALUE = "unknown_flag", "missing_value"
"""The codes of the errors about an unknown flag and a missing value."""


class FlagRow(NamedTuple):
    """A flag of ``torchx run`` in a table, which declares it without an import of its feature.

    Attributes:
        flag: its spellings, such as ``-d --detach``; the last one names its value: ``detach``.
        metavar: the form of its value; empty for a switch.
        help: its line of help.
        group: the title of its group on the help page.
        repeats: whether it may be repeated.
    """

    flag: str
    metavar: str
    help: str
    group: str = "Features of other packages"
    repeats: bool = False


class ArgumentError(UsageError):
    """An argument of a command or component is unknown, missing, repeated or has an invalid value.

    Args:
        message: the message.
        flag: the flag concerned; may be empty.
        hint: the next step for the user.
        code: the stable code of the cause.
        given: the given value, or None.
    """

    code = "invalid_value"

    def __init__(
        self,
        message: str,
        *,
        flag: str = "",
        hint: str | None = None,
        code: str | None = None,
        given: str | None = None,
    ) -> None:
        facts = {"flag": flag or None, "given": given}
        super().__init__(
            message, hint=hint, code=code, facts={k: v for k, v in facts.items() if v is not None}
        )
        self.flag = flag


class Flag(NamedTuple):
    """A flag of a command or component.

    Attributes:
        name: the parameter that it sets.
        spellings: its listed forms in full, the preferred one first: ``("--lr", "-l")``.
        takes: its value, in a sentence; empty for a switch.
        is_bool: whether the value is ``true`` or ``false``, may be omitted, and ``--no-`` means ``false``.
        repeats: whether it may be repeated; a switch always may.
        is_help: whether it requests help, and ends the parsing.
        otherwise: its value without ``=``; empty if it needs a value.
        exact: whether it has to be written in full.
        unlisted: older forms, which work in full and appear in no help, completion or suggestion.
    """

    name: str
    spellings: tuple[str, ...]
    takes: str = "a value"
    is_bool: bool = False
    repeats: bool = False
    is_help: bool = False
    otherwise: str = ""
    exact: bool = False
    unlisted: tuple[str, ...] = ()


class Hit(NamedTuple):
    """A flag on a command line.

    Attributes:
        flag: the flag.
        spelling: its form in full.
        negated: whether it is the ``--no-`` form of a bool.
        value: its value; None for a switch.
    """

    flag: Flag
    spelling: str
    negated: bool = False
    value: str | None = None


class Split:
    """A command line, split; at first an empty one.

    Attributes:
        hits: the flags, in order.
        rest: the positional arguments; without ``interspersed`` all arguments from the first one on.
        notes: a note for each abbreviated flag.
        ended: whether the flags have ended, so that all further arguments are positional.
        separated: the number of arguments after `--`.
        pending: the last flag if its value is missing (only if parsed leniently).
    """

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.rest: list[str] = []
        self.notes: list[str] = []
        self.ended = False
        self.separated = 0
        self.pending: Flag | None = None

    @property
    def wants_help(self) -> bool:
        """Whether help is requested."""
        return any(hit.flag.is_help for hit in self.hits)

    def values(self) -> dict[str, list[str]]:
        """Returns the values of each flag that has one, by parameter."""
        values: dict[str, list[str]] = {}
        for hit in self.hits:
            if hit.value is not None:
                values.setdefault(hit.flag.name, []).append(hit.value)
        return values


class FlagTable:
    """The flags of a command or component.

    Flags may be abbreviated where that is unambiguous, unless they are ``exact``; ``-`` and ``_`` within a
    flag are the same. Values follow as the next argument or after ``=``. ``--`` ends the flags.

    Args:
        flags: the flags; of equal spellings the first one counts.
        owner: added to errors about unknown flags, such as " for utils.echo".
        hints: added to the hints of these errors.
        interspersed: whether flags may follow a positional argument.
        positional: whether positional arguments are accepted.
        last_wins: use the last value of a repeated flag instead of rejecting it.
        lenient: skip errors, for a partial command line.
    """

    def __init__(
        self,
        flags: Iterable[Flag],
        *,
        owner: str = "",
        hints: Sequence[str] = (),
        interspersed: bool = False,
        positional: bool = True,
        last_wins: bool = False,
        lenient: bool = False,
    ) -> None:
        self._owner, self._hints = owner, hints
        self._interspersed, self._positional = interspersed, positional
        self._last_wins, self._lenient = last_wins, lenient
        self.exact: dict[str, Hit] = {}
        self._unlisted: dict[str, Hit] = {}
        for flag in flags:
            for spelling in flag.spellings:
                self.exact.setdefault(same(spelling), Hit(flag, spelling))
            for spelling in flag.unlisted:
                self._unlisted[same(spelling)] = Hit(flag, (*flag.spellings, spelling)[0])
        for hit in list(self.exact.values()):
            if hit.flag.is_bool and hit.spelling.startswith("--"):
                negative = "--no-" + hit.spelling[2:]
                self.exact.setdefault(same(negative), Hit(hit.flag, negative, negated=True))
        self._begun = {spelling: hit for spelling, hit in self.exact.items() if not hit.flag.exact}

    def split(self, args: Sequence[str]) -> Split:
        """Splits arguments into flags with values, and positional arguments.

        Raises:
            ArgumentError: a flag is unknown, ambiguous or repeated, or its value is missing.
        """
        split = Split()
        remaining = list(reversed(args))
        while remaining and not split.wants_help:
            arg = remaining.pop()
            if arg == "--":
                split.ended = True
                split.separated = len(remaining)
                break
            if not looks_like_flag(arg):
                split.rest.append(arg)
                if self._interspersed:
                    continue
                split.ended = True
                break
            try:
                for hit in self._read(arg, remaining, split):
                    self._check_repeated(hit, split)
                    split.hits.append(hit)
            except ArgumentError:
                if not self._lenient:
                    raise
        if split.ended:
            split.rest += reversed(remaining)
        return split

    def _read(self, arg: str, remaining: list[str], split: Split) -> Iterator[Hit]:
        """Yields the flags of an argument, and removes the values of these from the remaining ones."""
        name, equals, value = arg.partition("=")
        if self._exactly(name) is None and arg[1] != "-" and arg[:2] in self.exact:
            yield from self._combined(arg, remaining, split)
            return
        hit = self.find(name, split.notes)
        value = value or hit.flag.otherwise
        yield self._with_value(hit, value if equals or value else None, remaining, split)

    def _combined(self, arg: str, remaining: list[str], split: Split) -> Iterator[Hit]:
        """Yields combined single-letter flags such as `-fn5` and `-slocal_cwd`."""
        for at, letter in enumerate(arg[1:], start=1):
            hit = self.exact.get(f"-{letter}")
            if hit is None:
                raise self._unknown(f"-{letter}", f" in `{arg}`")
            if hit.flag.takes and not hit.flag.is_bool:
                rest = arg[at + 1 :]
                yield self._with_value(hit, rest.removeprefix("=") if rest else None, remaining, split)
                return
            yield hit._replace(value="true" if hit.flag.is_bool else None)
            if hit.flag.is_help:
                return

    def _with_value(self, hit: Hit, value: str | None, remaining: list[str], split: Split) -> Hit:
        """Returns a flag with its value, taken from the following argument if None is given."""
        flag = hit.flag
        if hit.negated or not flag.takes:
            if value is not None:
                raise ArgumentError(
                    f'{hit.spelling} takes no value, got "{value}"',
                    flag=hit.spelling,
                    code="unexpected_argument",
                )
            return hit._replace(value="false" if hit.negated else None)
        if value is not None:
            return hit._replace(value=value)
        following = remaining[-1] if remaining else None
        if flag.is_bool:
            return hit._replace(value=remaining.pop() if self._is_bool_value(following) else "true")
        if following is None:
            split.pending = flag
        if following is None or following == "--" or self._is_flag(following):
            raise ArgumentError(
                f"{hit.spelling} takes {flag.takes}, got nothing", flag=hit.spelling, code=NO_VALUE
            )
        if looks_like_flag(following):
            raise ArgumentError(
                f"{hit.spelling} takes {flag.takes}, and `{following}` looks like a flag",
                flag=hit.spelling,
                hint=f"if it is the value: {hit.spelling}={following}",
                code=NO_VALUE,
            )
        return hit._replace(value=remaining.pop())

    def _is_bool_value(self, following: str | None) -> bool:
        if following is None or following == "--" or looks_like_flag(following):
            return False
        # without positional arguments it can only be the value, and is rejected later if it is not a bool
        return not self._positional or following.strip().lower() in TRUE_TEXTS | FALSE_TEXTS

    def _is_flag(self, arg: str) -> bool:
        return looks_like_flag(arg) and self._exactly(arg.partition("=")[0]) is not None

    def _exactly(self, name: str) -> Hit | None:
        """Returns the flag with this form in full, listed or not."""
        key = same(name)
        return self.exact.get(key) or self._unlisted.get(key)

    def _check_repeated(self, hit: Hit, split: Split) -> None:
        flag = hit.flag
        if flag.repeats or self._last_wins or self._lenient or not flag.takes:
            return
        if any(other.flag.name == flag.name for other in split.hits):
            first = (*flag.spellings, hit.spelling)[0]
            raise ArgumentError(
                f"{first} is given twice; it takes one value", flag=first, code="repeated_flag"
            )

    def find(self, name: str, notes: list[str]) -> Hit:
        """Returns the flag for its full or abbreviated form.

        Args:
            name: the argument without a value.
            notes: receives a note if it is abbreviated.

        Raises:
            ArgumentError: it matches no flag, or more than one.
        """
        start = same(name)
        if found := self._exactly(name):
            return found
        dashes = "--" if start.startswith("--") else "-"
        hits = [
            hit
            for spelling, hit in self._begun.items()
            if spelling.startswith(start) and spelling.startswith("--") == (dashes == "--")
        ]
        if not start.startswith("--no_"):  # `--n` may be `--name` in spite of `--no-...` flags
            hits = [hit for hit in hits if not hit.negated] or hits
        if not hits or start == dashes:
            raise self._unknown(name)
        if len({(hit.flag.name, hit.negated) for hit in hits}) > 1:
            meant = ", ".join(hit.spelling for hit in hits)
            raise ArgumentError(
                f"`{name}` is ambiguous: {meant}", flag=name, hint="write it in full", code="ambiguous_flag"
            )
        notes.append(f"`{name}` was read as `{hits[0].spelling}`")
        return hits[0]

    def _unknown(self, name: str, where: str = "") -> ArgumentError:
        hints = []
        if near := self._near(name):
            hints = [f"did you mean `{near}`?"]
        hint = "   ".join([*hints, *self._hints]) or None
        return ArgumentError(f"unknown flag `{name}`{where}{self._owner}", flag=name, hint=hint, code=UNKNOWN)

    def _near(self, name: str) -> str | None:
        """Returns the flag that was probably intended; never a request for help."""
        known = {key: hit for key, hit in self.exact.items() if not hit.flag.is_help}
        letters = same(name).lstrip("-")
        if f"--{letters}" in known:
            return known[f"--{letters}"].spelling
        if len(letters) < 2:
            return None
        negated = letters.startswith("no_")  # `--no-detach` does not mean `--detach`
        by_letters = {
            key.lstrip("-"): hit.spelling
            for key, hit in known.items()
            if not negated or key.startswith("--no_")
        }
        close = nearest(letters, by_letters)
        return by_letters.get(close or "")


def same(arg: str) -> str:
    """Normalizes a flag: ``-`` and ``_`` within its name are the same.

    >>> same("--my-arg"), same("-cn")
    ('--my_arg', '-cn')
    """
    if arg.startswith("--"):
        return "--" + arg[2:].replace("-", "_")
    return arg


def looks_like_flag(arg: str) -> bool:
    """Returns True if an argument can only be a flag: a dash, and neither a number nor a sentence.

    >>> looks_like_flag("-n"), looks_like_flag("-5"), looks_like_flag("- a"), looks_like_flag("-")
    (True, False, False, False)
    """
    name = arg.partition("=")[0]
    return len(arg) > 1 and arg[0] == "-" and " " not in name and not re.match(_NUMBER, arg)
