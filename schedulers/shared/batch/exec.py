"""Runs programs beside the replicas of a batch job, by a program of its engine; connects to their ports."""

from __future__ import annotations

import io
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from torchx.errors import StateError
from torchx.machine import enter, pipe_port
from torchx.machine.port_names import port_number, resolve_port, variable_of
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.scheduling.streams import Output, Streams
from torchx.specs.handles import make_app_handle

PROGRAM = "TORCHX_EXEC_PROGRAM"
"""The variable with the program that becomes the requested one."""
START = f'exec python3 -I -S -c "import os; exec(os.environ.pop(\\"{PROGRAM}\\"))"'
"""The program of a shell that becomes it."""


def entry(
    record: BatchRecord, replica: str, command: Sequence[str], streams: Streams
) -> tuple[bytes, Mapping[str, str]]:
    """Returns the mark that a program writes when it starts, and the variables that :data:`START` reads.

    Args:
        record: the record of the job.
        replica: the replica, as ROLE/REPLICA.
        command: the program and its arguments.
        streams: its standard streams.
    """
    mark = f"torchx-{os.urandom(12).hex()}"
    argument = {
        "job": make_app_handle(record.engine, record.session, record.key),
        "replica": replica,
        "command": list(command),
        "terminal": streams.terminal,
        "mark": mark,
    }
    program = Path(enter.__file__).read_text(encoding="utf-8")
    return mark.encode(), {PROGRAM: program, enter.REQUEST: json.dumps(argument)}


def why_not_run(text: str) -> str:
    """Returns why a program was not started, from the messages before its mark; else empty."""
    own = [line.removeprefix("torchx: ") for line in text.splitlines() if line.startswith("torchx: ")]
    if own:
        return own[-1]
    if "python3" in text:
        return "its node has no python3"
    return ""


class Gate:
    """Forwards the output after a line that marks the start of the program.

    Attributes:
        held: the output before that line: error messages.
        is_open: whether the line was received.
    """

    def __init__(self, mark: bytes, output: Output) -> None:
        self._mark, self._output = mark, output
        self.held = b""
        self.is_open = False

    def write(self, data: bytes, /) -> None:
        """Receives output."""
        if not self.is_open:
            self.held += data
            before, mark, after = self.held.partition(self._mark)
            if not mark or b"\n" not in after:
                return
            self.is_open, self.held = True, before
            data = after.partition(b"\n")[2]
        if data:
            self._output.write(data)

    def flush(self) -> None:
        """Flushes the output behind it."""
        self._output.flush()


def gated(mark: bytes, streams: Streams) -> tuple[Gate, Streams]:
    """Returns a gate for the messages before the start of a program, and the streams with it."""
    if streams.terminal:
        gate = Gate(mark, streams.stdout)
        return gate, Streams(gate, streams.stderr, streams.stdin, True, streams.size)
    gate = Gate(mark, streams.stderr)
    return gate, Streams(streams.stdout, gate, streams.stdin)


def connector(
    record: BatchRecord, replica: str, port: str, run: Callable[[Sequence[str], Streams], int]
) -> Callable[[], socket.socket]:
    """Returns a function that connects to a port of a replica.

    Args:
        record: the record of the job.
        replica: the replica, as ROLE/REPLICA.
        port: the number or the name of the port.
        run: runs a program beside the replica, with unbuffered output.

    Raises:
        StateError: the replica has no such port.
    """
    if port_number(port) is None:
        declared = [each.get("port_map") or {} for each in record.app["roles"]]
        known = {variable_of(name): str(n) for ports in declared for name, n in ports.items()}
        resolve_port(port, known, replica)
        port = variable_of(port)

    def connected() -> socket.socket:
        ours, theirs = socket.socketpair()
        step = _Step(theirs, run)
        threading.Thread(target=step.connect, args=(port,), daemon=True).start()
        if ours.recv(1):
            return ours
        ours.close()
        raise step.error(replica)

    return connected


class _Step:
    """A program on the node whose standard streams are one end of a pair of sockets.

    Args:
        end: that end; closed when the program has ended.
        run: runs a program beside the replica, with unbuffered output.
    """

    def __init__(self, end: socket.socket, run: Callable[[Sequence[str], Streams], int]) -> None:
        self._end, self._run = end, run
        self._errors = io.BytesIO()
        self._failure: StateError | None = None

    def connect(self, port: str) -> None:
        """Runs the program to its end."""
        source = Path(pipe_port.__file__).read_text(encoding="utf-8")
        command = ["python3", "-I", "-S", "-c", source, port]
        with self._end:
            try:
                streams = Streams(_Sender(self._end), self._errors, self._end.fileno())
                self._run(command, streams)
            except StateError as error:
                self._failure = error
            except OSError:
                pass  # the client has closed its connection
            finally:
                with suppress(OSError):
                    self._end.shutdown(socket.SHUT_RDWR)

    def error(self, replica: str) -> StateError:
        """Returns the error for a connection that failed."""
        if self._failure is not None:
            return self._failure
        lines = self._errors.getvalue().decode("utf-8", "replace").split("\n")
        return StateError(f"{replica} cannot be reached: {lines[0] or 'the step has ended'}")


class _Sender:
    """Writes output to a socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def write(self, data: bytes, /) -> None:
        """Sends data."""
        self._end.sendall(data)

    def flush(self) -> None:
        """Does nothing: data is sent immediately."""
