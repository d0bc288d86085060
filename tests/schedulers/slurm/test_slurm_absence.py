"""Absence is not evidence: recorded folders of jobs with a file, a field or a string that is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from absence import check
from clusterobjects import changed, paths_of, without

from torchx.schedulers.slurm.outcome import outcome_of, outcome_without_slurm
from torchx.schedulers.slurm.parse import JobFacts
from torchx.schedulers.slurm.record import SlurmRecord
from torchx.schedulers.slurm.status import describe
from torchx.scheduling.base import DescribeAppResponse

SUBMITTED = 1_795_880_000.0
RECORDED = json.loads(
    (Path(__file__).parents[2] / "resources" / "slurm" / "folders.json").read_text(encoding="utf-8")
)
QUEUES: dict[str, tuple[JobFacts, ...]] = {
    "off the queue": (),
    "running": (JobFacts(77, 0, "RUNNING", "", "a-b1", submitted=SUBMITTED, started=SUBMITTED),),
    "failed": (JobFacts(77, 0, "FAILED", "", "a-b1", submitted=SUBMITTED, started=SUBMITTED),),
}


def described(folder: Path, roles: list[dict[str, Any]], queue: tuple[JobFacts, ...]) -> DescribeAppResponse:
    app = {"name": "a", "roles": roles}
    record = SlurmRecord(77, "b1", "a", "a-b1", "torchx", str(folder), submitted_at=SUBMITTED, app=app)
    return describe(record, "77", outcome_of(record, queue) or outcome_without_slurm(record), queue)


def mutations(name: str, text: str) -> Iterator[str | None]:
    """Yields contents of a file; None for a file that is missing."""
    yield from (None, "", "NEWWORD")
    if not name.endswith(".json"):
        return
    data = json.loads(text)
    for path in paths_of(data)[1:]:
        yield json.dumps(without(data, path))
        value = data
        for key in path:
            value = value[key]
        if isinstance(value, str):
            yield json.dumps(changed(data, path, "NEWWORD"))


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("title", RECORDED)
def test_nothing_ends_by_what_is_absent(title: str, queue: str, tmp_path: Path) -> None:
    recorded = RECORDED[title]
    tmp_path.chmod(0o700)
    for name, text in recorded["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    then = described(tmp_path, recorded["roles"], QUEUES[queue])
    for name, text in recorded["files"].items():
        for mutant in mutations(name, text):
            if mutant is None:
                (tmp_path / name).unlink()
            else:
                (tmp_path / name).write_text(mutant, encoding="utf-8")
            check(then, described(tmp_path, recorded["roles"], QUEUES[queue]), f"{name}: {mutant}")
        (tmp_path / name).write_text(text, encoding="utf-8")
