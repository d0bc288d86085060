"""The processes of a job's replicas: start them, read their pipes and decode how they ended."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import resource
import selectors
import signal
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchx import settings
from torchx.end_causes import EndCause, Reason
from torchx.jobs.events import Clock
from torchx.jobs.log_index import STDERR, STDOUT
from torchx.jobs.paths import LogPaths
from torchx.jobs.record import JobRecord, RoleRecord
from torchx.machine import files, processes
from torchx.machine.processes import Process
from torchx.supervisor.output import PARTIAL_AFTER, AttemptOutput, Index
from torchx.supervisor.policies import Interest, Policy, Replica
from torchx.supervisor.process import OTHER_FILES, PIPES_PER_REPLICA

READ_SIZE = 1 << 16
FILES_PER_REPLICA = PIPES_PER_REPLICA + 3  # its pipes and its logs
ATTEMPT_FILES = ("stdout.log", "stderr.log", "combined.log", "error.json")


@dataclass
class Running(Replica):
    """A replica that is running, or whose output is still being read.

    Attributes:
        process: its main process.
        output: its log files.
        listeners: the policies that handle its output.
        pipes: the open read ends, by stream.
        ended: whether its main process has ended.
    """

    process: Process
    output: AttemptOutput
    listeners: Sequence[Policy[Running]] = ()
    pipes: dict[int, int] = field(default_factory=dict)
    ended: bool = False


class Replicas:
    """Starts replicas and reads their output.

    Args:
        record: the job.
        clock: the job's clock.
        selector: the selector for the pipes; the data of its keys are ``(Running, stream)``.
        base_env: the environment that those of the roles extend.
        umask: the umask of the replicas; -1 for that of this process.

    Attributes:
        policies: policies that add variables to their environment, and handle their output.
    """

    def __init__(
        self,
        record: JobRecord,
        clock: Clock,
        selector: selectors.BaseSelector,
        base_env: Mapping[str, str],
        umask: int,
    ) -> None:
        self._umask = umask
        self._clock = clock
        self._selector = selector
        # encoded once: with a thousand replicas, this takes as long as half of their log files
        self._base_env = _encoded(base_env)
        self._role_env = {role.name: _encoded(role.env) for role in record.roles}
        self._programs: dict[tuple[str, bytes], str | None] = {}
        self._logs = LogPaths(Path(record.log_dir))
        self._specs: list[tuple[RoleRecord, int]] = [(role, n) for _, role, n in record.replicas()]
        self._attempts = [0] * len(self._specs)
        self._own_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._keep_open = self._raise_file_limit()
        self.by_pid: dict[int, Running] = {}
        self.index = Index(self._logs.index)
        self.lost = 0  # bytes of output that could not be written
        self.lost_why = ""
        self.policies: Sequence[Policy[Running]] = ()
        self._holding: set[int] = set()
        self._open: dict[int, Running] = {}  # by id(): replicas with open files or pipes

    def __len__(self) -> int:
        return len(self._specs)

    def label(self, ordinal: int) -> str:
        """Returns ``role/id``."""
        role, replica = self._specs[ordinal]
        return f"{role.name}/{replica}"

    def attempt(self, ordinal: int) -> int:
        """Returns the number of a replica's current attempt, or 0 before the first."""
        return self._attempts[ordinal]

    def start(self, ordinal: int) -> Running:
        """Starts the next attempt of a replica.

        Raises:
            OSError: it cannot be started; only its log folder remains.
        """
        role, replica = self._specs[ordinal]
        attempt = self._attempts[ordinal] + 1
        folder = self._logs.replica(role.name, replica)
        if attempt > 1:
            set_aside(folder, attempt - 1)
        self._attempts[ordinal] = attempt
        spec = role.replicas[replica]
        env = self.environment(ordinal)
        output = AttemptOutput(folder, ordinal, attempt, self.index, self._clock, self._keep_open)
        reads: dict[int, int] = {}
        writes: dict[int, int] = {}
        try:
            for stream in (STDOUT, STDERR):
                reads[stream], writes[stream] = os.pipe()
                os.set_blocking(reads[stream], False)
            began = time.monotonic()
            process = self._spawn(spec.args, env, role.cwd, writes)
        except BaseException:
            for descriptor in reads.values():
                os.close(descriptor)
            output.close()
            raise
        finally:
            for descriptor in writes.values():
                os.close(descriptor)
        with contextlib.suppress(OSError):  # it may have ended already
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, self._own_limit)
        listeners = [policy for policy in self.policies if policy.interest(ordinal) != Interest.NOTHING]
        running = Running(ordinal, attempt, began, process, output, listeners, reads)
        for stream, descriptor in reads.items():
            self._selector.register(descriptor, selectors.EVENT_READ, (running, stream))
        self.by_pid[process.pid] = running
        self._open[id(running)] = running
        return running

    def environment(self, ordinal: int) -> dict[bytes, bytes]:
        """Returns the environment of a replica in its current attempt."""
        role, replica = self._specs[ordinal]
        more = {name: value for policy in self.policies for name, value in policy.variables(ordinal).items()}
        own = {**role.replicas[replica].env, settings.TORCHX_ATTEMPT: str(self._attempts[ordinal])}
        return {**self._base_env, **_encoded(more), **self._role_env[role.name], **_encoded(own)}

    def _spawn(
        self, args: Sequence[str], env: Mapping[bytes, bytes], cwd: str | None, writes: Mapping[int, int]
    ) -> Process:
        """Starts the program of a replica, which is looked up once for all replicas with the same PATH.

        Raises:
            OSError: it cannot be started.
        """
        key = (args[0], env.get(b"PATH", b""))
        if key not in self._programs:
            self._programs[key] = find_program(*key)
        program = self._programs[key]
        start = functools.partial(
            processes.spawn,
            args,
            env=env,
            cwd=cwd,
            stdout=writes[STDOUT],
            stderr=writes[STDERR],
            umask=self._umask,
        )
        if program is not None:
            with contextlib.suppress(OSError):  # it has been moved, for example
                return start(program=program)
            del self._programs[key]
        return start()

    def read(self, running: Running, stream: int) -> int:
        """Reads available output of one stream once and writes it to the logs.

        Returns:
            The number of bytes; 0 if no output is available, or the stream has ended.
        """
        descriptor = running.pipes.get(stream)
        if descriptor is None:
            return 0
        try:
            data = os.read(descriptor, READ_SIZE)
        except BlockingIOError:
            return 0
        if not data:
            self._close_pipe(running, stream)
            return 0
        running.output.feed(stream, data)
        for policy in running.listeners:
            policy.output(running.ordinal, stream, data, time.monotonic())
        if running.output.holds:
            self._holding.add(id(running))
        return len(data)

    def read_all(self) -> None:
        """Reads the available output of all replicas once."""
        for running in self.still_open():
            for stream in list(running.pipes):
                self.read(running, stream)

    def drain(self, running: Running) -> None:
        """Reads the current content of a replica's pipes, but not later output, which may never end."""
        for stream, descriptor in list(running.pipes.items()):
            left = _waiting_in(descriptor)
            while left > 0 and (count := self.read(running, stream)):
                left -= count

    def flush(self) -> None:
        """Writes the index, and unfinished lines older than `PARTIAL_AFTER`."""
        for key in list(self._holding):
            running = self._open.get(key)
            if running is not None:
                running.output.flush(PARTIAL_AFTER)
            if running is None or not running.output.holds:
                self._holding.discard(key)
        self.index.flush()

    @property
    def holds(self) -> bool:
        """True if an unfinished line is buffered."""
        return bool(self._holding)

    def still_open(self) -> list[Running]:
        """Returns the replicas whose pipes are still open."""
        return list(self._open.values())

    def finish(self, running: Running) -> None:
        """Reads the rest of a replica's output and closes its descriptors."""
        self.drain(running)
        for stream in list(running.pipes):
            self._close_pipe(running, stream)

    def _close_pipe(self, running: Running, stream: int) -> None:
        descriptor = running.pipes.pop(stream)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        if not running.pipes:
            running.output.close()
            self._open.pop(id(running), None)
            self.lost += running.output.lost
            self.lost_why = running.output.lost_why or self.lost_why

    def _raise_file_limit(self) -> bool:
        """Raises the limit of open files; returns True if all logs can stay open."""
        _, hard = self._own_limit
        wanted = FILES_PER_REPLICA * len(self._specs) + OTHER_FILES
        for limit in (hard, wanted) if 0 <= hard < wanted else (hard,):
            with contextlib.suppress(ValueError, OSError):  # only root may exceed the hard limit
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        return not 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] < wanted  # below 0: infinite


