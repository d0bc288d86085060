"""Flags of `torchx run` that set run options: rules of stalls, retries, time limit and queue, and checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchx.errors import RunOptionError, UsageError
from torchx.json_limits import without_empty
from torchx.lazy import lazy_imports
from torchx.machine.files import expanded
from torchx.settings import POLICIES
from torchx_cli.flags import OLDER_SPELLINGS, name_of
from torchx_cli.run_flags import RULES

with lazy_imports:
    from torchx_cli import hints

if TYPE_CHECKING:
    from torchx.json_limits import Data
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import CfgVal, RunOptions, runopts

_BOTH = "these do: -s local_cwd, -s local_docker"
_LOCAL = "local jobs do: -s local_cwd"

LACKS: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("stall", "on_stall", "progress"): ("does not detect stalls", _BOTH),
    ("straggler",): ("does not see the steps of ranks", f"{_BOTH}, -s slurm, -s gridengine"),
    ("time_limit", "notice", "requeue_on", "checkpoint_dir"): (
        "ends no application by a time limit",
        _LOCAL,
    ),
    ("retry_on", "no_retry_on"): ("does not retry by cause", _LOCAL),
    ("preflight",): ("runs no checks before the program", _LOCAL),
    ("avoid_bad_nodes",): ("has no nodes to choose from", "clusters do"),
    ("priority", "no_wait"): ("has no queue of this machine", _BOTH),
    (POLICIES,): ("runs no policies of other packages", _BOTH),
}
"""Run options, and the message and the hint about a scheduler that does not have them."""


def rule_options(flags: Data) -> dict[str, CfgVal]:
    """Returns the run options of the flags that are given.

    Raises:
        UsageError: the priority, or the steps of a straggler, are not a number.
    """
    options = without_empty({option: flags[name_of(row)] for option, row in RULES.items()})
    if "checkpoint_dir" in options:
        options["checkpoint_dir"] = str(expanded(options["checkpoint_dir"]).absolute())
    for name in options.keys() & {"priority", "straggler"}:
        try:
            options[name] = int(options[name])
        except ValueError:
            raise UsageError(f'--{name} takes an integer, got "{options[name]}"') from None
    return options


def flag_options(rules: RunOptions, scheduler: str, opts: runopts) -> dict[str, CfgVal]:
    """Returns the run options of all these flags.

    Raises:
        RunOptionError: the scheduler does not have one of the options.
    """
    for name in rules:
        if name not in opts:
            lacks, hint = next(row for names, row in LACKS.items() if name in names)
            raise RunOptionError(name, f"does not work with {scheduler}, which {lacks}", hint)
    return dict(rules)


def rule_notes(rules: RunOptions, app: AppDef, component: str) -> list[str]:
    """Returns notes about flags that have no effect on an application, and a time limit without a unit.

    Args:
        rules: the run options of the flags.
        app: the application.
        component: the name of its component; may be empty.
    """
    notes = []
    if "retry_on" in rules and not any(role.max_retries for role in app.roles):
        notes = [f"--retry-on has no effect: max_retries is 0; to retry: {hints.of_retries(component)}"]
    limit = str(rules.get("time_limit", ""))
    if re.fullmatch(r"\d+(\.\d+)?", limit, re.ASCII):
        notes.append(f"--time-limit {limit} is {limit} s")
    return notes


def flag_of(option: str, args: Sequence[str]) -> str:
    """Returns the flag of a run option as typed on a command line, or an empty string.

    >>> flag_of("notice", ["run", "--warn=5x"]), flag_of("notice", ["--notice", "5x"]), flag_of("stall", [])
    ('--warn', '--notice', '')
    """
    if option not in RULES:
        return ""
    flag = RULES[option].flag
    spellings = [flag, *(older for older, newer in OLDER_SPELLINGS.items() if newer == flag)]
    typed = (arg.partition("=")[0] for arg in args if arg[2:].rstrip("-") and arg.startswith("--"))
    return next((text for text in typed if any(name.startswith(text) for name in spellings)), "")
