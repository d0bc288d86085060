"""Write the samples of a job: rounds are appended, and old ones merged when their number is reached."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from torchx.jobs.measurement import HEADER, LARGEST, MOST_ATTEMPTS, Row, decode, encode, rounds_kept
from torchx.machine import files
from torchx.scheduling.measurement import Sample, merged


class Round(NamedTuple):
    """Samples that were written together.

    Attributes:
        size: their bytes.
        begin: the earliest begin of their spans.
        end: the latest end.
    """

    size: int
    begin: float
    end: float


class UsageFile:
    """The file of samples of one job. A full disk or a removed folder loses samples, and nothing else.

    Args:
        path: the file; created with the first samples.
        replicas: the number of replicas of the job.
    """

    def __init__(self, path: Path, replicas: int) -> None:
        self._path = path
        self._replicas = replicas
        self._limit = rounds_kept(replicas)
        self._rounds: list[Round] = []

    def add(self, rows: Sequence[Row]) -> None:
        """Appends a round of samples; ignores errors."""
        if rows:
            with contextlib.suppress(OSError):
                if len(self._rounds) >= self._limit:
                    self._thin()
                self._append(_round_of(rows), b"".join(map(encode, rows)))

    def _append(self, added: Round, data: bytes) -> None:
        descriptor = files.open_file(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            if not size or size != len(HEADER) + sum(each.size for each in self._rounds):
                os.ftruncate(descriptor, 0)  # removed or changed by another program: begin again
                self._rounds, size, data = [], 0, HEADER + data
            if os.write(descriptor, data) == len(data):
                self._rounds.append(added)
            else:
                os.ftruncate(descriptor, size)  # a full disk; a part would misplace all later samples
        finally:
            os.close(descriptor)

    def _thin(self) -> None:
        """Merges old rounds; keeps at most three quarters of the limit, with the latest unchanged."""
        data = files.read_file(self._path, LARGEST)
        parts, kept = [HEADER], []
        position = len(HEADER)
        for group in group_rounds(self._rounds, self._limit):
            end = position + sum(each.size for each in group)
            rows = data[position:end]
            if len(group) > 1:  # most are merged already
                rows = b"".join(map(encode, merge_rows(decode(rows, self._replicas))))
            parts.append(rows)
            kept.append(Round(len(rows), group[0].begin, group[-1].end))
            position = end
        files.write_file(self._path, b"".join(parts))
        self._rounds = kept


def _round_of(rows: Sequence[Row]) -> Round:
    samples = [row.sample for row in rows]
    begin = min(sample.time - sample.span for sample in samples)
    return Round(len(rows) * len(HEADER), begin, max(sample.time for sample in samples))


def group_rounds(rounds: Sequence[Round], limit: int) -> list[list[Round]]:
    """Divides rounds into groups to merge: at most three quarters of `limit`, of equal durations.

    A third of them are the latest rounds, each a group of its own.
    """
    recent = limit // 4
    old, latest = rounds[:-recent], rounds[-recent:]
    groups: list[list[Round]] = []
    for each in old:
        # two neighbouring groups together are longer than this, so at most twice as many fit into the time
        longest = (old[-1].end - old[0].begin) / recent
        if groups and each.end - groups[-1][0].begin <= longest:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups + [[each] for each in latest]


def merge_rows(rows: Iterable[Row]) -> list[Row]:
    """Merges the samples of each attempt; keeps only the latest attempts of each replica."""
    samples: dict[int, dict[int, list[Sample]]] = {}
    for row in rows:
        samples.setdefault(row.replica, {}).setdefault(row.attempt, []).append(row.sample)
    return [
        Row(replica, attempt, merged(attempts[attempt]))
        for replica, attempts in samples.items()
        for attempt in sorted(attempts)[-MOST_ATTEMPTS:]
    ]
