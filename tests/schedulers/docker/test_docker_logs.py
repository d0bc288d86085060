"""Logs of containers: streams, times, the last lines, following, and all replicas merged."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from containers import Jobs, ended, scheduler, sh, text, until_logged

from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.specs.mounts import BindMount
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker


def chunks(app_id: str, **query: object) -> list[LogChunk]:
    return list(scheduler().log_chunks(app_id, LogQuery(**query)))  # type: ignore[arg-type]


def test_the_streams_are_distinguished(jobs: Jobs) -> None:
    done = jobs.run(sh("echo 1; sleep 0.5; echo 2 >&2; sleep 0.5; echo 3"))
    assert [(c.stream, c.data) for c in chunks(done.app_id)] == [
        (Stream.STDOUT, b"1\n"),
        (Stream.STDERR, b"2\n"),
        (Stream.STDOUT, b"3\n"),
    ]
    assert text(done.app_id, Stream.STDOUT) == "1\n3\n"
    assert text(done.app_id, Stream.STDERR) == "2\n"
    assert text(done.app_id, Stream.STDOUT, tail=1) == "3\n"


def test_since_and_until_choose_by_time(jobs: Jobs) -> None:
    result = jobs.run(sh("for i in 1 2 3; do echo $i; sleep 0.3; done"))
    times = [datetime.fromtimestamp(c.time, timezone.utc) for c in chunks(result.app_id)]
    assert text(result.app_id, since=times[1]) in ("2\n3\n", "3\n")  # a time here is a bit less exact
    assert text(result.app_id, until=times[1]) in ("1\n", "1\n2\n")
    assert text(result.app_id, since=times[2].replace(year=2100)) == ""


def test_the_last_lines_are_those_of_all_replicas_together(jobs: Jobs) -> None:
    result = jobs.run(
        sh("for i in 1 2 3; do echo a$i; sleep 0.2; done", name="a"), sh("sleep 4; echo b", name="b")
    )
    assert text(result.app_id, tail=2) == "a3\nb\n"
    assert text(result.app_id, tail=2, regex="^a") == "a2\na3\n"


def test_following_begins_with_the_last_lines_and_misses_nothing(jobs: Jobs, tmp_path: Path) -> None:
    role = sh("seq 100; while [ ! -e /x/go ]; do sleep 0.05; done; seq 101 2000")
    role.mounts = [BindMount(str(tmp_path), "/x")]
    app_id = jobs.submit(role)
    until_logged(app_id, "100\n")
    said = b""
    for chunk in scheduler().log_chunks(app_id, LogQuery(tail=2, follow=True)):
        said += chunk.data
        (tmp_path / "go").touch()
    assert said.decode() == "".join(f"{i}\n" for i in range(99, 2001))


def test_follower_of_many_gets_each_line_once_in_order(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("for i in $(seq 300); do echo $i; done; sleep 0.3; echo end", 4))
    followed = chunks(app_id, follow=True)
    expected = b"".join(b"%d\n" % i for i in range(1, 301)) + b"end\n"
    for replica in range(4):
        assert b"".join(c.data for c in followed if c.replica == replica) == expected
    ended(app_id)
    merged = chunks(app_id)
    assert [c.time for c in merged] == sorted(c.time for c in merged)


def test_long_lines_arrive_whole(jobs: Jobs) -> None:
    """Bytes that are no text do not: the engine keeps its logs as text."""
    code = "print('x' * 50000); print('é')"
    done = jobs.run(sh("", entrypoint="python3", args=["-c", code]))
    assert b"".join(c.data for c in chunks(done.app_id)) == b"x" * 50000 + b"\n" + "é\n".encode()


def test_a_last_line_without_an_end_is_followed_too(jobs: Jobs) -> None:
    """Engines close the log of a container that ends before such a line is in it, more often than not."""
    app_id = jobs.submit(sh("echo up; sleep 0.2; printf last", 4))
    followed = chunks(app_id, follow=True)
    for replica in range(4):
        assert b"".join(c.data for c in followed if c.replica == replica) == b"up\nlast"


def test_following_ends_with_the_first_failure_whatever_else_runs(jobs: Jobs) -> None:
    failing = sh("echo bad; exit 3", name="w")
    app_id = jobs.submit(sh("exec sleep 600", name="server"), failing, grace_period=1.0)
    assert b"".join(c.data for c in chunks(app_id, follow=True)) == b"bad\n"
    result = ended(app_id)
    assert (result.state, [r.replicas[0].state for r in result.roles_statuses]) == (
        AppState.FAILED,
        [AppState.CANCELLED, AppState.FAILED],
    )


@pytest.mark.parametrize("policy", ["APPLICATION", "REPLICA"])
def test_last_line_without_end_is_followed_in_every_attempt(jobs: Jobs, policy: str) -> None:
    app_id = jobs.submit(sh("sleep 0.1; printf end; exit 1", 1, max_retries=2, policy=policy))
    assert b"".join(c.data for c in chunks(app_id, follow=True)) == b"endendend"
