"""Runs one replica of a batch job: starts its program, records its output and how it ended.

It runs on the nodes, with any Python 3, as a copy in the folder of the job, without torchx installed there.
Logs have the format of local jobs (``torchx.jobs.log_index``).
"""

import importlib
import json
import os
import re
import select
import signal
import struct
import sys
import time

from torchx.schedulers.shared.batch.measurement.meter import USAGE, Meter
from torchx.schedulers.shared.batch.node.program import Program

TYPE_CHECKING = False  # `typing` and other large modules are not imported: a node may run hundreds of agents
if TYPE_CHECKING:
    from typing import Any

LAYOUT = struct.Struct("<QQIIHBB4x")
NAMES = {1: "stdout.log", 2: "stderr.log"}
PARTIAL_AFTER = 0.3  # seconds after which an unfinished line is written
LONGEST_HELD = 1 << 16
notices = []  # type: list[int]  # the processes that deliver notices
DRAIN = 1.0  # seconds to wait for further output after the program has ended
SIGNALLED_WITHIN = 1.0  # seconds within which all processes of a replica are signalled
JOB = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # the folder of the job
STOPPING = "stopping"  # the file in the folder of the job that exists before its script sends TERM
STOPS = (STOPPING, "cancelled")  # files in the folder of the job that exist before its replicas are ended
AT_LIMIT = (
    10.0  # seconds before the time limit from which on an end may be one by the signal of the batch system
)


class Output:
    """The log files of one attempt."""

    def __init__(self, folder: str, attempt: int) -> None:
        def file(name: str) -> int:
            return os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        self.attempt = attempt
        self.raw = {stream: file(name) for stream, name in NAMES.items()}
        self.combined, self.index = file("combined.log"), file("log.index")
        self.offset, self.last = 0, 0
        self.waiting = b""  # entries of the index that are not written yet
        self.held = {1: b"", 2: b""}
        self.since = {1: 0.0, 2: 0.0}

    def feed(self, stream: int, data: bytes) -> None:
        """Writes data from one stream; the combined log gets whole lines if possible."""
        write(self.raw[stream], data)
        cut = data.rfind(b"\n") + 1
        if cut:
            self.append(stream, self.held[stream] + data[:cut], 0)
            self.held[stream] = b""
        if data[cut:]:
            if not self.held[stream]:
                self.since[stream] = time.monotonic()
            self.held[stream] += data[cut:]
            if len(self.held[stream]) >= LONGEST_HELD:
                self.flush(stream)

    def flush(self, stream: int) -> None:
        """Writes an unfinished line, and the entries of the index that are left."""
        self.waiting = write(self.index, self.waiting)
        if self.held[stream]:
            self.append(stream, self.held[stream], 1)
            self.held[stream] = b""

    def append(self, stream: int, data: bytes, partial: int) -> None:
        """Appends to the combined log and the index."""
        if write(self.combined, data):
            self.offset = os.fstat(self.combined).st_size
            return
        self.last = max(self.last, int(time.time() * 1e9))
        self.waiting += LAYOUT.pack(
            self.last, self.offset, len(data), 0, self.attempt & 0xFFFF, stream, partial
        )
        self.waiting = write(self.index, self.waiting)
        self.offset += len(data)


