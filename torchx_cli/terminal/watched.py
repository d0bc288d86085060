"""The parts that `status` and `describe` share: measurements, first failure, changes until the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.runner.status import status_of
from torchx_cli.applications import short_name
from torchx_cli.terminal.ending import failure_lines
from torchx_cli.terminal.output import is_terminal, say

with lazy_imports:
    from torchx_cli.terminal import measurement_text, watch

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.scheduling.measurement import AppUsage
    from torchx.specs.status import AppStatus


def usage_of(runner: Runner, handle: str, *, watched: bool = False) -> AppUsage | None:
    """Returns the measurements; None while watching an engine that would be queried for them."""
    if watched and not runner.scheduler_of(handle).cheap_to_list:
        return None
    return measurement_text.usage_of(runner, handle)


def failure_of(runner: Runner, handle: str, status: AppStatus) -> list[str]:
    """Returns the lines about the first failure, if any: those of the status have its message."""
    if status.first_failure is None:
        return []
    return failure_lines(runner, handle, status, sys.stdout, name=short_name(runner, handle))


def show_changes(
    runner: Runner,
    handle: str,
    described: DescribeAppResponse,
    lines_of: Callable[[DescribeAppResponse], list[str]],
) -> None:
    """Shows an application until it has ended; `lines_of` formats it for a terminal, with its failure."""
    last = watch.watch(runner, handle, described, lines_of)
    if last is not None and not is_terminal(sys.stdout):
        for line in failure_of(runner, handle, status_of(last)):
            say(line)


def check_watch_format(form: str) -> None:
    """Checks that the output format can be used with --watch.

    Raises:
        UsageError: the format is not text.
    """
    if form != "text":
        raise UsageError(
            f"--watch cannot be combined with -o {form}",
            hint="for the final result as JSON: torchx wait -o json",
            code="conflicting_flags",
        )
