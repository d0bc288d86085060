"""When replicas count as stalled: output, heartbeats, matching lines, and a clock that the tests set."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from torchx import distributed, settings
from torchx.machine.processes import Process
from torchx.scheduling import patterns
from torchx.scheduling.stalls import StallRule
from torchx.specs.status import EndCause, Reason
from torchx.supervisor.policies import Fail, Order, Replica
from torchx.supervisor.stalls import actions as stall_actions
from torchx.supervisor.stalls import detection as stalls
from torchx.supervisor.stalls.detection import SLOT, Stall, StallWatch, describe

STALLED = Reason("stalled for 10 s", EndCause.STALLED)


class Clock:
    """A clock in place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stalls, "time", clock)
    return clock


class Job:
    """A watched job of some replicas with a limit of 10 seconds."""

    def __init__(self, path: Path, clock: Clock, count: int, progress: str = "") -> None:
        self.clock, self.path = clock, path
        self.watch = StallWatch(StallRule(10.0, progress=progress), path, count)
        for ordinal in range(count):
            self.watch.started(ordinal)

    def after(self, seconds: float) -> Stall | None:
        """Lets time pass until the supervisor would check at the latest; returns the stall that it finds."""
        end, found = self.clock.now + seconds, None
        while self.clock.now < end:
            pause = self.watch.pause()
            assert pause is not None
            self.clock.now = min(end, self.clock.now + max(pause, 0.001))
            found = self.watch.check() or found
        return found

    def prints(self, ordinal: int, data: bytes = b"line\n", stream: int = 1) -> None:
        self.watch.output(ordinal, stream, data)

    def beats(self, ordinal: int, step: int = -1) -> None:
        with self.path.open("r+b") as file:
            file.seek(ordinal * SLOT.size)
            file.write(SLOT.pack(int(self.clock.now * 1e9), step))


