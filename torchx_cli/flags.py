"""Flags and arguments shared by several commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from torchx.command_line import ArgumentError, FlagRow
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.suggestions import did_you_mean

with lazy_imports:
    import inspect

    from torchx.specs import app_metadata, status


def option(*flags: str, metavar: str, help: str, group: str | None = None) -> Any:
    """Declares a flag with a value; an empty default is not part of the help.

    Args:
        flags: its spellings.
        metavar: the form of its value.
        help: its line of help.
        group: the title of its group on the help page (default: "Options").
    """
    return typer.Option(*flags, metavar=metavar, show_default=False, help=help, rich_help_panel=group)


def switch(*flags: str, help: str, group: str | None = None) -> Any:
    """Declares a flag without a value."""
    return typer.Option(*flags, help=help, rich_help_panel=group)


def argument(*, metavar: str, help: str) -> Any:
    """Declares a positional argument; an empty default is not part of the help."""
    return typer.Argument(metavar=metavar, show_default=False, help=help)


def set_flags(function: Callable[..., object], rows: Iterable[FlagRow]) -> None:
    """Adds flags of a table to a command after its `arguments`; it gets their values by keyword."""
    function.__dict__.pop("__signature__", None)  # of an earlier call
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    after = list(signature.parameters).index("arguments") + 1
    own[after:after] = map(_parameter, rows)
    function.__dict__["__signature__"] = signature.replace(parameters=own)


def name_of(row: FlagRow) -> str:
    """Returns the name of a flag as a parameter, such as ``detach``."""
    return row.flag.rpartition(" ")[2].lstrip("-").replace("-", "_")


def _parameter(row: FlagRow) -> inspect.Parameter:
    """Returns the parameter of a row, whose annotation declares the flag."""
    kind: Any = str
    if row.repeats:
        kind = list[str]
    elif not row.metavar:
        kind = bool
    declared = typer.Option(
        *row.flag.split(),
        metavar=row.metavar or None,
        show_default=False,
        help=row.help,
        rich_help_panel=row.group,
    )
    form = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name_of(row), form, default=kind(), annotation=Annotated[kind, declared])


OLDER_SPELLINGS = {
    "--scheduler_args": "-cfg",
    "--buck-target": "--workspace",
    "--no-wait": "--no-queue",
    "--notice": "--warn-before",
    "--progress": "--progress-regex",
}
"""Spellings that work without being listed: those of TorchX, and those of 0.1, until 0.4."""

PROGRAM = "Program and files"
OUTPUT = "Output"
"""Groups of flags on the help pages of `run` and `rerun`; the others are in `run_flags`."""

_APPLICATION = "An application (handle, app id or a prefix of it, name, @last), one of its roles, or "

Handle = Annotated[
    str,
    argument(
        metavar="HANDLE",
        help="An application: handle, app id or a prefix of it, name, @last, or SWEEP/2 for run 2.",
    ),
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
OMITTED = {"[=full]": "short"}
"""The value of flags that are given without one, by their metavar."""
FULL = "full"
"""The value of `--dryrun` that shows all files."""
WithTags = Annotated[
    list[str],
    option(
        "--tag",
        metavar="NAME[=VALUE]",
        help="Only applications with this tag; `sweep=lr*` works too (repeatable: all must match).",
    ),
]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Show changes until the application ends.")]
OneScheduler = Annotated[str, argument(metavar="[SCHEDULER]", help="Only this scheduler (default: all).")]
States = Annotated[
    str,
    option("--state", metavar="A,B", help="Only applications in these states, as in running,failed."),
]
Name = Annotated[
    str, option("--name", metavar="NAME", help="Only applications with this name; `train*` works too.")
]


CFG = "Set run options of the scheduler (repeatable); torchx runopts NAME lists them."
Cfg = Annotated[list[str], option("-cfg", metavar="K=V,...", help=CFG)]

FOLD = "Print a line that several replicas share once, with their names."
SHOW = "Print only the logs of these replicas: rank0, last, all, 0,2-4, ROLE or ROLE/0."
Fold = Annotated[bool, switch("--fold", help=FOLD)]
Show = Annotated[str, option("--show", metavar="A,B", help=SHOW)]


def scheduler_option(help: str) -> Any:
    """Declares the flag for a scheduler."""
    return option("-s", "--scheduler", metavar="NAME", help=help)


def lines_option(help: str) -> Any:
    """Declares the flag for a number of lines."""
    return option("-n", "--lines", metavar="N", help=help)


def since_option(items: str) -> Any:
    """Declares the flag for the time of the first items."""
    times = "10m, 2h, today, yesterday, monday, or 2026-05-01T12:30"
    return option("--since", metavar="TIME", help=f"Only {items} since this time: {times}.")


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
        hint = None
        if text.startswith("-"):
            hint = "the smallest number is 0"
        raise ArgumentError(f"{flag} takes a whole number, got `{text}`", flag=flag, given=text, hint=hint)
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