def write(descriptor: int, data: bytes) -> bytes:
    """Writes data; returns the part that could not be written, as a full disk must not end the program."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return data
    return b""


def record(path: str, **facts: "Any") -> None:
    """Writes a JSON file atomically."""
    part = path + ".part"
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(facts, file)
        os.rename(part, path)
    except OSError as error:
        warn("cannot write " + path + ": " + str(error))


def warn(text: str) -> None:
    """Writes a message to the output of the job."""
    sys.stderr.write("torchx: " + text + "\n")
    sys.stderr.flush()


def new_attempt(folder: str, least: int) -> "Any":
    """Creates the folder of this attempt, with the first unused number."""
    for path in (os.path.dirname(folder), folder):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
    taken = [int(name[8:]) for name in os.listdir(folder) if re.match("attempt-[0-9]{1,9}$", name)]
    attempt = max(taken + [least - 1]) + 1
    path = os.path.join(folder, "attempt-" + str(attempt))
    os.mkdir(path, 0o700)
    return attempt, path


def load(name: str) -> "Any":
    """Returns a module beside this file."""
    sys.dont_write_bytecode = True
    folder = os.path.dirname(os.path.abspath(__file__))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def load_service(mark: str, env: "Any") -> "Any":
    """Returns the checks of a replica of a service; see readiness.py."""
    try:
        module = load("readiness")
    except (ImportError, SyntaxError):
        raise OSError(0, "a service needs Python 3.8 on its node") from None
    return module.Service(mark, env)


def unnamed_variables() -> "dict[str, str]":
    """Returns the variables that the shell before this process drops: ``a.b``, and functions of bash."""
    try:
        with open("/proc/" + str(os.getppid()) + "/environ", "rb") as file:
            texts = os.fsdecode(file.read()).split("\0")
    except OSError:
        return {}
    pairs = [text.partition("=") for text in texts]
    return {
        name: value
        for name, _, value in pairs
        if name and not name.encode("ascii", "replace").decode().isidentifier()
    }


def main(
    folder: str,
    least: int,
    logs: str,
    mark: str,
    grace: int,
    variables: "Any",
    command: "Any",
    host: str = "",
    kills: bool = False,
) -> int:
    """Runs a command to its end and returns its exit code, 128 + N if signal N ended it.

    Args:
        folder: the folder of the replica.
        least: the minimum number of this attempt.
        logs: the folder on the node's disk for its output until its end; empty to write it to ``folder``.
        mark: the file that shows that a replica of a service is ready; empty for another one.
        grace: seconds from TERM to KILL, if the job ends the replica.
        variables: environment variables of the command, each as NAME=VALUE, added to those of this process.
        command: the program and its arguments.
        host: the name of this host (default: that of the system).
        kills: kill a program that outlives TERM, as the batch system does not do it.
    """
    parent = os.getppid()
    received = []  # type: list[int]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: received.append(number))
    attempt, path = new_attempt(folder, least)
    try:
        os.unlink(os.path.join(folder, "error.json"))
    except OSError:
        pass
    gathered = None
    if logs:
        gathered = load("gather").on_node(logs, path)
    output = Output(gathered.folder if gathered else path, attempt)
    begun = time.time()
    facts = {"host": host or os.uname().nodename, "started_at": begun}  # type: dict[str, Any]
    facts["run"] = int(os.environ.get("TORCHX_RUN") or 1)
    facts["cwd"] = os.environ.get("PWD", "")
    env = dict(unnamed_variables(), **os.environ)
    env.update(variable.split("=", 1) for variable in variables)
    env["TORCHX_ATTEMPT"] = str(attempt)
    service = steps = None
    if os.path.exists(os.path.join(JOB, ".node", "steps.py")):
        steps = load("steps").begin(path, env)
    try:
        service = load_service(mark, env) if mark else None
        start = os.path.join(path, "start.json")
        process = Program(command, env, lambda pid: record(start, pid=pid, **facts))
    except OSError as error:
        why = "cannot be started: " + str(error.strerror) + ": " + command[0]
        output.feed(2, ("torchx: " + why + "\n").encode())
        if gathered:
            gathered.finish()
        code = 126
        if isinstance(error, FileNotFoundError):
            code = 127
        if mark:
            facts["needed"] = True
        facts["cause"] = "missing_program"
        record(os.path.join(path, "end.json"), exit_code=code, ended_at=time.time(), msg=why, **facts)
        return code

    def handle_notice(*_: "Any") -> None:
        facts["noticed_at"] = time.time()
        record(start, pid=process.pid, **facts)
        notify(process.pid)

    signal.signal(signal.SIGURG, handle_notice)
    if os.path.exists(os.path.join(JOB, ".noticed")):  # before this process handled the signal
        handle_notice()
    if os.path.exists(os.path.join(JOB, STOPPING)):  # it may have missed the signal
        received.append(signal.SIGTERM)
        process.terminate()
    end_of_program = End(service, received, grace, kills)
    meter = Meter(process.pid, lambda **values: record(os.path.join(path, USAGE), usage=values))
    status = follow(process, output, gathered, service, received, end_of_program, meter, steps)
    if steps:
        steps.close()
    facts["ended_at"] = time.time()
    facts["usage"] = meter.totals()
    end = {"exit_code": status} if status >= 0 else {"signal": name_of(-status)}  # type: dict[str, Any]
    if is_being_ended(status, service, received) and not received:
        received.append(signal.SIGTERM)
    if service is not None:
        end.update(service.end(status, bool(received)))
        if status >= 0 and "signal" in end:
            status = -signal.SIGTERM  # ended, as it was not ready in time
    if gathered:
        gathered.finish()
    if received:
        end["stop_signal"] = name_of(received[0])
        if os.getppid() == parent:  # the shell that could start the program again, see replica.sh
            os.kill(parent, signal.SIGTERM)
    record(os.path.join(path, "end.json"), pid=process.pid, **dict(facts, **end))
    if status < 0:
        return 128 - status
    return status or int("needed" in end)


def is_being_ended(status: int, service: "Any", received: "Any") -> bool:
    """Returns True if the replica is being ended, and so has not ended by itself.

    The processes of a replica are signalled one after another: the program, which has ended with ``status``,
    may have got the signal before this process.
    """
    by_term = status in (-signal.SIGTERM, 128 + signal.SIGTERM) or is_at_limit()
    if (service is None and not by_term) or (service is not None and service.late):
        return bool(received)
    if any(os.path.exists(os.path.join(JOB, name)) for name in STOPS):
        return True
    until = time.monotonic() + SIGNALLED_WITHIN
    while not received and time.monotonic() < until:
        time.sleep(0.01)
    return bool(received)


def is_at_limit() -> bool:
    """Returns True at the time limit of the job."""
    ends_at = os.environ.get("TORCHX_ENDS_AT", "")
    return ends_at.isdigit() and time.time() >= int(ends_at) - AT_LIMIT


def notify(pid: int) -> None:
    """Sends the signal of the notice to the program, or to the processes below it that handle the signal."""
    notice = os.environ.get("TORCHX_NOTICE", "").split(":")
    seconds, name = notice[0], notice[-1]
    number = getattr(signal, "SIG" + name, None)
    notices[:] = [each for each in notices if is_running(each)]
    if number is not None and not notices:
        script = os.path.join(JOB, ".node", "notice.sh")
        quiet = 'exec sh "$@" > /dev/null < /dev/null'
        argv = ["sh", "-c", quiet, "sh", script, name, str(int(number)), str(pid), seconds]
        notices.append(os.spawnvp(os.P_NOWAIT, "sh", argv))  # noqa: S606


def is_running(child: int) -> bool:
    """Returns True if a child process has not ended."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == 0
    except ChildProcessError:  # reaped by a handler of signals that has interrupted this one
        return False


