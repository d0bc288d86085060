"""The processes of replicas: their output, their descriptors, and how they ended."""

from __future__ import annotations

import errno
import os
import resource
import selectors
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import wait_until

from torchx.end_causes import EndCause, Reason
from torchx.jobs.events import Clock
from torchx.jobs.log_index import STDERR, STDOUT
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.supervisor import replicas as module
from torchx.supervisor.process import files_needed
from torchx.supervisor.replicas import Replicas, Running, decode_status, set_aside, start_reason


class Job:
    """A job of two roles in this process, which reads the output of its replicas."""

    def __init__(self, folder: Path, *scripts: str, path: str = "", program: str = "/bin/sh") -> None:
        self.selector = selectors.DefaultSelector()
        self.logs = folder / "torchx" / "job-1"
        self.logs.mkdir(parents=True)
        made = [ReplicaRecord([program, "-c", script], {"OWN": script}) for script in scripts]
        roles = [RoleRecord("a", made[:1], {"ROLE": "a"}), RoleRecord("b", made[1:], {})]
        record = JobRecord("job-1", "s", "torchx", "job", 0.0, str(self.logs), roles, {}, {})
        base = {"BASE": "base", "ROLE": "base", **({"PATH": path} if path else {})}
        self.replicas = Replicas(record, Clock(), self.selector, base, 0o027)

    def run(self, ordinal: int) -> Running:
        """Runs an attempt to its end, and reads all of its output."""
        running = self.replicas.start(ordinal)
        _, status = os.waitpid(running.process.pid, 0)
        assert status == 0
        self.replicas.by_pid.pop(running.process.pid)
        self.replicas.finish(running)
        return running

    def text(self, name: str) -> str:
        return (self.logs / name).read_text()


@pytest.fixture
def limit() -> Iterator[tuple[int, int]]:
    """The limit of open files, which a job raises."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def descriptors(limit: tuple[int, int]) -> Iterator[None]:
    """Fails if a descriptor is left."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert set(os.listdir("/proc/self/fd")) == before


def test_environment_umask_and_logs_of_replica(
    tmp_path: Path, descriptors: None, limit: tuple[int, int]
) -> None:
    job = Job(tmp_path, "umask; ulimit -n; env; echo err >&2", "echo other", "exit 0")
    assert len(job.replicas) == 3
    assert [job.replicas.label(n) for n in range(3)] == ["a/0", "b/0", "b/1"]
    first, second = job.run(0), job.run(1)
    lines = job.text("a/0/stdout.log").splitlines()
    assert lines[:2] == ["0027", "unlimited" if limit[0] == resource.RLIM_INFINITY else str(limit[0])]
    assert {"BASE=base", "ROLE=a", "OWN=umask; ulimit -n; env; echo err >&2", "TORCHX_ATTEMPT=1"} <= set(
        lines
    )
    assert job.text("a/0/stderr.log") == "err\n"
    assert job.text("b/0/combined.log") == "other\n"
    assert (first.ordinal, second.ordinal, second.attempt) == (0, 1, 1)
    assert job.replicas.still_open() == []
    again = job.run(1)
    assert (again.attempt, job.replicas.attempt(1), job.replicas.attempt(2)) == (2, 2, 0)
    assert job.text("b/0/attempt-1/combined.log") == job.text("b/0/combined.log") == "other\n"
    job.replicas.index.close()
    job.selector.close()


def test_failed_start_leaves_no_descriptor_and_counts_as_attempt(tmp_path: Path, descriptors: None) -> None:
    job = Job(tmp_path, "exit 0")
    job.replicas._specs[0][0].replicas[0].args[0] = "/no/such/program"
    for number in (1, 2):
        with pytest.raises(FileNotFoundError):
            job.replicas.start(0)
        assert job.replicas.attempt(0) == number
    assert job.replicas.still_open() == []
    job.replicas.index.close()
    job.selector.close()


