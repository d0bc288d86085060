"""Flags and arguments shared by several commands."""

from __future__ import annotations

from typing import Annotated

import typer

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.suggestions import did_you_mean

with lazy_imports:
    from torchx.specs import status


Handle = Annotated[
    str,
    typer.Argument(
        metavar="HANDLE",
        show_default=False,
        help="An application: handle, app id or a prefix of it, name, or @last.",
    ),
]
Replica = Annotated[
    str,
    typer.Argument(
        metavar="HANDLE[/ROLE[/REPLICA]]",
        show_default=False,
        help="An application (handle, app id or a prefix of it, name, @last), one of its roles, or a "
        "replica of a role, as in @last/trainer/0.",
    ),
]
LogTarget = Annotated[
    str,
    typer.Argument(
        metavar="HANDLE[/ROLE[/REPLICAS]]",
        show_default=False,
        help="An application (handle, app id or a prefix of it, name, @last), one of its roles, or "
        "replicas of a role, as in @last/trainer/0,2-4.",
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FORMAT",
        show_default=False,
        help="Output format: text (default), json or yaml.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Same as -o json.")]
Dryrun = Annotated[bool, typer.Option("--dryrun", help="Show the scheduler request without submitting it.")]
Detach = Annotated[
    bool, typer.Option("-d", "--detach", help="Return after submission; the application keeps running.")
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the application has ended (always on local schedulers).")
]
Log = Annotated[
    bool, typer.Option("--log", help="Like --wait, and stream the logs (always on local schedulers).")
]
RequestOutput = Annotated[
    str,
    typer.Option("-o", "--output", metavar="FORMAT", show_default=False, help="With --dryrun: json or yaml."),
]
ResultJson = Annotated[bool, typer.Option("--json", help="Print a JSON object instead of the handle.")]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Show changes until the application has ended.")]
States = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="A,B",
        show_default=False,
        help="Only applications in these states, as in running,failed.",
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
        help="Run options of the scheduler (repeatable). To list them: torchx runopts NAME",
    ),
]


def count(flag: str, text: str) -> int | None:
    """Parses the number given to a flag; None if the text is empty.

    Raises:
        UsageError: the text is not a non-negative integer.
    """
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{flag} takes a whole number, got `{text}`")
    return int(text)


def split_list(text: str) -> list[str]:
    """Splits a comma-separated list.

    >>> split_list(" a, b,")
    ['a', 'b']
    """
    return [item.strip() for item in text.split(",") if item.strip()]


def states_of(text: str) -> frozenset[str]:
    """Parses a list of states; an empty one means all.

    Raises:
        UsageError: a state does not exist.

    >>> sorted(states_of("running,FAILED"))
    ['FAILED', 'RUNNING']
    """
    known = [state.name.lower() for state in status.AppState if state.name != "UNSUBMITTED"]
    states = [state.lower() for state in split_list(text)]
    for state in states:
        if state not in known:
            raise UsageError(
                f"--state takes states, got `{state}`",
                hint=did_you_mean(state, known, "states: " + ", ".join(known)),
            )
    return frozenset(state.upper() for state in states)