def find_program(name: str, path: bytes) -> str | None:
    """Returns the file that the kernel would start for a program; None if that depends on the working folder.

    Args:
        name: the program.
        path: the PATH to look in.
    """
    folders = os.fsdecode(path).split(os.pathsep)
    if os.sep in name or not all(map(os.path.isabs, folders)):
        return None
    found = (Path(folder, name) for folder in folders)
    return next((str(file) for file in found if os.access(file, os.X_OK) and file.is_file()), None)


def _encoded(env: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def _waiting_in(pipe: int) -> int:
    """Returns the number of unread bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def set_aside(folder: Path, attempt: int) -> None:
    """Moves the logs of an ended attempt to a folder of their own."""
    aside = folder / f"attempt-{attempt}"
    files.make_folder(aside)
    for name in ATTEMPT_FILES:
        with contextlib.suppress(FileNotFoundError):
            (folder / name).rename(aside / name)


def decode_status(status: int) -> tuple[int | None, str | None]:
    """Returns the exit code or the signal's name of a wait status.

    >>> decode_status(3 << 8), decode_status(9)
    ((3, None), (None, 'SIGKILL'))
    """
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status), None
    number = os.WTERMSIG(status)
    try:
        return None, signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return None, f"SIG{number}"


def shell_code(error: Exception) -> int:
    """Returns a shell's exit code for a program that cannot be started: 127 if not found, otherwise 126."""
    if isinstance(error, FileNotFoundError):
        return 127
    return 126


def start_reason(error: OSError | ValueError) -> Reason:
    """Returns the reason for which a replica could not be started.

    >>> start_reason(FileNotFoundError(2, "No such file or directory", "trian")).text
    'trian: No such file or directory'
    >>> start_reason(BlockingIOError(11, "Resource temporarily unavailable"))
    Reason(text='Resource temporarily unavailable: too many processes (ulimit -u)', cause=None, notes=())
    """
    if not isinstance(error, OSError):
        return Reason(str(error))
    cause = None
    if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
        cause = EndCause.MISSING_PROGRAM
    file = ""
    if isinstance(error.filename, str):
        file = f"{error.filename}: "
    return Reason(f"{file}{processes.start_error(error)}", cause)