def test_program_that_has_been_moved_is_looked_up_again(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("empty", "first", "second")]
    for folder in folders:
        folder.mkdir()
    job = Job(tmp_path, "", "", "", path=os.pathsep.join(map(str, folders)), program="prog")
    for ordinal, folder in enumerate(folders):
        if folder.name != "empty":
            (folder / "prog").write_text(f"#!/bin/sh\necho {folder.name}\n")
            (folder / "prog").chmod(0o700)
            job.run(ordinal)
            assert job.text(f"b/{ordinal - 1}/stdout.log") == f"{folder.name}\n"
            (folder / "prog").unlink()
    with pytest.raises(FileNotFoundError, match="prog"):
        job.replicas.start(0)


def test_where_a_program_is_found(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "prog").mkdir()
    for name, mode in (("b", 0o600), ("c", 0o700)):
        (tmp_path / name / "prog").touch()
        (tmp_path / name / "prog").chmod(mode)
    path = os.fsencode(f"{tmp_path}/none:{tmp_path}/a:{tmp_path}/b:{tmp_path}/c")
    assert module.find_program("prog", path) == f"{tmp_path}/c/prog"
    assert module.find_program("nosuch", path) is None
    for name, folders in (("./prog", path), ("prog", path + b":"), ("prog", b"bin:" + path), ("prog", b"")):
        assert module.find_program(name, folders) is None, "it depends on the working folder"


def test_output_is_read_as_it_comes(tmp_path: Path, descriptors: None) -> None:
    go = tmp_path / "go"
    job = Job(
        tmp_path, f"printf begin; while [ ! -e {go} ]; do sleep 0.02; done; echo err >&2; exec sleep 600"
    )
    running = job.replicas.start(0)
    try:
        assert job.replicas.still_open() == [running]
        assert job.replicas.read(running, STDERR) == 0
        assert job.replicas.read(running, 9) == 0
        ((key, _),) = job.selector.select(60)
        assert key.data == (running, STDOUT)
        assert not job.replicas.holds
        assert job.replicas.read(running, STDOUT) == 5
        assert job.replicas.holds
        job.replicas.flush()
        assert job.text("a/0/combined.log") == "", "an unfinished line waits for its end"
        wait_until(lambda: job.replicas.flush() or not job.replicas.holds, "it has waited")
        assert job.text("a/0/combined.log") == "begin"
        go.touch()
        wait_until(lambda: job.replicas.drain(running) or job.text("a/0/stderr.log"), "stderr is read")
        assert running.pipes.keys() == {STDOUT, STDERR}
        job.replicas.finish(running)
        assert running.pipes == {}
        assert not job.selector.get_map()
        assert job.replicas.read(running, STDOUT) == 0
    finally:
        os.kill(running.process.pid, signal.SIGKILL)
        os.waitpid(running.process.pid, 0)
        job.replicas.index.close()
        job.selector.close()


def test_ended_pipe_is_closed_and_other_continues(tmp_path: Path, descriptors: None) -> None:
    job = Job(tmp_path, "exec >&-; echo err >&2")
    running = job.replicas.start(0)
    os.waitpid(running.process.pid, 0)
    assert job.replicas.read(running, STDOUT) == 0
    assert list(running.pipes) == [STDERR]
    assert job.replicas.still_open() == [running]
    assert job.replicas.read(running, STDERR) == 4
    assert job.replicas.read(running, STDERR) == 0
    assert job.replicas.still_open() == []
    job.replicas.index.close()
    job.selector.close()


def test_a_drain_reads_what_is_there_and_no_more(tmp_path: Path, descriptors: None) -> None:
    size = 50_000
    job = Job(tmp_path, f"head -c {size} /dev/zero; head -c 300 /dev/zero >&2")
    running = job.replicas.start(0)
    os.waitpid(running.process.pid, 0)
    reads: list[int] = []
    real = job.replicas.read

    def read(of: Running, stream: int) -> int:
        reads.append(count := real(of, stream))
        return count

    job.replicas.read = read  # type: ignore[method-assign]
    job.replicas.drain(running)
    assert sum(reads) == size + 300
    assert 0 not in reads, "it does not look for the end of output that may never end"
    job.replicas.finish(running)
    assert (job.logs / "a/0/stdout.log").stat().st_size == size
    job.replicas.index.close()
    job.selector.close()


