"""A program beside a replica of a Slurm job: on its node, with its environment; its input and its result."""

from __future__ import annotations

import hashlib
import io
import random
import signal
from pathlib import Path

import pytest
from canary import canary
from program import on_terminal, start, torchx
from slurms import output, role, slurm
from support import wait_until

from torchx.errors import StateError
from torchx.machine import enter
from torchx.schedulers.shared.batch.exec import Gate
from torchx.schedulers.slurm.exec import _Messages
from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.scheduling.streams import Streams
from torchx.specs import AppDef


@pytest.mark.slurm
def test_it_runs_on_the_node_of_the_replica(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    secret, argument = canary(), canary()
    two = role(f"cd {tmp_path}; echo up; exec sleep 600", "two", num_replicas=2, env={"S": secret})
    two.env["CUDA_VISIBLE_DEVICES"] = "3"
    app_id = scheduler.submit(AppDef("enter", [role("exec sleep 600", "one"), two]), {})
    wait_until(lambda: output(scheduler, app_id) == b"up\n" * 2, "it runs")

    def run(*command: str, source: int | None = None) -> tuple[int, bytes, bytes]:
        out, err = io.BytesIO(), io.BytesIO()
        code = scheduler.execute(app_id, "two", 1, command, Streams(out, err, source))
        return code, out.getvalue(), err.getvalue()

    script = "echo $TORCHX_REPLICA $CUDA_VISIBLE_DEVICES $S $SLURM_PROCID; pwd; echo no >&2; exit 3"
    expected = f"two/1 3 {secret} 1\n{tmp_path}\n"
    assert run("sh", "-c", script, argument) == (3, expected.encode(), b"no\n")
    data = random.Random(7).randbytes(3_000_000)
    (tmp_path / "data").write_bytes(data)
    with (tmp_path / "data").open("rb") as file:
        digest = f"{hashlib.sha256(data).hexdigest()}  -\n".encode()
        assert run("sha256sum", source=file.fileno()) == (0, digest, b"")
    assert run("sh", "-c", "head -c 300000 /dev/zero; kill -9 $$")[:2] == (137, bytes(300_000))
    assert run("sh", "-c", "yes | head -n 1") == (0, b"y\n", b""), "SIGPIPE has its usual effect"
    handle = f"slurm://torchx/{app_id}/two/1"
    shown, code = on_terminal("exec", handle, "sh", "-c", "stty size; test -t 2 && echo terminal; exit 6")
    assert (shown.split(), code) == (["40", "80", "terminal"], 6)
    with pytest.raises(StateError, match="no program `no-such-program` on the PATH"):
        run("no-such-program")
    if "slurmdbd" in slurm("scontrol", "show", "config"):
        lines = slurm("sacct", f"--jobs={app_id}", "--format=ALL", "--parsable2")
        assert argument not in lines
        assert secret not in lines
    slurm("scontrol", "suspend", app_id)
    with pytest.raises(StateError, match="is suspended"):
        run("true")
    slurm("scontrol", "resume", app_id)
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    with pytest.raises(StateError, match=f"two/1 of {app_id} is not running"):
        run("true")
    done = torchx("exec", handle, "true")
    assert (done.returncode, done.stderr) == (
        1,
        f"error: two/1 of {app_id} is not running\n  its state: torchx status {app_id}\n",
    )


@pytest.mark.slurm
def test_no_program_stays_behind(scheduler: SlurmScheduler) -> None:
    """The command line is killed: the program ends too.

    Slurm reports a step CANCELLED if srun has killed it. From Slurm 25.11 on, that cancels the whole job.
    """
    roles = [role("echo up; exec sleep 600", name) for name in ("one", "two")]
    app_id = scheduler.submit(AppDef("behind", roles), {})
    wait_until(lambda: output(scheduler, app_id) == b"up\n" * 2, "it runs")
    handle = f"slurm://torchx/{app_id}/one/0"
    for number in (signal.SIGKILL, signal.SIGHUP):
        with start("exec", handle, "sh", "-c", "trap '' USR2; echo $$; exec sleep 600") as command:
            assert command.stdout is not None
            pid = int(command.stdout.readline())
            command.send_signal(number)
        wait_until(lambda pid=pid: enter.start_of(pid) < 0, "it has ended")
    argv = ("squeue", "--noheader", "--steps", f"--jobs={app_id}", "--format=%i")
    wait_until(lambda: len(slurm(*argv).split()) <= 3, "those of the script and of the roles are left")
    if "slurmdbd" in slurm("scontrol", "show", "config"):
        columns = ("--noheader", "--parsable2", "--format=JobName,State")
        wait_until(
            lambda: slurm("sacct", f"--jobs={app_id}", *columns).count("sh|FAILED") == 2, "none is cancelled"
        )


def sent(*parts: bytes, mark: bytes = b"M") -> tuple[bool, bytes, bytes]:
    """Passes stderr of srun in parts; returns if the program began, its own part, and the held one."""
    out = io.BytesIO()
    gate = Gate(mark, out)
    messages = _Messages(gate)
    for part in parts:
        messages.write(part)
    messages.finish()
    return gate.is_open, out.getvalue(), gate.held + messages.dropped


def test_messages_of_srun_are_apart_from_those_of_program() -> None:
    end = b"srun: error: node1: task 0: Exited with exit code 3\n"
    assert sent(b"M\na\n", end) == (True, b"a\n", end)
    assert sent(b"M", b"\n", b"sru", b"n: mine\nsr", b"un: error: node1: task 0: Killed\n", b"b") == (
        True,
        b"srun: mine\nb",
        b"srun: error: node1: task 0: Killed\n",
    )
    assert sent(b"M\npart srun: error: node1: task 0: Killed\nsrun")[1].endswith(b"Killed\nsrun")
    refused = b"srun: error: Unable to create step for job 7: Job/step already completing or completed\n"
    assert sent(refused) == (False, b"", refused)
