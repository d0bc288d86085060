"""Absence is not evidence: recorded folders of jobs with a file, a field or a string that is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from absence import check
from recorded import FOLDERS, QUEUES, mutations, of_folder, record_of, write_folder


def mutants(name: str, text: str) -> Iterator[str | None]:
    """Yields contents of a file; None for a file that is missing."""
    yield from (None, "", "NEWWORD")
    if name.endswith(".json"):
        for mutation in mutations(json.loads(text)):
            yield json.dumps(mutation.answer)


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("title", FOLDERS)
def test_nothing_ends_by_what_is_absent(title: str, queue: str, tmp_path: Path) -> None:
    files, record = FOLDERS[title]["files"], record_of(tmp_path, FOLDERS[title]["roles"])
    write_folder(tmp_path, files)
    then = of_folder(record, QUEUES[queue])
    for name, text in files.items():
        for mutant in mutants(name, text):
            if mutant is None:
                (tmp_path / name).unlink()
            else:
                (tmp_path / name).write_text(mutant, encoding="utf-8")
            check(then, of_folder(record, QUEUES[queue]), f"{name}: {mutant}")
        (tmp_path / name).write_text(text, encoding="utf-8")
