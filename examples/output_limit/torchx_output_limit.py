"""The feature ``output_limit``: ``torchx run --max-output 10MB`` ends a replica that prints more."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from torchx.end_causes import Reason
from torchx.errors import UsageError
from torchx.features import Feature, Flag, Values, values_of
from torchx.scheduling.findings import Finding, Verdict
from torchx.supervisor.policies import Application, Fail, Interest, Policy, Replica

UNITS = {"KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


class Row(TypedDict):
    """The limit for the output of each attempt of a replica."""

    max_bytes: int


class OutputLimit(Feature):
    """The flag, the row of `torchx status` and the check of `torchx doctor`."""

    flags = (Flag("--max-output", "SIZE", "End a replica that prints more than this, e.g. 10MB."),)
    row_type = Row

    def policies(self, values: Values) -> Sequence[str]:
        return ["torchx_output_limit:Limit"] if limit_of(values) else []

    def row(self, values: Values) -> Row:
        return {"max_bytes": limit_of(values)}

    def checks(self) -> Iterator[Finding]:
        free = shutil.disk_usage(Path.home()).free // UNITS["MB"]
        verdict = Verdict.GOOD if free > 100 else Verdict.WRONG
        yield Finding("disk", verdict, f"{free} MB are free for logs", "torchx prune removes old logs")


def limit_of(values: Values) -> int:
    """Returns the limit in bytes; 0 for none."""
    text = values.get("max_output", "0KB")
    found = re.fullmatch(r"(\d{1,9})(KB|MB|GB)", text, re.ASCII)
    if found is None:
        raise UsageError(f"--max-output takes a number of KB, MB or GB, got `{text}`", hint="e.g. 10MB")
    return int(found[1]) * UNITS[found[2]]


class Limit(Policy[Replica]):
    """Counts the output of each replica in the supervisor of the application."""

    def __init__(self, application: Application) -> None:
        self.most = limit_of(values_of(application.metadata, "output_limit"))
        self.printed: Counter[int] = Counter()

    def interest(self, ordinal: int) -> Interest:
        return Interest.LINES

    def started(self, replica: Replica) -> None:
        self.printed[replica.ordinal] = 0

    def output(self, ordinal: int, stream: int, data: bytes, at: float) -> None:
        self.printed[ordinal] += len(data)

    def due(self) -> Sequence[Fail]:
        full = tuple(ordinal for ordinal, size in self.printed.items() if size > self.most)
        for ordinal in full:
            del self.printed[ordinal]
        return [Fail(full, Reason(f"it printed more than {self.most} bytes"))] if full else []