@pytest.fixture
def jobs(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def make(count: int = 2, progress: str = "") -> Job:
        made.append(Job(tmp_path / "heartbeats", clock, count, progress))
        return made[-1]

    yield make
    for job in made:
        job.watch.close()


def test_silence_is_a_stall_once(jobs: Callable[..., Job]) -> None:
    job = jobs()
    assert job.after(9.9) is None
    stall = job.after(0.2)
    assert stall is not None
    assert (stall.replicas, round(stall.seconds), stall.step) == ((0, 1), 10, None)
    assert [job.watch.stalled, job.after(100)] == [(0, 1), None], "one report"
    job.prints(0)
    assert [job.after(1.1), job.watch.stalled] == [None, ()]
    assert job.after(9.9) is not None, "a further stall"


def test_output_of_one_replica_is_progress_of_all(jobs: Callable[..., Job]) -> None:
    job = jobs()
    for _ in range(5):
        assert job.after(9) is None
        job.prints(0)


def test_a_replica_with_heartbeats_has_its_own_clock(jobs: Callable[..., Job]) -> None:
    """Replica 2 has never beaten: those that do vouch for it."""
    job = jobs(3)
    found = []
    for step in range(4):
        job.beats(0, step)
        if step < 2:
            job.beats(1, step)
        found.append(job.after(6))
    assert found[:2] == [None, None]
    (stall,) = filter(None, found)
    assert (stall.replicas, stall.step) == ((1,), 1)


def test_progress_that_was_not_seen_makes_a_further_stall(jobs: Callable[..., Job]) -> None:
    job = jobs(1)
    assert job.after(11) is not None
    job.beats(0, 5)
    job.clock.now += 11  # the supervisor was late
    stall = job.watch.check()
    assert stall is not None
    assert stall.step == 5


def test_slow_heartbeats_are_progress_without_output(jobs: Callable[..., Job]) -> None:
    job = jobs(1)
    for step in range(10):
        job.beats(0, step)
        assert job.after(9.5) is None
    stall = job.after(1)
    assert stall is not None
    assert stall.step == 9


def test_only_matching_lines_count(jobs: Callable[..., Job]) -> None:
    job = jobs(2, r"step \d+")
    job.prints(0, b"loading\n")
    assert job.after(500) is None, "the clock begins with the first matching line"
    job.prints(0, b"st")
    job.prints(1, b"ep 2\n")
    job.prints(0, b"ep 1\n")
    assert job.after(9) is None
    job.prints(0, b"warning\n")
    stall = job.after(2)
    assert stall is not None
    assert stall.replicas == (0, 1)


def test_an_attempt_begins_anew(jobs: Callable[..., Job]) -> None:
    job = jobs(1)
    job.beats(0, 7)
    assert job.after(9) is None
    assert job.watch.pause() is not None
    job.watch.ended(0)
    assert job.watch.pause() is None, "nothing runs"
    job.clock.now += 500
    assert job.watch.check() is None
    job.watch.started(0)
    stall = job.after(11)
    assert stall is not None
    assert stall.step is None, "the heartbeat of the earlier attempt does not count"


def test_a_heartbeat_before_the_start_was_noticed_counts(jobs: Callable[..., Job]) -> None:
    job = jobs(1)
    job.beats(0, 3)
    job.clock.now += 1
    job.watch.started(0, since=job.clock.now - 2)
    stall = job.after(11)
    assert stall is not None
    assert stall.step == 3


def test_the_supervisor_wakes_up_once_per_limit(jobs: Callable[..., Job]) -> None:
    job = jobs(1)
    assert job.watch.check() is None
    assert job.watch.pause() == 10.0
    job.clock.now += 4
    job.prints(0)
    assert job.watch.pause() == 6.0, "output alone causes no check"


@pytest.fixture
def heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_heartbeat", None), ("_looked", False)):
        monkeypatch.setattr(distributed, name, value)


def test_a_pattern_that_takes_too_long_is_given_up(
    jobs: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "MOST_CPU", 0.02)
    handler = signal.getsignal(signal.SIGVTALRM)
    job = jobs(1, progress="(a+)+$")
    job.prints(0, b"a" * 60 + b"b\n")
    assert job.after(9) is None
    job.prints(0, b"any\n")  # now counts
    assert job.after(9.9) is None
    assert job.after(0.2) is not None
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0
    assert signal.getsignal(signal.SIGVTALRM) is handler


class Reacting(stall_actions.Stalls[Replica]):
    """Notes the replicas whose stacks its report lacks; its reporter has the pid 7."""

    aborted: Sequence[int] = ()

    def start_report(self) -> Process:
        return Process(7, 1)

    def abort(self, order: Order, replicas: Sequence[int]) -> None:
        self.aborted = replicas


def test_action_affects_only_replicas_stalled_when_due(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_actions, "time", clock)
    job = Job(tmp_path / "beats", clock, 3)
    rule, names = StallRule(10.0, "restart"), ["w/0", "w/1", "w/2"]
    acting = Reacting(rule, tmp_path / "beats", names, lambda *a, **k: None, clock.monotonic)
    try:
        for ordinal in range(3):
            acting.started(Replica(ordinal, 1, clock.now))
        job.beats(0)
        job.beats(1)
        clock.now += 3.0
        job.beats(2)
        clock.now += 7.5
        assert not acting.due(), "the report on 0 and 1 is being written"
        clock.now += 3.0
        assert not acting.due(), "2 stalls too"
        clock.now += 0.5
        job.beats(0)  # less than a second before the action
        usage = resource.getrusage(resource.RUSAGE_SELF)
        assert acting.reaped(7, 0, usage)  # the first report, after which another one is written
        assert not acting.due()
        assert acting.reaped(7, 3 << 8, usage)
        assert acting.due() == [Fail((1, 2), STALLED)]
        assert acting.aborted == (1, 2), "the report lacks stacks"
        assert not acting.due()
    finally:
        acting.close()
        job.watch.close()


@pytest.mark.usefixtures("heartbeat")
def test_a_program_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = StallWatch(StallRule(10.0), tmp_path / "heartbeats", 3)
    for ordinal in range(3):
        watch.started(ordinal)
    monkeypatch.setenv(settings.TORCHX_HEARTBEAT, watch.variables(1)[settings.TORCHX_HEARTBEAT])
    distributed.beat(step=4183)
    assert [watch._beat(n)[1] for n in range(3)] == [None, 4183, None]
    distributed.beat()
    assert watch._beat(1)[0] > 0
    assert watch._beat(1)[1] is None
    watch.close()
    assert not (tmp_path / "heartbeats").exists()
    distributed.beat(5)  # the job has ended, the program not yet


@pytest.mark.usefixtures("heartbeat")
@pytest.mark.parametrize(
    "value", ["", "0:", "x:/tmp", "0:/no/such/file", "0:{empty}", "64:{small}", "0:{folder}"]
)
def test_without_a_supervisor_a_beat_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    (tmp_path / "empty").touch(0o600)
    (tmp_path / "small").write_bytes(bytes(64))
    os.chmod(tmp_path / "small", 0o600)
    paths = {"empty": tmp_path / "empty", "small": tmp_path / "small", "folder": tmp_path}
    monkeypatch.setenv(settings.TORCHX_HEARTBEAT, value.format(**paths))
    distributed.beat(1)
    distributed.beat(2)
    assert (tmp_path / "small").read_bytes() == bytes(64)


def test_messages_name_the_missing_part() -> None:
    assert describe(Stall((0, 1), 725.0, None), "progress") == "no progress for 12 min"
    assert describe(Stall((0, 1), 3.0, 4), "output") == "no output for 3 s (step 4)"


@pytest.mark.parametrize(
    ("progress", "count", "message"),
    [("", 1, "w/0: no output for 10 s"), ("x", 3, "w/0 and 2 more: no progress for 10 s")],
)
def test_the_record_of_a_stall_names_its_replicas(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, progress: str, count: int, message: str
) -> None:
    noted: dict[str, object] = {}
    names = [f"w/{ordinal}" for ordinal in range(count)]
    rule = StallRule(10.0, progress=progress)
    note = lambda event, **facts: noted.update(facts)  # noqa: E731
    acting = Reacting(rule, tmp_path / "beats", names, note, clock.monotonic)
    for ordinal in range(count):
        acting.started(Replica(ordinal, 1, clock.now))
        acting.output(ordinal, 1, b"x\n", clock.now)
    clock.now += 10.5
    acting.due()
    assert (noted["rs"], noted["msg"], noted["text"]) == (
        tuple(range(count)), message, message.partition(": ")[2]
    )  # fmt: skip
    acting.close()


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"stall": "soon"}, "`stall` is `soon`"),
        ({"stall": "0"}, "`stall` is `0`"),
        ({"on_stall": "cancel"}, "`on_stall` requires a stall limit"),
        ({"progress": "x"}, "`progress` requires a stall limit"),
        ({"stall": "1m", "on_stall": "panic"}, "`on_stall` is `panic`"),
        ({"stall": "1m", "progress": "("}, "`progress` is `(`"),
    ],
)
def test_invalid_options_are_rejected(cfg: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=r"requires|expected|pattern") as error:
        StallRule.of(cfg)
    assert message in str(error.value)
