"""Flags of `torchx run` that set run options: rules of stalls, retries, time limit and queue, and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx.errors import UsageError
from torchx.machine.files import expanded

if TYPE_CHECKING:
    from torchx.specs.run_options import CfgVal, RunOptions, runopts

FLAGS = {
    "requeue_on": "--requeue",
    "notice": "--warn-before",
    "no_wait": "--no-queue",
    "progress": "--progress-regex",
}
"""The flags whose names differ from those of their run options."""

LOCAL = "local jobs do: -s local_cwd"
THIS_MACHINE = "these do: -s local_cwd, -s local_docker"
LACKS = (
    (("stall", "on_stall", "progress"), "does not detect stalls", THIS_MACHINE),
    (
        ("time_limit", "notice", "requeue_on", "checkpoint_dir"),
        "does not end applications by a time limit",
        LOCAL,
    ),
    (("retry_on", "no_retry_on"), "does not retry by cause", LOCAL),
    (("preflight",), "runs no checks before the program", LOCAL),
    (("priority", "no_wait"), "has no queue of this machine", THIS_MACHINE),
)
"""Run options, and the message and the hint about a scheduler that does not have them."""


def stall_options(stall: str, on_stall: str, progress: str) -> dict[str, CfgVal]:
    """Returns the run options of the given flags for the detection of stalls."""
    return _given(stall=stall, on_stall=on_stall, progress=progress)


def retry_options(retry_on: Sequence[str], no_retry_on: Sequence[str]) -> dict[str, CfgVal]:
    """Returns the run options of the given flags for the causes of retries."""
    given: dict[str, CfgVal] = {"retry_on": list(retry_on), "no_retry_on": list(no_retry_on)}
    return {name: value for name, value in given.items() if value}


def limit_options(time_limit: str, notice: str, requeue: str, checkpoint_dir: str) -> dict[str, CfgVal]:
    """Returns the run options of the given flags for the time limit."""
    folder = str(expanded(checkpoint_dir).absolute()) if checkpoint_dir else ""
    return _given(time_limit=time_limit, notice=notice, requeue_on=requeue, checkpoint_dir=folder)


def queue_options(priority: str, no_wait: bool) -> dict[str, CfgVal]:
    """Returns the run options of the given flags for the queue.

    Raises:
        UsageError: the priority is not a number.
    """
    options: dict[str, CfgVal] = {"no_wait": True} if no_wait else {}
    if priority:
        try:
            options["priority"] = int(priority)
        except ValueError:
            raise UsageError(f'--priority takes an integer, got "{priority}"') from None
    return options


def preflight_options(checks: Sequence[str]) -> dict[str, CfgVal]:
    """Returns the run options of the given flags for the checks before the program."""
    return {"preflight": list(checks)} if checks else {}


def _given(**options: str) -> dict[str, CfgVal]:
    return {name: value for name, value in options.items() if value}


def flag_options(rules: RunOptions, scheduler: str, opts: runopts) -> dict[str, CfgVal]:
    """Returns the run options of all these flags.

    Raises:
        UsageError: the scheduler does not have one of the options.
    """
    for name in rules:
        if name not in opts:
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            lacks, hint = next(row[1:] for row in LACKS if name in row[0])
            raise UsageError(f"{flag}: {scheduler} {lacks}", hint=hint)
    return dict(rules)