def test_lost_output_of_all_replicas_is_counted(tmp_path: Path, descriptors: None) -> None:
    job = Job(tmp_path, "echo lost", "echo lost too", "echo kept")
    for ordinal in range(3):
        running = job.replicas.start(ordinal)
        if ordinal < 2:
            with open("/dev/full", "wb") as disk:
                os.dup2(disk.fileno(), running.output._raw[STDOUT]._descriptor or -1)
        os.waitpid(running.process.pid, 0)
        job.replicas.finish(running)
    assert (job.replicas.lost, job.replicas.lost_why) == (5 + 9, "No space left on device")
    job.replicas.index.close()
    job.selector.close()


def test_logs_stay_open_without_a_limit_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(module.resource, "getrlimit", lambda which: unlimited)
    monkeypatch.setattr(module.resource, "setrlimit", lambda which, limits: None)
    job = Job(tmp_path, "exit 0")
    assert job.replicas._keep_open
    job.replicas.index.close()
    job.selector.close()


@pytest.mark.parametrize(("hard", "limits"), [(68, [68, 69]), (69, [69])])
def test_low_limit_of_files_is_raised_if_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard: int, limits: list[int]
) -> None:
    wanted: list[tuple[int, int]] = []
    monkeypatch.setattr(module.resource, "getrlimit", lambda which: (40, hard))
    monkeypatch.setattr(module.resource, "setrlimit", lambda which, both: wanted.append(both))
    job = Job(tmp_path, "exit 0")
    assert wanted == [(limit, limit) for limit in limits]
    job.replicas.index.close()
    job.selector.close()


@pytest.mark.parametrize(
    ("hard", "count", "keep"),
    [(69, 1, True), (68, 1, False), (73, 2, False), (74, 2, True), (163, 20, False), (164, 20, True)],
)
def test_logs_stay_open_only_within_the_limit_of_files(
    tmp_path: Path, limit: tuple[int, int], hard: int, count: int, keep: bool
) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.closerange(3, 1 << 20)  # those of other tests in this process count too
            if not os.geteuid():
                os.chown(tmp_path, 65534, 65534)
                os.chdir(tmp_path)
                os.setresuid(65534, 65534, 65534)  # root may exceed the limit
            os.closerange(3, 1024)  # those of earlier tests in this process count too
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
            job = Job(Path("."), *["exit 0"] * count)
            code = 0 if job.replicas._keep_open is keep else 2
            code = code if resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard) else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_files_that_a_job_needs() -> None:
    assert files_needed(100) - files_needed(0) == 200, "two pipes for each replica"
    assert files_needed(0) >= 10


def test_only_the_files_of_an_attempt_are_set_aside(tmp_path: Path) -> None:
    names = ("stdout.log", "stderr.log", "combined.log", "error.json", "other")
    for name in names:
        (tmp_path / name).write_text(name)
    set_aside(tmp_path, 3)
    set_aside(tmp_path, 4)  # nothing is left
    assert {path.name for path in (tmp_path / "attempt-3").iterdir()} == set(names[:4])
    assert list((tmp_path / "attempt-4").iterdir()) == []
    assert (tmp_path / "other").exists()


def test_how_a_process_ended() -> None:
    assert decode_status(0) == (0, None)
    assert decode_status(255 << 8) == (255, None)
    assert decode_status(signal.SIGTERM) == (None, "SIGTERM")
    assert decode_status(signal.SIGSEGV | 0x80) == (None, "SIGSEGV")
    assert decode_status(40) == (None, "SIG40")


def test_why_a_program_cannot_be_started() -> None:
    assert module.shell_code(FileNotFoundError()) == 127
    assert module.shell_code(PermissionError()) == 126
    assert module.shell_code(ValueError()) == 126
    assert start_reason(ValueError("embedded null byte")) == Reason("embedded null byte")
    full = start_reason(OSError(errno.EMFILE, "Too many open files"))
    assert full == Reason("Too many open files (ulimit -n)")
    assert start_reason(OSError("custom")) == Reason("custom")
    denied = start_reason(OSError(errno.EACCES, "Permission denied", 3))
    assert denied == Reason("Permission denied", EndCause.MISSING_PROGRAM)