class End:
    """The end of a program by its job. A batch system may end programs itself in other cases.

    Args:
        service: the checks of a service; None without.
        received: the signals received so far.
        grace: seconds from TERM to KILL.
        kills: end it in all cases.
    """

    def __init__(self, service: "Any", received: "Any", grace: float, kills: bool = False) -> None:
        self._service, self._received, self._grace, self._kills = service, received, grace, kills
        self._since = None  # type: float | None

    def is_over(self, now: float) -> bool:
        """Returns True after the grace period."""
        if self._since is None:
            late = self._service is not None and self._service.late
            if late or (self._received and (self._kills or os.path.exists(os.path.join(JOB, STOPPING)))):
                self._since = now
        return self._since is not None and now - self._since >= self._grace


def follow(
    process: "Any",
    output: Output,
    gathered: "Any",
    service: "Any" = None,
    received: "Any" = (),
    end: "Any" = None,
    meter: "Any" = None,
    steps: "Any" = None,
) -> int:
    """Reads output until the program has ended and its output is closed; checks a service meanwhile.

    A program that outlives the grace period is killed here, not by a signal to srun: from Slurm 25.11 on, the
    SIGKILL that follows, to a step of the first role, cancels the whole job.

    Args:
        process: the program.
        output: gets its output.
        gathered: the logs on the disk of this node; None without.
        service: the checks of a service; None without.
        received: the signals received so far.
        end: the end of the program by its job.
        meter: measures the program; None without measurements.
        steps: the steps of its ranks; None if they are not recorded.
    """
    end = end or End(service, received, 0.0)
    poll, streams = select.epoll(), {process.stdout: 1, process.stderr: 2}  # it keeps the order of output
    for descriptor in streams:
        poll.register(descriptor, select.EPOLLIN)
    quiet_since, ended = time.monotonic(), False
    while streams:
        waits = any(output.held.values())
        pause = 0.1 if waits or ended else 0.5
        ready = poll.poll(pause if service is None else min(pause, service.pause()))
        now = time.monotonic()
        for descriptor, _ in ready:
            stream, data = streams[descriptor], os.read(descriptor, 1 << 18)
            if data:
                output.feed(stream, data)
                for each in filter(None, (steps, service)):
                    each.feed(stream, data)
            else:
                output.flush(stream)
                poll.unregister(descriptor)
                del streams[descriptor]
            quiet_since = now
        for stream in (1, 2):
            if output.held[stream] and now - output.since[stream] > PARTIAL_AFTER:
                output.flush(stream)
        if gathered and gathered.is_due(now, bool(received)):
            gathered.copy()
        if not ended:  # its last output is read later, even if this process was suspended meanwhile
            quiet_since, ended = now, process.poll() is not None
            if service is not None and not ended:
                service.check(process)
            for each in filter(None, (meter, steps)):
                each.measure(now)
            if end.is_over(now):
                process.kill()
        elif end.is_over(now) or (not ready and now - quiet_since > DRAIN):
            break  # a process left behind by the program holds its output open
    poll.close()
    output.flush(1)
    output.flush(2)
    return int(process.wait())


def name_of(number: int) -> str:
    """Returns the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIG" + str(number)


def read_task() -> "Any":
    """Reads the variables and the command from stdin, as other users can see process arguments."""
    texts = [os.fsdecode(text) for text in sys.stdin.buffer.read().split(b"\0")[:-1]]
    at = texts.index("--")
    return texts[:at], texts[at + 1 :]


if __name__ == "__main__":
    place, least, logs, mark, grace, host, kills = sys.argv[1:8]
    task = read_task()
    sys.exit(main(place, int(least), logs, mark, int(grace), task[0], task[1], host, bool(kills)))
