"""Flags and arguments shared by several commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from torchx.command_line import ArgumentError
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.suggestions import did_you_mean

with lazy_imports:
    from torchx.specs import app_metadata, status


def option(*flags: str, metavar: str, help: str) -> Any:
    """Declares a flag with a value; an empty default is not part of the help."""
    return typer.Option(*flags, metavar=metavar, show_default=False, help=help)


def argument(*, metavar: str, help: str) -> Any:
    """Declares a positional argument; an empty default is not part of the help."""
    return typer.Argument(metavar=metavar, show_default=False, help=help)


_APPLICATION = "An application (handle, app id or a prefix of it, name, @last), one of its roles, or "

Handle = Annotated[
    str, argument(metavar="HANDLE", help="An application: handle, app id or a prefix of it, name, or @last.")
]
Replica = Annotated[
    str,
    argument(
        metavar="HANDLE[/ROLE[/REPLICA]]", help=f"{_APPLICATION}a replica of a role, as in @last/trainer/0."
    ),
]
LogTarget = Annotated[
    str,
    argument(
        metavar="HANDLE[/ROLE[/REPLICAS]]",
        help=f"{_APPLICATION}replicas of a role, as in @last/trainer/0,2-4.",
    ),
]
Output = Annotated[
    str, option("-o", "--output", metavar="FORMAT", help="Output format: text (default), json or yaml.")
]
Json = Annotated[bool, typer.Option("--json", help="Same as -o json.")]
OMITTED = "yes"
"""The value of a flag that is given without one, if its metavar begins with ``[=``."""
FULL = "full"
"""The value of `--dryrun` that shows all files."""
Dryrun = Annotated[
    str,
    option(
        "--dryrun",
        metavar="[=full]",
        help="Show the scheduler request without submitting it; full: with all files of the job.",
    ),
]
Detach = Annotated[
    bool, typer.Option("-d", "--detach", help="Return after submission; the application keeps running.")
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the application has ended (always on local schedulers).")
]
Log = Annotated[
    bool, typer.Option("--log", help="Like --wait, and stream the logs (always on local schedulers).")
]
Notify = Annotated[
    list[str],
    option(
        "--notify",
        metavar="TARGET",
        help="Notify this URL (JSON by POST) or cmd:PROGRAM ARGS, e.g. 'cmd:notify-send {name} {state}'; "
        "repeatable. none disables the configured ones.",
    ),
]
NotifyOn = Annotated[
    str, option("--notify-on", metavar="A,B", help="When: end, failure, stall (default: end,stall).")
]
Tags = Annotated[
    list[str],
    option(
        "--tag", metavar="NAME[=VALUE]", help="A tag, to find and compare runs, as in sweep=lr (repeatable)."
    ),
]
Note = Annotated[str, option("--note", metavar="TEXT", help="A note about this run.")]
WithTags = Annotated[
    list[str],
    option(
        "--tag",
        metavar="NAME[=VALUE]",
        help="Only applications with this tag; `sweep=lr*` works too (repeatable: with all of them).",
    ),
]
Preflight = Annotated[
    list[str],
    option(
        "--preflight",
        metavar="CHECK",
        help="Check the place of each replica before its program: gpu[:SIZE], disk[:SIZE], "
        "collective[:TIME], 'cmd:COMMAND' (repeatable).",
    ),
]
Stall = Annotated[
    str,
    option("--stall", metavar="TIME", help="Report replicas without output or heartbeat for so long: 10m."),
]
OnStall = Annotated[
    str, option("--on-stall", metavar="ACTION", help="With --stall: report (default), restart or cancel.")
]
Progress = Annotated[
    str,
    option("--progress", metavar="REGEX", help="With --stall: only log lines that match count as progress."),
]
Priority = Annotated[
    str, option("--priority", metavar="N", help="Priority in the queue of this machine: higher ones first.")
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Fail if the resources are not free, instead of waiting for them.")
]
TimeLimit = Annotated[
    str, option("--time-limit", metavar="TIME", help="End the application after this time, as in 24h.")
]
Notice = Annotated[
    str,
    option(
        "--notice",
        metavar="TIME[:SIGNAL]",
        help="Notify the programs so long before the time limit, by SIGUSR1 or this signal.",
    ),
]
Requeue = Annotated[
    str,
    option(
        "--requeue",
        metavar="A,B",
        help="Start it again after these causes: time-limit[:N] (N times, default 20), preempted, node.",
    ),
]
CheckpointDir = Annotated[
    str,
    option(
        "--checkpoint-dir",
        metavar="PATH",
        help="Folder for checkpoints, the same in all runs: $TORCHX_CHECKPOINT_DIR of the programs.",
    ),
]
RequestOutput = Annotated[
    str, option("-o", "--output", metavar="FORMAT", help="With --dryrun: json or yaml.")
]
ResultJson = Annotated[bool, typer.Option("--json", help="Print a JSON object instead of the handle.")]
Once = Annotated[
    str,
    option(
        "--once",
        metavar="NAME",
        help="Submit nothing if an application was submitted with this name and exists, whatever its state: "
        "print its handle, and continue as if it was submitted now.",
    ),
]
RetryOn = Annotated[
    list[str],
    option(
        "--retry-on",
        metavar="CAUSE,...",
        help="Retry only these failures: exit codes (3, 100-110), signals (SIGKILL), out-of-memory, node, "
        "preemption, image, log:REGEX in the last lines (repeatable; default: any).",
    ),
]
NoRetryOn = Annotated[
    list[str],
    option(
        "--no-retry-on",
        metavar="CAUSE,...",
        help="Never retry these failures; none for no such failure "
        "(default: usage-error,import-error,syntax-error,disk-full,preflight).",
    ),
]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Show changes until the application has ended.")]
OneScheduler = Annotated[str, argument(metavar="[SCHEDULER]", help="Only this scheduler (default: all).")]
States = Annotated[
    str,
    option("--state", metavar="A,B", help="Only applications in these states, as in running,failed."),
]
Name = Annotated[
    str, option("--name", metavar="NAME", help="Only applications of this name; `train*` works too.")
]
Cfg = Annotated[
    list[str],
    option(
        "-cfg",
        "--scheduler_args",
        metavar="K=V,...",
        help="Run options of the scheduler (repeatable). To list them: torchx runopts NAME",
    ),
]


def scheduler_option(help: str) -> Any:
    """Declares the flag for a scheduler."""
    return option("-s", "--scheduler", metavar="NAME", help=help)


def lines_option(help: str) -> Any:
    """Declares the flag for a number of lines."""
    return option("-n", "--lines", metavar="N", help=help)


def since_option(items: str) -> Any:
    """Declares the flag for the time of the first items."""
    times = "10m, 2h, today, yesterday, monday, or 2026-05-01T12:30"
    return option("--since", metavar="TIME", help=f"Only {items} since then: {times}.")


def until_option(items: str) -> Any:
    """Declares the flag for the time of the last items."""
    return option("--until", metavar="TIME", help=f"Only {items} before this time; same format as --since.")


def count(flag: str, text: str) -> int | None:
    """Parses the number given to a flag; None if the text is empty.

    Raises:
        UsageError: the text is not a non-negative integer.
    """
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise ArgumentError(f"{flag} takes a whole number, got `{text}`", flag=flag, given=text)
    return int(text)


def split_list(text: str) -> list[str]:
    """Splits a comma-separated list.

    >>> split_list(" a, b,")
    ['a', 'b']
    """
    return [item.strip() for item in text.split(",") if item.strip()]


def tags_given(texts: Sequence[str], origin: str = "--tag") -> dict[str, str]:
    """Returns the tags given as `NAME=VALUE`, or as `NAME` with an empty value.

    Raises:
        UsageError: a tag is invalid or given twice.

    >>> tags_given(["sweep=lr", "baseline"])
    {'sweep': 'lr', 'baseline': ''}
    """
    given: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name in given:
            raise ArgumentError(
                f"tag `{name}` is given twice (from {origin})", flag="--tag", given=text, code="repeated_flag"
            )
        given[name] = value
    try:
        app_metadata.check_tags(given)
    except UsageError as error:
        raise ArgumentError(f"{error.message} (from {origin})", flag="--tag", hint=error.hint) from None
    return given


def tags_text(tags: Mapping[str, str]) -> str:
    """Returns tags as one line, as the flags take them.

    >>> tags_text({"sweep": "lr", "baseline": ""})
    'sweep=lr, baseline'
    """
    return ", ".join(f"{name}={value}" if value else name for name, value in tags.items())


def tag_query(texts: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Returns the wanted tags: names, each with a pattern of the value, or None for any value.

    >>> tag_query(["sweep=l*", "baseline"])
    (('sweep', 'l*'), ('baseline', None))
    """
    parts = (text.partition("=") for text in texts)
    return tuple((name, value if equals else None) for name, equals, value in parts)


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
            raise ArgumentError(
                f"--state takes states, got `{state}`",
                flag="--state",
                given=state,
                hint=did_you_mean(state, known, "states: " + ", ".join(known)),
            )
    return frozenset(state.upper() for state in states)
