"""A program in a container that runs: its output, its input, its result."""

from __future__ import annotations

import io
import os

import pytest
from containers import Jobs, ended, scheduler, sh, until_logged
from program import on_terminal, torchx

from torchx.errors import StateError
from torchx.execution import Streams

pytestmark = pytest.mark.docker


def run(app_id: str, *command: str, replica: int = 0, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    out, err = io.BytesIO(), io.BytesIO()
    source = None
    if stdin is not None:
        source, feed = os.pipe()
        os.write(feed, stdin)
        os.close(feed)
    code = scheduler().execute(app_id, "w", replica, command, Streams(out, err, source))
    if source is not None:
        os.close(source)
    return code, out.getvalue(), err.getvalue()


def test_a_program_in_a_replica(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("echo up; exec sleep 60", 2))
    until_logged(app_id, "up\n")
    odd = "a b'\"$HOME é"
    assert run(app_id, "sh", "-c", 'echo "$1"; echo no >&2; exit 3', "sh", odd) == (
        3,
        f"{odd}\n".encode(),
        b"no\n",
    )
    assert run(app_id, "sh", "-c", "echo $TORCHX_REPLICA", replica=1)[1] == b"w/1\n"
    assert run(app_id, "wc", "-c", stdin=b"x" * 5000)[1].strip() == b"5000"
    assert run(app_id, "seq", "100000")[1].split()[-1] == b"100000"
    handle = f"local_docker://torchx/{app_id}"
    done = torchx("exec", f"{handle}/w/1", "sh", "-c", "echo $TORCHX_REPLICA; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "w/1\n", "")
    assert on_terminal("exec", handle, "sh", "-c", "test -t 1 && echo terminal")[0].strip() == "terminal"
    with pytest.raises(StateError, match="has no replica w/7"):
        run(app_id, "true", replica=7)


def test_what_is_not_there(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("echo up; exec sleep 60"))
    until_logged(app_id, "up\n")
    try:
        code, out, err = run(app_id, "no-such-program")
    except StateError as error:
        assert "no-such-program" in str(error)
    else:
        assert code in (126, 127)
        assert b"no-such-program" in out + err
    over = jobs.submit(sh("true"))
    ended(over)
    with pytest.raises(StateError, match="does not run any more"):
        run(over, "true")
