"""Chooses the machine of a command line: `--context`, a handle, TORCHX_CONTEXT or `.torchxconfig`."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from torchx import json_shape, settings
from torchx.errors import UnreachableError, UsageError
from torchx.json_limits import load_json
from torchx.lazy import lazy_imports
from torchx.printable import one_line
from torchx_cli.contexts.connection import Connection, context_of, contexts
from torchx_cli.terminal.error_output import format_in
from torchx_cli.terminal.output import emit, note, say

with lazy_imports:
    from concurrent import futures

    from torchx.config import model
    from torchx_cli.contexts import client, ports

HERE = frozenset(
    [
        *("__complete", "context", "completion", "schema", "lint", "configure", "config", "builtins"),
        *("plugins", "runopts", "mcp", "help", "version"),
    ]
)
"""The commands that are about this machine."""
LOCAL = "local"
"""The name of this machine in a list of contexts."""
PATIENCE = 15.0
"""Seconds in which each machine must list its applications."""
_VALUED = ("--log_level", "--profile", "--context")
OF_PROGRAMS = ("run", "exec")


def dispatch(args: Sequence[str]) -> int | list[str]:
    """Runs a command line on the machine that it names, or returns the arguments to run here.

    Raises:
        UsageError: the context is unknown, or the arguments name several.
        UnreachableError: the machine cannot be reached.
    """
    name, rest = _chosen(list(args))
    command = next(iter(_words(rest)), "")
    asks_help = not command or bool(
        {"-h", "--help", "--version"}.intersection(rest[: rest.index(command) + 2])
    )
    if not name or asks_help or command in HERE:
        return rest
    if "," in name:
        if command not in ("list", "top"):
            raise UsageError("several contexts work with `list` and `top` only", code="conflicting_flags")
        return _list(name.split(","), rest)
    if command == "cp" or (command == "run" and "--stdin" not in rest):
        return ["--context", name, *rest]
    connection = Connection(context_of(name))
    connection.prepare()
    if command == "port":
        return ports.forward(connection, rest)
    reads = "--stdin" in rest or (command == "exec" and bool({"-i", "--stdin"}.intersection(rest)))
    return client.Command(connection, rest, stdin=None if reads else b"", raw=command == "exec").run()


def _words(args: Sequence[str]) -> list[str]:
    """Returns the arguments from the command on."""
    at = 0
    while at < len(args) and args[at].startswith("-"):
        at += 2 if args[at] in _VALUED else 1
    return list(args[at:])


def _chosen(args: list[str]) -> tuple[str, list[str]]:
    """Returns the name of the chosen context, empty for this machine, and the arguments without it."""
    named = _named(args)
    words = _words(args)
    first = args[: len(args) - len(words)]
    found, words = _of_handles(words)
    if named and found and found != named:
        raise UsageError(f"--context {named} does not fit a handle of {found}", code="conflicting_flags")
    name = named or found or os.environ.get(settings.TORCHX_CONTEXT, "")
    if not name and words[:1] != ["context"]:
        setting = model.examine_config(None)[0].get(model.OWN_SECTION, "context")
        name = setting.value if setting is not None else ""
    if name == LOCAL:
        name = ""
    return name, [*first, *words]


def _named(args: list[str]) -> str:
    """Removes the flag from the arguments, and returns its value; empty without it."""
    end = len(args)
    if (command := _words(args)) and command[0] in OF_PROGRAMS:
        end = len(args) - len(command) + 2  # the others are for a program
    for at, text in enumerate(args[:end]):
        flag, equals, value = text.partition("=")
        if flag == "--context":
            if not equals:
                value = "".join(args[at + 1 : at + 2])
            del args[at : at + (1 if equals else 2)]
            if not value:
                raise UsageError("--context takes the name of a context", hint="all: torchx context list")
            return value
        if text == "--":
            break
    return ""


def _of_handles(words: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the context that handles begin with, and the arguments with handles as on its machine."""
    known, found, rest = None, set(), list(words)
    for at, text in enumerate(words):
        match = re.fullmatch(r"([\w.-]+)\+([A-Za-z]\w*://[^/]*/.+)", text, re.DOTALL)
        if match and words[0] != "run":
            known = known if known is not None else contexts()
            if match[1] in known:
                found.add(match[1])
                rest[at] = match[2]
        if words[0] == "exec" and at and not text.startswith("-"):
            break  # the others are for a program
    if len(found) > 1:
        raise UsageError(
            f"the applications are on different machines: {', '.join(sorted(found))}",
            hint="use a command for each",
        )
    return next(iter(found), ""), rest


def _list(names: Sequence[str], args: list[str]) -> int:
    """Prints the applications of several machines, and names those that do not answer."""
    form = format_in(args)
    for name in names:
        if name != LOCAL:
            context_of(name)
    rows: list[object] = []
    failed = 0
    with futures.ThreadPoolExecutor(len(names)) as pool:
        answers = pool.map(_answer, names, itertools.repeat(args))
    for name, done in zip(names, answers, strict=True):
        if done is None or done.returncode:
            failed += 1
            why = f"no answer within {PATIENCE:.0f} s"
            if done is not None:
                why = one_line(done.stderr.partition("\n")[0].removeprefix("error: "))
            note(f"not reached: {name}: {why}")
        elif form == "json":
            rows += json_shape.items_at({"rows": load_json(done.stdout)}, dict, "rows")
        else:
            say(f"{name}:\n{done.stdout}", end="")
    if form == "json":
        emit(rows, "json")
    if failed == len(names):
        raise UnreachableError("no machine has answered")
    return 0


def _answer(name: str, args: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """Runs a command for a machine; returns None if it does not answer in time."""
    command, null = [sys.executable, "-m", "torchx_cli", "--context", name, *args], subprocess.DEVNULL
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(command, stdin=null, capture_output=True, text=True, timeout=PATIENCE)
    return None
