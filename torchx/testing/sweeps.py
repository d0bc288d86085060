"""Conformance tests of sweeps: many runs on a scheduler, whose conductor is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from torchx.config import load_config
from torchx.json_limits import Object
from torchx.machine import locks, processes
from torchx.machine.processes import Process
from torchx.runner.sweeps import submit_sweep
from torchx.scheduling.base import AnyScheduler, SubmitsMany
from torchx.scheduling.logs import LogQuery
from torchx.specs.status import AppState, is_terminal
from torchx.sweeps import progress
from torchx.sweeps.paths import paths_of
from torchx.sweeps.scheduler import SweepScheduler
from torchx.testing.native_sweeps import ManyConformance


class SweepConformance(ManyConformance):
    """Tests of sweeps on an installed scheduler; its factory makes the one of its name."""

    @pytest.fixture
    def sweeps(self, scheduler: AnyScheduler) -> Iterator[SweepScheduler]:
        """The scheduler of sweeps; the sweeps of a test are deleted afterwards."""
        self._sweeps: list[str] = []
        found = SweepScheduler(scheduler.session_name, lambda _: scheduler)
        yield found
        for app_id in self._sweeps:
            found.delete(app_id)

    def sweep(self, scheduler: AnyScheduler, *commands: str, at_once: int = 0) -> str:
        """Submits a run for each shell command, and returns the id of the sweep."""
        name = self.own_name()
        runs = [({"n": str(n)}, self.app(self.role(each), name=name)) for n, each in enumerate(commands)]
        submitted, _ = submit_sweep(
            scheduler,
            runs,
            session=scheduler.session_name,
            cfg=self.cfg,
            load_config=load_config,
            identity=name,
            at_once=at_once,
        )
        self._sweeps.append(submitted.sweep)
        return submitted.sweep

    def until_sweep_ended(self, sweeps: SweepScheduler, app_id: str) -> AppState:
        """Waits for the end of a sweep; starts its conductor again meanwhile."""

        def ended() -> AppState | None:
            sweeps.reconcile(app_id)
            status = sweeps.glance(app_id)
            assert status is not None
            if is_terminal(status.state):
                return status.state
            return None

        return self.until(ended, f"{app_id} has ended")

    def entries(self, app_id: str, kind: str) -> list[Object]:
        """Returns the entries of a kind in the journal of a sweep."""
        found: list[Object] = []
        progress.read(paths_of(app_id), lambda e: found.append(e) if e["e"] == kind else None)
        return found

    def test_each_run_has_its_result(self, scheduler: AnyScheduler, sweeps: SweepScheduler) -> None:
        app_id = self.sweep(scheduler, "echo one", "echo two; exit 3", at_once=1)
        assert self.until_sweep_ended(sweeps, app_id) is AppState.FAILED
        runs = sweeps.sweep(app_id).runs
        assert [(run.state, run.code) for run in runs] == [("SUCCEEDED", 0), ("FAILED", 3)]
        first = self.failure_of(sweeps.glance(app_id))
        assert (first.role, first.result) == ("2", 3)
        chunks = list(sweeps.log_chunks(app_id, LogQuery({"2": frozenset()})))
        assert [(chunk.role, chunk.data) for chunk in chunks] == [("2/worker", b"two\n")]

    def test_runs_continue_when_the_conductor_is_killed(
        self, scheduler: AnyScheduler, sweeps: SweepScheduler
    ) -> None:
        """Without a conductor, if the engine starts the runs, the sweep is the same in all else."""
        native = isinstance(scheduler, SubmitsMany)
        app_id = self.sweep(scheduler, "sleep 600", "sleep 600", "sleep 600", at_once=2)
        if native:

            def begun() -> bool:
                sweeps.reconcile(app_id)
                return bool(self.entries(app_id, "begin"))

            self.until(begun, "a run has begun")
            assert self.entries(app_id, "conductor") == []
            assert not locks.is_held(paths_of(app_id).lock)
            assert len(self.entries(app_id, "begin")) <= 2
            self._end(sweeps, scheduler, app_id)
            return
        self.until(lambda: len(self.entries(app_id, "begin")) >= 2, "two runs have begun")
        last = self.entries(app_id, "conductor")[-1]
        processes.send(Process(last["pid"], last["start"]), signal.SIGKILL)
        assert locks.wait_free(paths_of(app_id).lock, self.patience)
        self._end(sweeps, scheduler, app_id)

    def _end(self, sweeps: SweepScheduler, scheduler: AnyScheduler, app_id: str) -> None:
        """Cancels a sweep, and checks that each run has ended once."""
        sweeps.cancel(app_id)
        assert self.until_sweep_ended(sweeps, app_id) is AppState.CANCELLED
        ends = [entry["n"] for entry in self.entries(app_id, "end")]
        assert sorted(ends) == sorted(set(ends)), "each run ends once"
        begun = {entry["id"] for entry in self.entries(app_id, "begin")}
        for run in begun & {line.app_id for line in scheduler.list(self.cfg)}:
            described = scheduler.describe(run)
            assert described is None or is_terminal(described.state)
