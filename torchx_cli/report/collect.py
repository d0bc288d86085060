"""Collect the data of a report: description, measurements, and the first failure with its last lines."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from torchx.errors import TorchxError
from torchx.runner import first_failure
from torchx.runner import sweeps as runner_sweeps
from torchx.runner.why.explain import rerun_command
from torchx.scheduling.responses import status_of
from torchx.stragglers import text
from torchx.sweeps import results
from torchx_cli.applications import short_name
from torchx_cli.sweep.table import rows_of
from torchx_cli.terminal import ending, measurement_text
from torchx_cli.terminal.app_data import as_data
from torchx_cli.terminal.masking import mask_text, remember

if TYPE_CHECKING:
    from torchx.json_limits import Data, Object
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.tracker.base import TrackerBase

LARGEST = sys.float_info.max
"""The largest number of a plot."""
LAST_LINES = 40
"""Number of log lines of the replica that failed first."""


Points = list[list[float]]
"""Values of a metric: each with its time, in seconds since the epoch, or with the number of its run."""


def collect(
    runner: Runner, handle: str, described: DescribeAppResponse, trackers: Sequence[TrackerBase] = ()
) -> Object:
    """Returns the data of a report as plain data with secrets masked.

    Args:
        runner: used to read measurements and logs.
        handle: the application.
        described: its full description.
        trackers: the trackers whose values are included.
    """
    data = as_data(handle, described)
    name = short_name(runner, handle)
    data["made_at"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
    data["commands"] = {
        "again": rerun_command(name, described.roles),
        "log": shlex.join(["torchx", "log", name]),
    }
    data["failure"] = _failure(runner, handle, described, name)
    data["usage"], data["usage_error"] = _usage(runner, handle)
    data["steps"] = mask_text("\n".join(text.lines_of(described.steps_dir)))
    data["runs"], data["metrics"] = [], {}
    if runner.scheduler_of(handle).has_runs:
        sweep = runner_sweeps.sweep_of(runner, handle, described)
        found = list(results.results(sweep, runner.scheduler, (), trackers, usual=True))
        rows, heads = rows_of(found)
        data["runs"] = [heads, *([mask_text(text) for text, _ in row] for row in rows)]
        data["metrics"] = _metrics((result.run.number, result.metrics) for result in found)
    else:
        with suppress(NotImplementedError, TorchxError, OSError, ValueError):
            data["metrics"] = _metrics(report for each in trackers for report in each.history(handle))
    return data


def _metrics(reports: Iterable[tuple[float, Mapping[str, object]]]) -> dict[str, Points]:
    """Returns the finite numbers in reports, by name."""
    found: dict[str, Points] = {}
    for place, values in reports:
        for name, value in values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST:
                found.setdefault(name, []).append([place, value])
    return found


def _failure(runner: Runner, handle: str, described: DescribeAppResponse, name: str) -> Data | None:
    status = status_of(described)
    first = status.first_failure
    if first is None:
        return None
    remember(described.roles)
    found = first_failure.evidence_of(runner, handle, status, LAST_LINES)
    return {
        "description": mask_text(ending.description(first, status)),
        "meaning": found.cause.advice if found.cause.signal else None,
        "rank": mask_text(found.description),
        "error_file": [mask_text(line) for line in found.error],
        "last_lines": [mask_text(line) for line in found.lines],
        "log": shlex.join(["torchx", "log", f"{name}/{found.replica}"]),
    }


def _usage(runner: Runner, handle: str) -> tuple[Object | None, str | None]:
    """Returns the measurements; the reason if the engine cannot be queried for them."""
    try:
        usage = runner.usage(handle)
    except (TorchxError, OSError) as error:
        return None, mask_text(f"{error}")
    if usage is None:
        return None, None
    roles = dict.fromkeys(replica.role for replica in usage.replicas)
    summary = {role: measurement_text.usage_line(usage.of_role(role)) for role in roles}
    return {**usage.to_json(samples=True), "summary": summary}, None
