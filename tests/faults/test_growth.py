"""Twice the input takes less than three times the work, for all that is called per line or per replica.

Work is counted, not timed: the instructions of Python, and the bytes that operations on :class:`Bytes` copy.
Add a row to CASES: a function that prepares an input of the given size, and returns the call to count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, SupportsIndex

import pytest

from torchx import excerpts
from torchx.errors import UsageError
from torchx.jobs.log_index import STDOUT, Piece
from torchx.jobs.log_lines import Lines, Member
from torchx.runner.changes import changes
from torchx.schedulers.local import archives, images
from torchx.schedulers.local.scheduler import create_dir_scheduler
from torchx.schedulers.shared.logs import Position, line_filter, select
from torchx.scheduling import logs
from torchx.scheduling import measurement as scheduling_usage
from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Sample
from torchx.scheduling.responses import DescribeAppResponse
from torchx.scheduling.stalls import StallRule
from torchx.services.rules import host_variables
from torchx.specs import AppDef, Role
from torchx.specs.checks import require_passable
from torchx.specs.status import AppState, AttemptStatus, ReplicaStatus, RoleStatus
from torchx.supervisor.policy import APPLICATION, REPLICA, Gang, RoleRules
from torchx.supervisor.services.probes import LineCheck
from torchx.supervisor.stalls.detection import StallWatch
from torchx.sweeps import logs as sweep_logs
from torchx.sweeps import results, runs

SIZE = 150
PIECE = 1000
"""Bytes of a piece of text without a line end."""


class Work:
    """Counts the instructions of Python while it is entered, and the bytes that are reported to it."""

    def __init__(self) -> None:
        self.amount = 0

    def __enter__(self) -> Work:
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(None)

    def _enter_frame(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

    def _count(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.amount += 1
        return self._count


class Bytes(bytes):
    """Bytes whose copies count as work, one for eight bytes."""

    work = Work()

    @classmethod
    def copied(cls, data: bytes) -> Bytes:
        cls.work.amount += len(data) // 8
        return cls(data)

    def __add__(self, other: Any) -> Bytes:
        return self.copied(bytes.__add__(self, other))

    def __radd__(self, other: Any) -> Bytes:
        if isinstance(other, bytearray):
            return NotImplemented  # it grows in place
        return self.copied(other + bytes(self))

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        found = bytes.__getitem__(self, key)
        return self.copied(found) if isinstance(found, bytes) else found

    def split(self, *given: Any) -> list[bytes]:
        return [self.copied(part) for part in bytes.split(self, *given)]


def chunks(count: int) -> Iterator[LogChunk]:
    for _ in range(count):
        yield LogChunk("r", 0, 1, Stream.STDOUT, 0.0, Bytes(b"x" * PIECE))


def drained(found: Iterator[Any] | Callable[[], Any]) -> Callable[[], object]:
    return lambda: sum(1 for _ in found) if isinstance(found, Iterator) else found()


Patch = Callable[[object, str, object], None]
Case = Callable[[int, Patch, Path], Callable[[], object]]


def lines_without_an_end(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    return drained(logs.lines_of(chunks(count)))


def whole_lines_without_an_end(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    return drained(logs.whole_lines(chunks(count)))


def lines_with_an_end(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    each = LogChunk("r", 0, 1, Stream.STDOUT, 0.0, Bytes(b"a line\n" * 10))
    return drained(logs.lines_of(iter([each] * count)))


def last_lines_without_an_end(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    return lambda: excerpts.last_lines(list(chunks(count)), 10)


def metrics_without_line_ends(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    patch(sweep_logs, "log_of", lambda *given: chunks(count))
    run: Any = type("Run", (), {"app_id": "a", "number": 1})
    return lambda: results.from_log(None, run, [results.parse_metric("x=1")])  # type: ignore[arg-type]


def pieces_of_a_local_log(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    lines = Lines(LogQuery(regex="x"))

    def add() -> None:
        for n in range(count):
            data = Bytes(b"a line\n" * 10)
            for _ in lines.add(Piece(n, 70 * n, 70, 0, 1, STDOUT, 0), data, Member("r", 0)):
                pass

    return add


def positions_in_a_log(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    position: Position[int] = Position()

    def note() -> None:
        for _ in range(count):
            position.note((1, "s", Bytes(b"x" * PIECE)))

    return note


def filtered_lines(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    keep = line_filter(LogQuery(regex="(a+)+b"), lambda moment: 0)
    lines = ((n, "s", b"a line") for n in range(count))
    return drained(select(lines, keep))


def probe_of_lines(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    check = LineCheck("ready")

    def feed() -> None:
        for _ in range(count):
            check.feed(1, Bytes(b"x" * PIECE))

    return feed


def progress_of_lines(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    watch = StallWatch(StallRule(60.0, progress="step"), folder / f"beats-{count}", 1)
    watch.started(0)

    def feed() -> None:
        for _ in range(count):
            watch.output(0, 1, Bytes(b"x" * PIECE + b"\n"))
        watch.close()

    return feed


def ends_before_the_next_role(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    first, second = range(count), range(count, 2 * count)
    gang = Gang(
        [RoleRules("first", first, 0, REPLICA), RoleRules("second", second, 0, REPLICA, after=("first",))]
    )
    gang.begin()
    for n in first:
        gang.started(n)

    def end() -> None:
        for n in first:
            gang.exited(n, True)

    return end


def ends_beside_services(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    servers, workers = range(count), range(count, 2 * count)
    gang = Gang(
        [
            RoleRules("server", servers, 0, REPLICA, service=True),
            RoleRules("worker", workers, 0, REPLICA, after=("server",)),
        ]
    )
    gang.begin()
    for n in servers:
        gang.started(n)
    for n in servers:
        gang.ready(n)
    for n in workers:
        gang.started(n)

    def end() -> None:
        for n in workers:
            gang.exited(n, True)

    return end


@pytest.mark.parametrize("policy", [REPLICA, APPLICATION])
def test_failures_that_are_retried_grow_with_their_number(policy: str) -> None:
    def failures(count: int) -> Callable[[], object]:
        gang = Gang([RoleRules("r", range(count), 1, policy)])
        gang.begin()
        for n in range(count):
            gang.started(n)

        def end() -> None:
            for n in range(count):
                gang.exited(n, False)

        return end

    assert_growth(failures)


def replicas_of_an_archive(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    patch(archives, "version_of", lambda url: "0" * 32)
    app = AppDef("a", [Role("r", "http://host.invalid/x.tar.gz", entrypoint="sh", num_replicas=count)])
    scheduler = create_dir_scheduler("s")
    return lambda: scheduler.submit_dryrun(app, {})


def events_of_replicas(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    attempts = [AttemptStatus(1, AppState.SUCCEEDED)]
    replicas = [ReplicaStatus(n, AppState.SUCCEEDED, "r", "h", attempts=attempts) for n in range(count)]
    described = DescribeAppResponse("a", AppState.SUCCEEDED, roles_statuses=[RoleStatus("r", replicas)])
    return drained(changes(lambda: described))


def hosts_of_replicas(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    return lambda: host_variables({"r": ",".join(["host"] * count)})


def checks_of_arguments(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    return lambda: require_passable("r", ["x"] * count, {f"V{n}": "x" for n in range(count)})


def measurements_of_replicas(count: int, patch: Patch, folder: Path) -> Callable[[], object]:
    each = ReplicaUsage("r", 0, 1, Sample(1.0, 1.0, 1.0, 1))
    usage = AppUsage(tuple(replace_replica(each, n) for n in range(count)), "/proc")
    return lambda: runs.usage_of(usage)


def replace_replica(usage: ReplicaUsage, number: int) -> ReplicaUsage:
    return usage._replace(replica=number)


CASES: list[Case] = [
    lines_without_an_end,
    whole_lines_without_an_end,
    lines_with_an_end,
    last_lines_without_an_end,
    metrics_without_line_ends,
    pieces_of_a_local_log,
    positions_in_a_log,
    filtered_lines,
    probe_of_lines,
    progress_of_lines,
    ends_before_the_next_role,
    ends_beside_services,
    replicas_of_an_archive,
    events_of_replicas,
    hosts_of_replicas,
    checks_of_arguments,
    measurements_of_replicas,
]


def work_of(call: Callable[[], object]) -> int:
    Bytes.work = Work()
    with Bytes.work as work:
        call()
    return work.amount


def assert_growth(prepare: Callable[[int], Callable[[], object]]) -> None:
    work_of(prepare(2))  # imports, caches
    once, twice = work_of(prepare(SIZE)), work_of(prepare(2 * SIZE))
    assert once > 0
    assert twice < 3 * once, f"{twice / once:.1f} times the work"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_twice_input_takes_less_than_three_times_work(
    case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def patch(target: object, name: str, value: object) -> None:
        monkeypatch.setattr(target, name, value)

    assert_growth(lambda count: case(count, patch, tmp_path))


def test_work_that_grows_with_the_square_is_found() -> None:
    def quadratic(count: int) -> Callable[[], object]:
        def call() -> None:
            data = b""
            for _ in range(count):
                data = data + Bytes(b"x" * PIECE)

        return call

    with pytest.raises(AssertionError, match="times the work"):
        assert_growth(quadratic)


def test_measurements_are_merged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []
    merge = scheduling_usage.merged

    def counted(samples: Any) -> Sample:
        merged.append(len(samples))
        return merge(samples)

    monkeypatch.setattr(scheduling_usage, "merged", counted)
    usage = AppUsage((ReplicaUsage("r", 0, 1, Sample(1.0, 1.0, 2.0, 3)),), "/proc")
    assert runs.usage_of(usage) == (3, 2.0, None)
    assert merged == [1]
    assert (usage.peak_memory, usage.mean_cpu) == (3, 2.0)
    assert merged == [1] * 3


def test_an_archive_is_looked_up_once_for_all_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []

    def version_of(url: str) -> str:
        requests.append(url)
        return "0" * 32

    monkeypatch.setattr(archives, "version_of", version_of)
    provider = images.LocalDirectoryImageProvider({})
    role = Role("r", "http://host.invalid/x.tar.gz", entrypoint="sh")
    for _ in range(100):
        provider.get_replica_param(provider.locate_role(role), role)
    assert len(requests) == 1


def test_a_line_without_an_end_is_yielded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LONGEST_LINE", 10)
    text = "é" * 20
    data = text.encode()
    parts = [replace(next(chunks(1)), data=data[at : at + 3]) for at in range(0, len(data), 3)]
    found = list(logs.lines_of(parts))
    assert len(found) > 2
    assert "".join(found) == text


def test_arguments_that_no_program_can_get_are_rejected() -> None:
    require_passable("r", ["x" * 131_071], {"A": "x" * 131_069})
    for args, env in ((["x" * 131_072], {}), ([], {"A": "x" * 131_070}), (["x" * 100_000] * 16, {})):
        with pytest.raises(UsageError, match="bytes; a program can get"):
            require_passable("r", args, env)
