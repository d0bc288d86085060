"""Conformance tests of optional protocols: waiting, killing, merged logs, programs in replicas."""

from __future__ import annotations

import io
import os
import time
from collections import defaultdict

import pytest

from torchx.errors import StateError, UsageError
from torchx.scheduling.base import AnyScheduler, Executes, Kills, LogChunks, Waits
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.streams import Streams
from torchx.specs.app_metadata import after, service
from torchx.specs.macro import macros
from torchx.specs.status import AppState, Member
from torchx.testing.harness import NAMED, Ability
from torchx.testing.queue import WaitingConformance


class AbilityConformance(WaitingConformance):
    """Tests of the optional protocols, except those declared as lacking; see :class:`Harness`."""

    def test_waiting_ends_with_the_application(self, scheduler: AnyScheduler) -> None:
        if self.without(scheduler, Ability.WAITS):
            return
        assert isinstance(scheduler, Waits)
        app_id = self.submit(scheduler, "sleep 600")
        before = time.monotonic()
        assert scheduler.wait(app_id, timeout=0.2) is False
        assert time.monotonic() - before >= 0.2
        self.until_state(scheduler, app_id, AppState.RUNNING)
        scheduler.cancel(app_id)
        assert scheduler.wait(app_id, timeout=self.patience) is True
        self.until_state(scheduler, app_id, AppState.CANCELLED)
        assert scheduler.wait(app_id) is True, "an ended application needs no waiting"

    def test_kill_gives_no_time(self, scheduler: AnyScheduler) -> None:
        if self.without(scheduler, Ability.KILLS):
            return
        assert isinstance(scheduler, Kills)
        app_id = self.submit(scheduler, "trap '' TERM; echo deaf; while true; do sleep 1; done")
        self.until(lambda: self.log(scheduler, app_id), "TERM is ignored")
        scheduler.kill(app_id)
        self.check_ends(scheduler, app_id, AppState.CANCELLED)
        scheduler.kill(app_id)

    def test_all_logs_come_as_one_stream(self, scheduler: AnyScheduler) -> None:
        if self.without(scheduler, Ability.LOG_CHUNKS):
            return
        assert isinstance(scheduler, LogChunks)
        a = self.role("echo a; sleep 2.5; echo later", name="a")
        b = self.role("sleep 1; echo b >&2", name="b", num_replicas=2)
        app_id = self.submit(scheduler, self.app(a, b))
        followed = list(scheduler.log_chunks(app_id, LogQuery(follow=True)))
        complete = list(scheduler.log_chunks(app_id, LogQuery()))
        for chunks in (followed, complete):
            assert [c.data for c in chunks if c.role == "a"] == [b"a\n", b"later\n"]
            assert sorted((c.replica, c.data) for c in chunks if c.role == "b") == [(0, b"b\n"), (1, b"b\n")]
        # a line of one replica may reach a follower after a later line of another
        assert [c.time for c in complete] == sorted(c.time for c in complete)

    def test_a_part_of_the_logs_can_be_requested(self, scheduler: AnyScheduler) -> None:
        if self.without(scheduler, Ability.LOG_CHUNKS):
            return
        assert isinstance(scheduler, LogChunks)
        both = [self.role("seq 10", name=name, num_replicas=2) for name in ("a", "b")]
        status = self.run(scheduler, self.app(*both))

        def read(query: LogQuery) -> list[tuple[str, int, bytes]]:
            assert isinstance(scheduler, LogChunks)
            joined: dict[Member, bytes] = defaultdict(bytes)
            for chunk in scheduler.log_chunks(status.app_id, query):
                joined[chunk.role, chunk.replica] += chunk.data
            return [(*key, data) for key, data in sorted(joined.items())]

        ten = b"".join(b"%d\n" % i for i in range(1, 11))
        assert read(LogQuery({"a": frozenset(), "b": frozenset([1])})) == [
            ("a", 0, ten),
            ("a", 1, ten),
            ("b", 1, ten),
        ]
        assert read(LogQuery({"a": frozenset([0])}, tail=2)) == [("a", 0, b"9\n10\n")]
        assert read(LogQuery({"a": frozenset([0])}, regex="^1")) == [("a", 0, b"1\n10\n")]

    def test_a_program_runs_in_a_replica(self, scheduler: AnyScheduler) -> None:
        if self.without(scheduler, Ability.EXECUTES):
            return
        assert isinstance(scheduler, Executes)
        engine: Executes = scheduler
        role = self.role(
            "echo up; exec sleep 600", name="worker", num_replicas=2, env={"COLOUR": "sea green"}
        )
        app_id = self.submit(scheduler, role)
        self.until(lambda: all(self.log(scheduler, app_id, k) for k in (0, 1)), "all have started")

        def run(*command: str, replica: int = 1, stdin: int | None = None) -> tuple[int, bytes, bytes]:
            out, err = io.BytesIO(), io.BytesIO()
            code = engine.execute(app_id, "worker", replica, command, Streams(out, err, stdin))
            return code, out.getvalue(), err.getvalue()

        script = f'echo "$COLOUR {NAMED} $1"; echo no >&2; exit 3'
        odd = "a b'\"$HOME \\ é"
        expected = f"sea green worker/1 worker 1 2 {odd}\n".encode()
        assert run("sh", "-c", script, "sh", odd) == (3, expected, b"no\n")
        source, feed = os.pipe()
        os.write(feed, b"one\ntwo")
        os.close(feed)
        assert run("cat", stdin=source)[:2] == (0, b"one\ntwo")
        os.close(source)
        assert run("sh", "-c", "kill -9 $$")[0] == 137
        with pytest.raises(StateError):
            run("true", replica=2)
        scheduler.cancel(app_id)
        self.until_ended(scheduler, app_id)
        with pytest.raises(StateError, match="not running"):
            run("true")

    def test_the_hosts_of_a_role_are_known_or_rejected(self, scheduler: AnyScheduler) -> None:
        macro = f"{macros.hosts('a-b')} {macros.hosts('client')}"
        others = self.role("true", name="a-b", num_replicas=2)
        client = self.role(f'echo "{macro}"; echo "$TORCHX_HOSTS_A_B $TORCHX_HOSTS_CLIENT"', name="client")
        if not scheduler.knows_hosts:
            with pytest.raises(UsageError, match="a-b"):
                scheduler.submit_dryrun(self.app(others, client), self.cfg)
            return
        with pytest.raises(UsageError, match="names no role"):
            scheduler.submit_dryrun(self.app(client), self.cfg)
        status = self.succeeded(scheduler, self.app(others, client))
        by_macro, by_variable = self.log(scheduler, status.app_id, role="client")
        assert by_macro == by_variable
        hosts, own = by_macro.split()
        assert len(hosts.split(",")) == 2, "a host for each replica"
        assert own and "," not in own

    def test_services_run_or_are_rejected(self, scheduler: AnyScheduler) -> None:
        trainer = self.role("true", name="trainer")
        for role in (
            service(self.role("true", name="server")),
            after(self.role("true", "server"), ["trainer"]),
        ):
            app = self.app(role, trainer)
            if scheduler.runs_services:  # see `ServiceConformance`
                assert scheduler.submit_dryrun(app, self.cfg).request
            else:
                with pytest.raises(UsageError, match="does not run services"):
                    scheduler.submit_dryrun(app, self.cfg)
