"""Keeps one replica of a Slurm job: starts its program, writes down its output and how it ended.

It runs on the nodes, by whatever Python 3 is there, as a copy in the folder of the job: nothing of this
project is installed there. The layout of the logs is that of local jobs (``torchx.jobs.log_index``).
"""

import json
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

LAYOUT = struct.Struct("<QQIIHBB4x")
NAMES = {1: "stdout.log", 2: "stderr.log"}
PARTIAL_AFTER = 0.3  # seconds after which the begin of a line is kept although its end has not come
LONGEST_HELD = 1 << 16
DRAIN = 1.0  # seconds of silence after which output is not waited for any more, once the program has ended


class Output:
    """The log files of one attempt."""

    def __init__(self, folder: str, attempt: int) -> None:
        def file(name: str) -> int:
            return os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        self.attempt = attempt
        self.raw = {stream: file(name) for stream, name in NAMES.items()}
        self.combined, self.index = file("combined.log"), file("log.index")
        self.offset, self.last = 0, 0
        self.held = {1: b"", 2: b""}
        self.since = {1: 0.0, 2: 0.0}

    def feed(self, stream: int, data: bytes) -> None:
        """Keeps what came from one stream; the combined log has whole lines as far as possible."""
        write(self.raw[stream], data)
        cut = data.rfind(b"\n") + 1
        if cut:
            self.keep(stream, self.held[stream] + data[:cut], 0)
            self.held[stream] = b""
        if data[cut:]:
            if not self.held[stream]:
                self.since[stream] = time.monotonic()
            self.held[stream] += data[cut:]
            if len(self.held[stream]) >= LONGEST_HELD:
                self.flush(stream)

    def flush(self, stream: int) -> None:
        """Keeps the begin of a line."""
        if self.held[stream]:
            self.keep(stream, self.held[stream], 1)
            self.held[stream] = b""

    def keep(self, stream: int, data: bytes, partial: int) -> None:
        """Appends to the combined log and notes it in the index."""
        if not write(self.combined, data):
            self.offset = os.fstat(self.combined).st_size
            return
        self.last = max(self.last, int(time.time() * 1e9))
        write(
            self.index,
            LAYOUT.pack(self.last, self.offset, len(data), 0, self.attempt & 0xFFFF, stream, partial),
        )
        self.offset += len(data)


def write(descriptor: int, data: bytes) -> bool:
    """Writes all of it; a full disk must not end the program."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True


def record(path: str, **facts: Any) -> None:
    """Writes a small file that is never seen half."""
    part = path + ".part"
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(facts, file)
        os.rename(part, path)
    except OSError as error:
        complain(path + " cannot be written: " + str(error))


def complain(text: str) -> None:
    """Says something where the job's own output goes."""
    sys.stderr.write("torchx: " + text + "\n")
    sys.stderr.flush()


def new_attempt(folder: str, least: int) -> Any:
    """Makes the folder of this attempt: the first number that no earlier one has."""
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


def main(folder: str, least: int, variables: Any, command: Any) -> int:
    """Runs a command to its end and returns its exit code, 128 + N when signal N ended it.

    Args:
        folder: of the replica.
        least: the number of this attempt, if no earlier one has it.
        variables: of the command's environment, each as NAME=VALUE, besides those of this process.
        command: the program and its arguments.
    """
    told = []  # type: list[int]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: told.append(number))
    attempt, path = new_attempt(folder, least)
    try:
        os.unlink(os.path.join(folder, "error.json"))
    except OSError:
        pass
    output = Output(path, attempt)
    begun = time.time()
    facts = {"host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(), "started_at": begun}
    env = dict(os.environ)
    env.update(variable.split("=", 1) for variable in variables)
    env["TORCHX_ATTEMPT"] = str(attempt)
    try:
        # handlers, in contrast to ignored signals, do not go along to the program
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=env,
        )
    except OSError as error:
        why = "cannot be started: " + str(error.strerror) + ": " + command[0]
        output.feed(2, ("torchx: " + why + "\n").encode())
        code = 127 if isinstance(error, FileNotFoundError) else 126
        record(os.path.join(path, "end.json"), exit_code=code, ended_at=time.time(), msg=why, **facts)
        return code
    record(os.path.join(path, "start.json"), pid=process.pid, **facts)
    status = follow(process, output)
    end = {"exit_code": status} if status >= 0 else {"signal": name_of(-status)}  # type: dict[str, Any]
    if told:
        end["told"] = name_of(told[0])
    record(os.path.join(path, "end.json"), ended_at=time.time(), pid=process.pid, **dict(facts, **end))
    return status if status >= 0 else 128 - status


def follow(process: Any, output: Output) -> int:
    """Reads until the program has ended and its output, too."""
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ, 1)
    selector.register(process.stderr, selectors.EVENT_READ, 2)
    quiet_since = time.monotonic()
    while selector.get_map():
        waits = any(output.held.values())
        ready = selector.select(0.1 if waits or process.poll() is not None else 0.5)
        now = time.monotonic()
        for key, _ in ready:
            data = os.read(key.fd, 1 << 18)
            if data:
                output.feed(key.data, data)
            else:
                output.flush(key.data)
                selector.unregister(key.fileobj)
            quiet_since = now
        for stream in (1, 2):
            if output.held[stream] and now - output.since[stream] > PARTIAL_AFTER:
                output.flush(stream)
        if process.poll() is None:
            quiet_since = now
        elif now - quiet_since > DRAIN:
            break  # something that the program has left behind holds its output open
    output.flush(1)
    output.flush(2)
    return int(process.wait())


def name_of(number: int) -> str:
    """Returns the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIG" + str(number)


def read_task() -> Any:
    """Returns the variables and the command from stdin: other users can see the arguments of a process."""
    texts = [os.fsdecode(text) for text in sys.stdin.buffer.read().split(b"\0")[:-1]]
    at = texts.index("--")
    return texts[:at], texts[at + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *read_task()))
