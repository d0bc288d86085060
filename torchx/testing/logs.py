"""Conformance tests of logs: order, streams, periods, patterns, during a run and after it."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from functools import partial

import pytest

from torchx.errors import TorchxError
from torchx.scheduling.base import AnyScheduler
from torchx.scheduling.logs import Stream
from torchx.specs.macro import macros
from torchx.specs.status import AppState
from torchx.testing.harness import Ability, Harness

UNKNOWN_APP = "conformance-nosuchapp1"


class LogConformance(Harness):
    """Tests of the log of one replica; see :class:`Harness` for the attributes to set."""

    def test_log_has_every_line_of_replica_in_order(self, scheduler: AnyScheduler) -> None:
        status = self.run(
            scheduler,
            self.role(f"for i in $(seq 500); do echo {macros.replica_id} line $i; done", num_replicas=2),
        )
        for replica in (0, 1):
            expected = [f"{replica} line {i}\n" for i in range(1, 501)]
            assert self.log(scheduler, status.app_id, replica) == expected

    def test_a_pattern_chooses_lines(self, scheduler: AnyScheduler) -> None:
        status = self.run(scheduler, "echo one; echo two; echo three")
        assert self.log(scheduler, status.app_id, regex="^t") == ["two\n", "three\n"]
        assert self.log(scheduler, status.app_id, regex="e$") == ["one\n", "three\n"]

    def test_pattern_is_searched_in_text_that_is_returned(self, scheduler: AnyScheduler) -> None:
        status = self.run(scheduler, "printf 'a\\377b\\na\\351\\ncaf\\303\\251\\n\\303\\251t\\303\\n'")
        lines = self.log(scheduler, status.app_id)
        assert lines == ["a\ufffdb\n", "a\ufffd\n", "café\n", "ét\ufffd\n"], "invalid UTF-8 is replaced"
        for pattern in ("a.b", "\ufffd", "\ufffd$", "é$", "[^a-zé]", r"\w$", r"^\w+\W$"):
            expected = [line for line in lines if re.search(pattern, line.rstrip("\n"))]
            assert self.log(scheduler, status.app_id, regex=pattern) == expected, pattern

    def test_a_log_is_followed_to_the_end(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, "echo first; sleep 1; echo last")
        if Ability.FOLLOW in self.lacks:
            self.refuses(Ability.FOLLOW, lambda: self.log(scheduler, app_id, should_tail=True))
            return
        assert self.log(scheduler, app_id, should_tail=True) == ["first\n", "last\n"]
        self.check_ends(scheduler, app_id, AppState.SUCCEEDED)
        assert self.log(scheduler, app_id, should_tail=True) == ["first\n", "last\n"], "also after its end"

    def test_a_line_is_readable_before_the_end(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, "echo now; exec sleep 600")
        self.until(lambda: self.log(scheduler, app_id) == ["now\n"], "its line is in the log while it runs")

    def test_the_last_line_needs_no_end(self, scheduler: AnyScheduler) -> None:
        status = self.run(scheduler, "printf 'a\\nb'")
        assert [line.rstrip("\n") for line in self.log(scheduler, status.app_id)] == ["a", "b"]

    def test_long_lines_and_other_scripts_stay_intact(self, scheduler: AnyScheduler) -> None:
        long = "x" * 50_000  # longer than many engines keep in one piece
        status = self.run(
            scheduler, "printf 'é — 日本 🙂\\n'; printf %50000s | tr ' ' x; echo; echo; echo last"
        )
        assert self.log(scheduler, status.app_id) == ["é — 日本 🙂\n", f"{long}\n", "\n", "last\n"]

    def test_each_stream_can_be_read_alone(self, scheduler: AnyScheduler) -> None:
        status = self.run(scheduler, "echo 1 out; sleep 0.3; echo 2 err >&2; sleep 0.3; echo 3 out")
        expected = {
            Stream.STDOUT: ["1 out\n", "3 out\n"],
            Stream.STDERR: ["2 err\n"],
            Stream.COMBINED: ["1 out\n", "2 err\n", "3 out\n"],
        }
        for stream, lines in expected.items():
            if Ability.STREAMS in self.lacks and stream is not Stream.COMBINED:
                alone = partial(self.log, scheduler, status.app_id, streams=stream)
                self.refuses(Ability.STREAMS, alone)
            else:
                read = self.log(scheduler, status.app_id, streams=stream)
                assert read == lines, f"the lines of {stream}"
        assert self.log(scheduler, status.app_id) == expected[Stream.COMBINED], "both by default"

    def test_lines_of_a_period(self, scheduler: AnyScheduler) -> None:
        # the replica's clock counts, so the replica prints the time
        status = self.run(scheduler, "date +early:%s; sleep 2; date +late:%s")
        early, late = self.log(scheduler, status.app_id)
        # at least half a second from both, since times are printed without fractions
        between = datetime.fromtimestamp(int(early.partition(":")[2]) + 1.5, timezone.utc)
        if Ability.TIMES in self.lacks:
            self.refuses(Ability.TIMES, lambda: self.log(scheduler, status.app_id, since=between))
            self.refuses(Ability.TIMES, lambda: self.log(scheduler, status.app_id, until=between))
            return
        assert self.log(scheduler, status.app_id, since=between) == [late]
        assert self.log(scheduler, status.app_id, until=between) == [early]
        assert self.log(scheduler, status.app_id, since=between, until=between) == []

    def test_the_log_of_an_unknown_application_is_an_error(self, scheduler: AnyScheduler) -> None:
        with pytest.raises(TorchxError, match=UNKNOWN_APP):
            self.log(scheduler, UNKNOWN_APP)
