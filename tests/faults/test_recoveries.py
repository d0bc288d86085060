"""All that retries or waits survives "fails, recovers, fails again, recovers".

The second failure comes later than any limit on one outage. Add a row to CASES for each new loop: a
function that runs the loop with fakes, and returns True if it came to its regular end. The fakes call
:meth:`Faults.step` where the real engine, disk or server would be used; it raises the error in its turn, and
moves the clock.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import queue
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchx.errors import StateError
from torchx.machine import outage, relay
from torchx.notifications import sender
from torchx.notifications.delivery import Result
from torchx.notifications.plan import Notify
from torchx.notifications.store import DELIVERED, RETRY, SENDING, Store
from torchx.runner import logs as runner_logs
from torchx.runner import reports, watcher
from torchx.schedulers.docker import starter as docker_start
from torchx.schedulers.docker import supervisor as docker_supervisor
from torchx.schedulers.docker.engine.address import NoEngineError
from torchx.schedulers.kubernetes import watch as kubernetes_watch
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.shared.batch import wait as batch_wait
from torchx.schedulers.slurm import wait as slurm_wait
from torchx.schedulers.slurm.commands import NoAnswerError
from torchx.scheduling import pace
from torchx.scheduling.events import AppEvent
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.protocols import UnavailableError
from torchx.scheduling.responses import DescribeAppResponse
from torchx.specs.status import AppState, AppStatus
from torchx.supervisor.measurement import sampling
from torchx.sweeps import logs as sweep_logs
from torchx.sweeps import native, runs, submitter
from torchx_cli import conditions
from torchx_cli.terminal import notices
from torchx_cli.terminal import watch as terminal_watch
from torchx_cli.top import snapshot

LATER = 30 * 24 * 3600.0
"""Seconds between the two failures: more than any limit."""


class Over(Exception):
    """Ends a loop that has no other end."""


@dataclass
class Faults:
    """A clock in place of the module `time`, and failures at their time.

    Attributes:
        now: the time.
        steps: the number of steps so far.
    """

    now: float = 1000.0
    steps: int = 0
    sleeps: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        assert len(self.sleeps) < 10_000, "it retries without end"
        self.sleeps.append(seconds)
        self.now += seconds

    def step(self, error: Exception) -> bool:
        """Fails at the first step and, much later, at the third; returns True from the fifth step on."""
        self.steps += 1
        if self.steps == 3:
            self.now += LATER
        if self.steps in (1, 3):
            raise error
        return self.steps > 4


Patch = Callable[[object, str, object], None]


def watcher_of_notifications(faults: Faults, patch: Patch, folder: Path) -> bool:
    """The watcher waits for the end of an application."""

    class Runner(contextlib.nullcontext[Any]):
        def __enter__(self) -> Runner:
            return self

        def status(self, handle: str) -> object:
            if not faults.steps:
                faults.step(StateError("no answer"))
            return "RUNNING"

        def wait(self, handle: str) -> object:
            """Blocks for a long time, until the engine is stopped; then until the end."""
            if faults.step(StateError("the engine was stopped")):
                return "SUCCEEDED"
            faults.now += LATER
            raise StateError("the engine was stopped")

        def description(self, handle: str) -> str:
            return "its end"

    patch(watcher, "time", faults)
    patch(watcher, "api", SimpleNamespace(get_runner=lambda name: Runner()))
    return str(watcher._wait(Store(folder), "local_cwd://s/a")) == "its end"


def waits_for_a_run(faults: Faults, patch: Patch, error: StateError) -> bool:
    """Returns True if a sweep waits for the success of a run whose engine fails at times."""

    class Engine:
        backend = "e"
        waits_in_queue = False

        def describe(self, app_id: str) -> object:
            state = AppState.SUCCEEDED if faults.step(error) else AppState.RUNNING
            return SimpleNamespace(
                state=state,
                needs_reconcile=False,
                cause=None,
                first_failure=None,
                msg="",
                started_at=None,
                ended_at=None,
            )

        def wait(self, app_id: str, timeout: float | None = None) -> bool:
            return False

    patch(runs, "time", faults)
    return runs.wait(Engine(), "a").state == "SUCCEEDED"  # type: ignore[arg-type]


def run_of_a_sweep(faults: Faults, patch: Patch, folder: Path) -> bool:
    """A sweep waits for one of its runs."""
    return waits_for_a_run(faults, patch, StateError("no answer"))


def damaged_record_of_a_run(faults: Faults, patch: Patch, folder: Path) -> bool:
    """A record that is unreadable for a moment, and again much later, is not damaged."""
    damage = StateError("the record is damaged: too many open files", code="damaged_record")
    return waits_for_a_run(faults, patch, damage)


def delivery_of_a_notification(faults: Faults, patch: Patch, folder: Path) -> bool:
    """The disk of a sender is full, twice."""

    class Disk(Store):
        def add(self, target: int, kind: str, step: str, message: str = "") -> None:
            if step == SENDING:
                faults.step(OSError(errno.ENOSPC, "full"))
            super().add(target, kind, step, message)

    store = Disk(folder / "notifications")
    store.create(Notify(("https://hooks.example/x",), ("end",)))
    results = [Result(RETRY, "refused"), Result(DELIVERED)]
    patch(sender, "time", faults)
    patch(sender, "deliver", lambda target, payload: results.pop(0))
    sender.Sender(store, "end", {"state": "FAILED"}).run()
    return [each.state for each in store.deliveries()] == ["delivered"]


def supervisor_of_containers(faults: Faults, patch: Patch, folder: Path) -> bool:
    """The supervisor of an application in containers subscribes to events."""
    supervisor = docker_supervisor.Supervisor.__new__(docker_supervisor.Supervisor)
    ended = []

    def events(engine: object, app_id: str) -> object:
        if faults.step(NoEngineError("no engine")):
            ended.append(True)
        return SimpleNamespace(close=lambda: None)

    patch(docker_supervisor, "time", faults)
    patch(docker_supervisor, "Events", events)
    patch(supervisor, "_engine", None)
    patch(supervisor, "_app_id", "a")
    patch(supervisor, "_attempts", None)
    patch(supervisor, "_watch", lambda events: bool(ended))
    supervisor.run()
    return bool(ended)


def start_of_queued_containers(faults: Faults, patch: Patch, folder: Path) -> bool:
    """The engine is restarted while an application of the queue is started."""
    started = []

    def containers_of(engine: object, app_id: str) -> list[object]:
        faults.step(NoEngineError("no engine"))
        return []

    def provide(bodies: object, engine: object) -> None:
        if not faults.step(NoEngineError("no engine")):
            raise NoEngineError("no engine")

    start = docker_start.Start(
        SimpleNamespace(cancel=folder / "cancel"),  # type: ignore[arg-type]
        "a",
        0,
        SimpleNamespace(descriptors=[]),  # type: ignore[arg-type]
        [],
        SimpleNamespace(),  # type: ignore[arg-type]
        [],
    )
    patch(docker_start, "time", faults)
    patch(docker_start, "client", SimpleNamespace(Engine=SimpleNamespace, LOADED_PATIENCE=900.0))
    patch(docker_start, "gpus", SimpleNamespace(assign=lambda bodies, devices: None))
    patch(docker_start, "lookup", SimpleNamespace(containers_of=containers_of))
    patch(docker_start, "networks", SimpleNamespace(provide_for=provide))
    patch(docker_start, "submit", SimpleNamespace(start_containers=lambda *given: started.append(True)))
    start._start()
    return started == [True]


def job_of_slurm(faults: Faults, patch: Patch, folder: Path) -> bool:
    """A command waits for a job of Slurm."""
    job = SimpleNamespace(record=None, outcome=SimpleNamespace(state=AppState.RUNNING))

    def find(app_id: str) -> object:
        return None if faults.step(NoAnswerError("no controller")) else job

    paths = SimpleNamespace(cancelled=folder / "cancelled", stopped=folder / "stopped")
    patch(batch_wait, "time", faults)
    patch(slurm_wait, "find", find)
    patch(batch_wait, "save_outcome", lambda record, outcome: None)
    patch(batch_wait, "read_script_end", lambda paths: None)
    record = SimpleNamespace(key="1", token="t", full_id="1@t", paths=paths)
    return slurm_wait.watch(record).wait(None)  # type: ignore[arg-type]


def watch_of_a_cluster(faults: Faults, patch: Patch, folder: Path) -> bool:
    """A watch of pods is interrupted twice."""
    silence = ClusterError("no answer", status=503)
    mirror = kubernetes_watch.Mirror.__new__(kubernetes_watch.Mirror)
    ended = threading.Event()

    def follow() -> None:
        try:
            if faults.step(silence):
                ended.set()
        finally:
            if faults.steps > 1:  # it has answered until now
                mirror._last_response = faults.now

    pauses = SimpleNamespace(is_set=ended.is_set, wait=faults.sleep, set=ended.set)
    values = {"_version": "1", "_last_response": faults.now, "_changed": lambda: None, "error": None}
    values |= {"_polls": False, "_pause": 0.1}
    for name, value in {**values, "_stop": pauses, "_follow": follow}.items():
        patch(mirror, name, value)
    patch(kubernetes_watch, "time", faults)
    mirror._run()
    return mirror.error is None


def reconciliation_behind_a_log(faults: Faults, patch: Patch, folder: Path) -> bool:
    """An application is reconciled while its log is followed."""
    done = threading.Event()

    class Engine:
        backend = "e"

        def reconcile(self, app_id: str) -> None:
            if faults.step(OSError(errno.EMFILE, "too many open files")):
                done.set()

    def chunks() -> Iterator[Any]:
        yield "the first"
        done.wait(20)
        yield "the last"

    patch(runner_logs, "RECONCILE_EVERY", 0.001)
    read = list(runner_logs._reconciling(Engine(), "a", chunks()))  # type: ignore[arg-type]
    return len(read) == 2 and done.is_set()


def events_of_all_applications(faults: Faults, patch: Patch, folder: Path) -> bool:
    """One record is unreadable while the events of all applications are followed."""
    moment = datetime.now(timezone.utc)
    written = [AppEvent(moment, kind, "r", 0, 1, "", {}) for kind in ("submitted", "started")]
    last = AppEvent(moment, "ended", "", None, None, "", {})

    class Engine:
        backend = "e"

        on_this_machine = True
        records_attempts = False

        def app_events(self, app_id: str) -> Iterator[AppEvent | None]:
            yield written[0]
            while True:
                if app_id == "b" and faults.step(OSError(errno.EIO, "input/output error")):
                    yield written[1]
                    yield last
                yield None

        def is_nearby(self, app_id: str) -> bool:
            return True

    class Runner:
        def scheduler_of(self, handle: str) -> Engine:
            return Engine()

        scheduler = scheduler_of

        def description(self, handle: str, *, brief: bool = False) -> str:
            return "it runs"

        def select(self, scheduler: str, query: object) -> Iterator[object]:
            return iter(())

    source: Any = Runner()
    feeds = {handle: reports.Feed(source, handle) for handle in ("x://s/a", "x://s/b")}
    patch(reports, "time", faults)
    patch(reports, "Reports", Engine)
    search = reports._Search(source, ["x"], set(feeds), moment)
    for feed in feeds.values():
        feed._source = feed._open()
    events = reports._follow(feeds, reports.EventQuery(follow=True), search)
    read = list(itertools.islice((e for e in events if e.app_handle == "x://s/b"), 3))
    return [event.kind for event in read] == ["submitted", "started", "ended"]


def events_of_one_application(faults: Faults, patch: Patch, folder: Path) -> bool:
    """The events of an application of a cluster without an event log are followed."""
    pending = [DescribeAppResponse("a", AppState.PENDING, msg=msg) for msg in ("Resources", "Priority")]

    class Runner:
        def scheduler_of(self, handle: str) -> object:
            return SimpleNamespace(is_nearby=lambda app_id: False, records_attempts=False)

        def description(self, handle: str, *, brief: bool = False) -> DescribeAppResponse:
            if pending:
                return pending.pop()
            is_over = faults.step(UnavailableError("no answer"))
            return DescribeAppResponse("a", AppState.CANCELLED if is_over else AppState.RUNNING)

    patch(reports, "time", faults)
    source: Any = Runner()
    events = reports.of_application(source, "x://s/a", reports.EventQuery(follow=True))
    seen = [event.kind for event in events]
    return seen == ["submitted", "waiting", "waiting", "cancelled", "ended"]


def status_that_is_watched(faults: Faults, patch: Patch, folder: Path) -> bool:
    """`status -w` shows the changes of an application."""

    class Runner:
        def pause_after(self, handle: str, waited: float) -> float:
            return 15.0

        def wakes(self, handle: str) -> bool:
            return False

        def poll(self, handle: str) -> DescribeAppResponse:
            is_over = faults.step(UnavailableError("no answer"))
            return DescribeAppResponse("a", AppState.CANCELLED if is_over else AppState.RUNNING)

    event = SimpleNamespace(wait=faults.sleep, clear=lambda: None)
    patch(terminal_watch, "time", faults)
    patch(terminal_watch, "threading", SimpleNamespace(Event=lambda: event))
    patch(terminal_watch, "_print_changes", lambda printed, now: None)
    runner: Any = Runner()
    last = terminal_watch.watch(runner, "x://s/a", DescribeAppResponse("a", AppState.RUNNING), lambda now: [])
    return last is not None and last.state is AppState.CANCELLED and faults.sleeps == [15.0] * 5


def answers_that_parts_share(faults: Faults, patch: Patch, folder: Path) -> bool:
    """Two parts of a process wait for jobs of an engine, and share its answers and its errors."""

    def query(keys: Collection[str]) -> dict[str, bool]:
        return dict.fromkeys(keys, faults.step(UnavailableError("no answer")))

    patch(pace, "time", faults)
    answers = pace.Answers(query)
    seen: set[str] = set()
    while len(seen) < 2:
        for key in ("a", "b"):
            with contextlib.suppress(UnavailableError), pace.sharing():
                seen |= {key} if answers.about(key) else set()
        faults.sleep(1.0)
    return faults.steps < 10


def notices_of_an_attached_run(faults: Faults, patch: Patch, folder: Path) -> bool:
    """An attached run reports why it waits, and later a retry."""
    lines: list[str] = []

    class Runner:
        def scheduler_of(self, handle: str) -> object:
            return SimpleNamespace(
                is_nearby=lambda app_id: False,
                may_wait=lambda app_id: True,
                has_runs=False,
                waits_in_queue=False,
                records_attempts=False,
            )

        def wakes(self, handle: str) -> bool:
            return False

        def description(self, handle: str, *, brief: bool = False) -> DescribeAppResponse:
            is_over = faults.step(UnavailableError("no answer"))
            return DescribeAppResponse(
                "a", AppState.CANCELLED if is_over else AppState.PENDING, msg="Priority"
            )

    patch(reports, "time", faults)
    patch(notices, "time", faults)
    source: Any = Runner()
    followed = notices.Notices(source, "x://s/a", lambda *new: lines.extend(new), new=True)
    patch(followed, "stop", SimpleNamespace(wait=faults.sleep, is_set=lambda: False))
    followed.follow()
    return lines == ["waiting: Priority"]


def rounds_of_top(faults: Faults, patch: Patch, folder: Path) -> bool:
    """`top` reads the applications of an engine again and again."""

    class Runner:
        def scheduler(self, name: str) -> object:
            return SimpleNamespace(on_this_machine=False, has_runs=False)

        def scheduler_of(self, handle: str) -> object:
            return self.scheduler(handle)

        def description(self, handle: str, *, brief: bool) -> DescribeAppResponse:
            is_over = faults.step(UnavailableError("no answer"))
            return DescribeAppResponse("a", AppState.CANCELLED if is_over else AppState.RUNNING)

        def usage(self, handle: str) -> None:
            """Has no measurements."""

        def log_chunks(self, handle: str, query: LogQuery) -> list[object]:
            return []

    def pause(seconds: float) -> None:
        faults.sleep(seconds)
        collector._stop = collector.apps[0].has_ended

    clock = {name: getattr(faults, name) for name in ("monotonic", "sleep")}
    patch(snapshot, "time", SimpleNamespace(process_time=lambda: 0.0, **clock))
    collector = snapshot.Collector(Runner(), lambda: ["x://s/a"])  # type: ignore[arg-type]
    collector._handles = ["x://s/a"]
    wake: Any = SimpleNamespace(wait=pause, clear=lambda: None)
    collector._repeat("x", lambda: collector.read("x"), wake)
    return collector.error is None and collector.apps[0].state == "CANCELLED"


def condition_of_an_application(faults: Faults, patch: Patch, folder: Path) -> bool:
    """`wait --for` waits for a state."""
    before = [AppStatus(AppState.PENDING)]

    class Runner:
        def scheduler_of(self, handle: str) -> object:
            return SimpleNamespace(on_this_machine=False)

        def pause_after(self, handle: str, waited: float) -> float:
            return 15.0

        def status(self, handle: str) -> AppStatus:
            if before:
                return before.pop()
            is_over = faults.step(UnavailableError("no answer"))
            return AppStatus(AppState.CANCELLED if is_over else AppState.PENDING)

    patch(conditions, "time", faults)
    runner: Any = Runner()
    return conditions._poll(runner, "x://s/a", lambda status: False, math.inf).met is False


def sweep_of_an_engine(faults: Faults, patch: Patch, folder: Path) -> bool:
    """A command waits for a sweep whose runs the engine starts."""

    def reconcile(paths: object, engine_of: object) -> None:
        faults.step(UnavailableError("no answer"))

    def find(paths: object) -> object:
        return SimpleNamespace(has_ended=faults.steps > 4)

    patch(native, "time", faults)
    patch(native, "reconcile", reconcile)
    patch(native, "view", SimpleNamespace(find=find))
    return native.wait(None, None, None)  # type: ignore[arg-type]


def submitter_of_a_sweep(faults: Faults, patch: Patch, folder: Path) -> bool:
    """A process submits the runs that wait for others to an engine."""
    submitted = []

    class Runs:
        progress = None

        def __init__(self, paths: object, engine_of: object) -> None:
            pass

        def submit(self, *, trouble: str) -> bool:
            if faults.step(UnavailableError("no answer")):
                submitted.append(True)
            return bool(submitted)

        def nothing(self) -> None:
            pass

        recover = act = observe = nothing

    def readable(descriptors: object, seconds: float) -> list[int]:
        faults.sleep(seconds)
        return []

    paths = SimpleNamespace(observing=folder / "observing", edit=folder / "edit")
    patch(submitter, "environment", SimpleNamespace(enter=lambda paths: None))
    patch(submitter, "open_wake", lambda paths: 0)
    patch(submitter, "NativeRuns", Runs)
    patch(submitter, "readable", readable)
    patch(submitter, "time", faults)
    patch(submitter, "requests", SimpleNamespace(has_unread=lambda paths, progress: False))
    patch(submitter, "os", SimpleNamespace(close=lambda descriptor: None))
    submitter.run(paths, 0, "s")  # type: ignore[arg-type]
    return submitted == [True]


def measurement_of_processes(faults: Faults, patch: Patch, folder: Path) -> bool:
    """The table of processes is unreadable for a moment."""
    sampler = sampling.Sampler.__new__(sampling.Sampler)
    done = []

    def sample() -> None:
        if faults.step(OSError(errno.EMFILE, "too many open files")):
            done.append(True)

    patch(sampling, "time", faults)
    patch(sampling, "traceback", SimpleNamespace(print_exc=lambda: None))
    for name, value in {"_next": faults.now, "_attempts": {1: None}, "_sample": sample}.items():
        patch(sampler, name, value)
    while not done:
        sampler.due()
        pause = sampler.pause()
        if pause is None:
            return False
        faults.sleep(max(pause, 0.0))
    return True


def local_end_of_a_tunnel(faults: Faults, patch: Patch, folder: Path) -> bool:
    """`torchx port` accepts connections while this process has no room for more."""
    served: queue.Queue[bool] = queue.Queue()
    there, here = socket.socketpair()

    class Server:
        def accept(self) -> tuple[Any, str]:
            if served.qsize():
                forward._closed.set()
                raise OSError(errno.EBADF, "closed")
            faults.step(OSError(errno.EMFILE, "too many open files"))
            if faults.steps > 4:
                served.put(True)
            return here.dup(), "peer"

    forward = relay.Relay.__new__(relay.Relay)
    patch(relay, "ACCEPT_AFTER", 0.001)
    patch(forward, "_closed", threading.Event())
    patch(forward, "_server", Server())
    patch(forward, "_serve", lambda client: client.close())
    with there, here:
        forward._accept()
    return bool(served.qsize())


def log_of_a_followed_sweep(faults: Faults, patch: Patch, folder: Path) -> bool:
    """The logs of the runs of a sweep are read in threads; two of them cannot be read."""
    every = [SimpleNamespace(app_id=f"{n}", state="RUNNING", ended=1.0, number=n) for n in range(5)]
    sweep = SimpleNamespace(has_ended=True, runs=every, header=SimpleNamespace(scheduler="x", native=False))
    lock = threading.Lock()

    def log_of(engine: object, run: object, query: object) -> Iterator[str]:
        with lock:
            faults.step(OSError(errno.EMFILE, "too many open files"))
        yield "a line"

    engine = SimpleNamespace(describe=lambda app_id: "it runs")
    patch(sweep_logs, "_log_of", log_of)
    patch(sweep_logs, "view", SimpleNamespace(require=lambda app_id: sweep))
    query = LogQuery(follow=True)
    return len(list(sweep_logs._follow(lambda name: engine, "s", query, sweep))) == 3  # type: ignore


CASES: list[Callable[[Faults, Patch, Path], bool]] = [
    watcher_of_notifications,
    run_of_a_sweep,
    damaged_record_of_a_run,
    delivery_of_a_notification,
    supervisor_of_containers,
    start_of_queued_containers,
    job_of_slurm,
    watch_of_a_cluster,
    reconciliation_behind_a_log,
    events_of_all_applications,
    events_of_one_application,
    status_that_is_watched,
    answers_that_parts_share,
    notices_of_an_attached_run,
    rounds_of_top,
    condition_of_an_application,
    sweep_of_an_engine,
    submitter_of_a_sweep,
    measurement_of_processes,
    local_end_of_a_tunnel,
    log_of_a_followed_sweep,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_second_failure_is_survived_too(
    case: Callable[[Faults, Patch, Path], bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    faults = Faults()

    def patch(target: object, name: str, value: object) -> None:
        monkeypatch.setattr(target, name, value, raising=False)

    patch(outage, "time", faults)
    assert case(faults, patch, tmp_path)
    assert faults.steps >= 4


def test_one_outage_is_given_up_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults()
    monkeypatch.setattr(outage, "time", faults)
    silence = outage.Outage(10.0)
    assert not silence.is_too_long()
    faults.now += 11
    assert silence.is_too_long()
    silence.over()
    assert not silence.is_too_long()


@pytest.mark.parametrize("is_described", [True, False])
def test_a_damaged_record_is_not_waited_for_without_end(
    is_described: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()
    monkeypatch.setattr(outage, "time", faults)
    monkeypatch.setattr(runs, "time", faults)

    class Engine:
        backend = "e"
        waits_in_queue = False

        def describe(self, app_id: str) -> object:
            if not is_described:
                raise StateError("the record is damaged", code="damaged_record")
            return SimpleNamespace(
                state=AppState.UNKNOWN, needs_reconcile=False, started_at=None, msg="the record is damaged"
            )

        def wait(self, app_id: str, timeout: float | None = None) -> bool:
            return True

    ended = runs.wait(Engine(), "a")  # type: ignore[arg-type]
    assert (ended.state, ended.message) == ("FAILED", "the record is damaged")
    assert sum(faults.sleeps) < 300
    assert len(faults.sleeps) < 50
