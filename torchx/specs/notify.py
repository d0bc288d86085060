"""Notifications that an application requests: where they are sent, and when."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from torchx.errors import UsageError
from torchx.printable import has_controls
from torchx.suggestions import did_you_mean

__all__ = ["Notify"]

KINDS = ("end", "failure", "stall", "straggler")
"""The kinds of notifications: the application has ended, has failed, is stalled, or has a slow rank."""

DEFAULT_KINDS = ("end", "stall", "straggler")
COMMAND = "cmd:"
PLACEHOLDERS = ("name", "state", "handle", "app", "message", "exit_code")
"""The names in braces that are replaced in an argument of a command."""

_WORD = "[a-z]{1,12}"
"""A target that is too short to hold a secret."""

_FOR_SHELL = re.compile(r"\d?>>?[^\s>]*|<|\|\|?|&&?|;")
"""An argument that only a shell understands."""

MOST_TARGETS = 20
LONGEST_TARGET = 8192


@dataclass(frozen=True, init=False, repr=False)
class Notify:
    """Notifications about an application, each sent at most once.

    Its ``repr`` contains no secrets.

    Attributes:
        targets: where to send them: URLs, which get JSON by POST, and commands as ``cmd:PROGRAM ARGS``, which
            run without a shell. ``{name}``, ``{state}``, ``{handle}``, ``{app}``, ``{message}`` and
            ``{exit_code}`` in an argument of a command are replaced.
        on: the kinds: ``end``, ``failure``, ``stall`` and ``straggler``.

    Raises:
        UsageError: a target or a kind is invalid.

    >>> Notify(["https://hooks.example.com/T00/secret", "cmd:echo {name}"], ["end"])
    Notify(https://hooks.example.com, cmd:echo; on end)
    """

    targets: tuple[str, ...]
    on: tuple[str, ...] = DEFAULT_KINDS

    def __init__(self, targets: Iterable[str], on: Iterable[str] = DEFAULT_KINDS) -> None:
        # frozen: a plan must not change after it was checked
        object.__setattr__(self, "targets", tuple(dict.fromkeys(targets)))
        object.__setattr__(self, "on", tuple(dict.fromkeys(on)))
        if not 0 < len(self.targets) <= MOST_TARGETS:
            raise UsageError(f"notifications take 1 to {MOST_TARGETS} targets, got {len(self.targets)}")
        for target in self.targets:
            _check(target)
        for kind in self.on or ("",):
            if kind not in KINDS:
                hint = did_you_mean(kind, KINDS, f"kinds: {', '.join(KINDS)}")
                raise UsageError(
                    f"notifications cannot be sent on `{kind}`", hint=hint, facts={"flag": "--notify-on"}
                )

    @classmethod
    def recorded(cls, targets: Iterable[str], on: Iterable[str]) -> Notify:
        """Returns a recorded plan, whose programs may no longer exist."""
        plan = object.__new__(cls)
        object.__setattr__(plan, "targets", tuple(targets))
        object.__setattr__(plan, "on", tuple(kind for kind in on if kind in KINDS))
        return plan

    def __repr__(self) -> str:
        return f"Notify({', '.join(map(shown, self.targets))}; on {', '.join(self.on)})"


def shown(target: str) -> str:
    """Returns a target for display: without the parts that may hold secrets.

    >>> shown("https://me:secret@hooks.example.com:8443/T00/B00?key=1"), shown("cmd:curl -H 'token: x'")
    ('https://hooks.example.com:8443', 'cmd:curl')
    >>> shown("slack"), shown("hooks.example.com/T00/secret")
    ('slack', '********')
    """
    if target.startswith(COMMAND):
        return COMMAND + next(iter(target[len(COMMAND) :].split()), "")
    scheme, separator, rest = target.partition("://")
    if not separator:
        return "*" * 8 * (re.fullmatch(_WORD, target) is None) or target
    place = rest.replace("?", "/").replace("#", "/").partition("/")[0]
    return f"{scheme}://{place.rpartition('@')[2]}"


def command_of(target: str) -> list[str]:
    """Returns the program and the arguments of a command.

    Raises:
        ValueError: a quote is not closed.
    """
    return shlex.split(target[len(COMMAND) :])


def _check(target: str) -> None:
    """Checks a target.

    Raises:
        UsageError: it is invalid; the message contains no secrets.
    """
    if len(target) > LONGEST_TARGET:
        raise UsageError(f"{shown(target)}: is longer than {LONGEST_TARGET} characters")
    if target.startswith(COMMAND):
        _check_command(target)
        return
    expected = "an http or https URL, or cmd:PROGRAM ARGS"
    try:
        url = urlsplit(target)
        host, _ = url.hostname, url.port
    except ValueError as error:  # an invalid port or address
        raise UsageError(
            f"{shown(target)} is not a valid URL: {error}", hint=f"expected {expected}"
        ) from None
    if url.scheme not in ("http", "https") or not host:
        raise UsageError(
            f"notifications are sent to {expected}; got `{shown(target)}`",
            hint="e.g. --notify https://hooks.example.com/T00   or --notify 'cmd:notify-send {name} {state}'",
        )
    if has_controls(target) or not target.isascii() or any(c.isspace() or c == "{" for c in target):
        raise UsageError(
            f"{shown(target)}: a URL has no spaces, placeholders, control characters or non-ASCII characters"
        )
    if url.username is not None:
        raise UsageError(
            f"{shown(target)}: the URL of a notification cannot have a user",
            hint="pass a token in the path or the query, or use cmd:curl",
        )


def _check_command(target: str) -> None:
    try:
        command = command_of(target)
    except ValueError as error:
        raise UsageError(f"{shown(target)}: cannot be split into arguments: {str(error).lower()}") from None
    if not command:
        raise UsageError(
            "the command of a notification is empty", hint="e.g. 'cmd:notify-send {name} {state}'"
        )
    if "\0" in target:
        raise UsageError(f"{shown(target)}: an argument has a zero byte")
    unknown = {*re.findall(r"(?<!\$)\{(\w+)\}", target)} - {*PLACEHOLDERS}
    if unknown:
        raise UsageError(
            f"--notify: {shown(target)} has the unknown placeholder `{{{min(unknown)}}}`",
            hint=did_you_mean(min(unknown), PLACEHOLDERS, f"placeholders: {', '.join(PLACEHOLDERS)}"),
        )
    for_shell = next(filter(_FOR_SHELL.fullmatch, command), None)
    if for_shell:
        raise UsageError(
            f"{shown(target)}: the command runs without a shell, which `{for_shell}` needs",
            hint="with one: --notify 'cmd:sh -c \"echo {name} > file\"'",
        )
    if shutil.which(command[0]) is None:
        raise UsageError(f"{shown(target)}: the program `{command[0]}` was not found on this machine")
