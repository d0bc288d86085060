"""Flags and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from torchx.errors import UsageError

Handle = Annotated[
    str,
    typer.Argument(
        metavar="HANDLE",
        show_default=False,
        help="An application: its handle, its app id or the start of it, its name, or @last.",
    ),
]
Handles = Annotated[
    list[str],
    typer.Argument(
        metavar="HANDLE...",
        show_default=False,
        help="Applications: handles, app ids or the start of them, names, or @last.",
    ),
]
Replica = Annotated[
    str,
    typer.Argument(
        metavar="HANDLE[/ROLE[/REPLICA]]",
        show_default=False,
        help="Where: an application (handle, app id or the start of it, name, @last), a role of it, or a "
        "replica of a role, as in @last/trainer/0.",
    ),
]
LogTarget = Annotated[
    str,
    typer.Argument(
        metavar="HANDLE[/ROLE[/REPLICAS]]",
        show_default=False,
        help="Whose output: an application (handle, app id or the start of it, name, @last), or a "
        "role of it, or some replicas of a role, as in @last/trainer/0,2-4.",
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "-o", "--output", metavar="FORM", show_default=False, help="Print json or yaml in place of text."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The same as -o json.")]
Watch = Annotated[
    bool, typer.Option("-w", "--watch", help="Go on, and show what changes, until the application has ended.")
]
States = Annotated[
    str,
    typer.Option(
        "--state", metavar="A,B", show_default=False, help="Only those in these states, as in running,failed."
    ),
]
Scheduler = Annotated[
    str, typer.Option("-s", "--scheduler", metavar="NAME", show_default=False, help="The scheduler.")
]
Cfg = Annotated[
    list[str],
    typer.Option(
        "-cfg",
        "--scheduler_args",
        metavar="K=V,...",
        show_default=False,
        help="Run options of the scheduler; may be repeated. All of them: torchx runopts NAME",
    ),
]


def count(flag: str, text: str) -> int | None:
    """Reads the number that a flag was given; None for none.

    Raises:
        UsageError: it is no number of things.
    """
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{flag} takes a whole number, got `{text}`")
    return int(text)


def words(text: str) -> list[str]:
    """Splits a list such as `a,b`.

    >>> words(" a, b,")
    ['a', 'b']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def states_of(text: str) -> frozenset[str]:
    """Reads states such as `running,failed`; none means all.

    Raises:
        UsageError: there is no such state.

    >>> sorted(states_of("running,FAILED"))
    ['FAILED', 'RUNNING']
    """
    from torchx.specs.status import AppState

    known = [state.name.lower() for state in AppState if state.name != "UNSUBMITTED"]
    found = [word.lower() for word in words(text)]
    for word in found:
        if word not in known:
            from torchx.suggestions import did_you_mean

            raise UsageError(
                f"--state takes states, got `{word}`",
                hint=did_you_mean(word, known, "states: " + ", ".join(known)),
            )
    return frozenset(word.upper() for word in found)
