"""Run a program of this machine with the streams of a caller: with pipes or a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from torchx.errors import StateError
from torchx.machine import processes, threads
from torchx.machine.polling import HasDescriptor, readable, ready
from torchx.schedulers.shared.exec import AT_A_TIME, POLL_INTERVAL, Caller
from torchx.schedulers.shared.exec_guard import ENDED
from torchx.scheduling.streams import Streams
from torchx.supervisor.process import python_command, reap

END_WITHIN = 2.0
"""Seconds that a program has to end when the caller is interrupted."""
QUIET = 0.2
"""Seconds without output after which all output of the terminal of an ended program was read."""
END_OF_INPUT = b"\x04"


def run_child(
    argv: Sequence[str],
    streams: Streams,
    *,
    env: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
    cwd: str | None = None,
    stderr_apart: bool = False,
    end_signal: int = signal.SIGTERM,
    mark: str = "",
) -> int:
    """Runs a program in its own session and returns its exit code, 128 + N if signal N ended it.

    It ends with the program: output of processes that it leaves behind is not awaited. The program ends with
    this process, however that ends.

    Args:
        argv: the program and its arguments; no shell.
        streams: the streams of the caller.
        env: its environment (default: that of this process).
        cwd: its working directory (default: that of this process).
        stderr_apart: with a terminal, its stderr is not the terminal.
        end_signal: the signal that ends it.
        mark: the mark in its environment, by which all processes below it end with this process too.

    Raises:
        StateError: it cannot be started.
    """
    ends, caller = _Ends(streams, stderr_apart), Caller(streams)
    guard = _Guard(mark)
    try:
        ends.resize(caller)  # first: the program reads the size when it starts
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=ends.theirs[0],
                stdout=ends.theirs[1],
                stderr=ends.theirs[2],
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=_preparation(streams.terminal, end_signal),
            )
        except OSError as error:
            raise StateError(f"`{argv[0]}` could not be run: {processes.start_error(error)}") from error
        finally:
            ends.close_theirs()
        guard.watch(process.pid)
        try:
            _relay(process, ends, caller)
        except BaseException:
            _end(process, end_signal)
            raise
        code = process.wait()
        guard.release()
    finally:
        guard.close()
        ends.close()
    if code >= 0:
        return code
    return 128 - code


class _Guard:
    """The process that ends a program, with all processes below it, when this process is killed.

    Args:
        mark: the mark of the processes; empty for no guard.
    """

    def __init__(self, mark: str) -> None:
        self._writer, self._pid = -1, 0
        if not mark:
            return
        reader, self._writer = os.pipe()
        command = python_command("torchx.schedulers.shared.child_guard", [mark, str(reader)])
        try:
            self._pid = processes.spawn(command, pass_fds=[reader], cwd="/").pid
        except OSError:  # too many processes: the program runs without it
            self.close()
        finally:
            os.close(reader)

    def watch(self, pid: int) -> None:
        """Sends the program."""
        line = b"\n"
        entry = processes.look_up(pid)
        if entry is not None:
            line = b"%d %d\n" % entry.process
        self._send(line)

    def release(self) -> None:
        """Lets the processes stay that the program has left behind."""
        self._send(ENDED)

    def _send(self, data: bytes) -> None:
        with suppress(OSError):
            os.write(self._writer, data)

    def close(self) -> None:
        """Ends the process."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1
        if self._pid:
            threads.begin(reap, self._pid)
            self._pid = 0


def _preparation(terminal: bool, end_signal: int) -> Callable[[], None]:
    """Returns a function that the program's process calls first."""
    end_with_parent = processes.ending_with_parent(end_signal)

    def prepare() -> None:
        end_with_parent()
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    return prepare


def _end(process: subprocess.Popen[bytes], end_signal: int) -> None:
    """Ends a program and its process group."""
    for number in (end_signal, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_WITHIN)
            return


class _Ends:
    """The descriptors between this process and the program.

    Attributes:
        theirs: stdin, stdout and stderr of the program.
        outputs: our ends of its outputs, and whether each is its stderr.
        sink: our end of its input, or None.
        terminal: our end of its terminal, or None.
    """

    def __init__(self, streams: Streams, stderr_apart: bool) -> None:
        self.outputs: dict[int, bool] = {}
        self.terminal: int | None = None
        self.sink: int | None = None
        if streams.terminal:
            self.terminal, slave = os.openpty()
            self.theirs = [slave, slave, slave]
            self.outputs[self.terminal] = False
            self.sink = self.terminal
        else:
            source = os.open(os.devnull, os.O_RDONLY)
            if streams.stdin is not None:
                os.close(source)
                source, self.sink = os.pipe()
            ours, out = os.pipe()
            self.outputs[ours] = False
            self.theirs = [source, out, out]
        if stderr_apart or not streams.terminal:
            ours, self.theirs[2] = os.pipe()
            self.outputs[ours] = True
        for descriptor in {*self.outputs, *([] if self.sink is None else [self.sink])}:
            os.set_blocking(descriptor, False)

    def resize(self, caller: Caller) -> None:
        """Gives the terminal of the program the size of that of the caller, if it is new."""
        if self.terminal is not None and (size := caller.new_size()) is not None:
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def close_theirs(self) -> None:
        """Closes the ends that the program has inherited."""
        for descriptor in set(self.theirs):
            os.close(descriptor)

    def close_sink(self) -> None:
        """Ends the input of the program."""
        if self.sink is not None and self.sink != self.terminal:
            os.close(self.sink)
        self.sink = None

    def close_output(self, descriptor: int) -> None:
        """Closes an output that has ended."""
        del self.outputs[descriptor]
        if descriptor != self.terminal:
            os.close(descriptor)

    def close(self) -> None:
        """Closes all that is still open."""
        self.close_sink()
        for descriptor in list(self.outputs):
            self.close_output(descriptor)
        if self.terminal is not None:
            os.close(self.terminal)


def _relay(process: subprocess.Popen[bytes], ends: _Ends, caller: Caller) -> None:
    """Forwards input and output until the program has ended."""
    pending = b""
    watch = _watch(process)
    try:
        while process.poll() is None:
            ends.resize(caller)
            ready = _wait(ends, caller, watch, pending)
            for descriptor in set(ready) & set(ends.outputs):
                if ready[descriptor] & ~select.POLLOUT:
                    _show(descriptor, ends, caller)
            if caller.source is not None and caller.source in ready and ends.sink is not None:
                pending = caller.read()
                if not pending and ends.sink == ends.terminal:
                    pending = END_OF_INPUT
                elif not pending:
                    ends.close_sink()
            if ends.sink is not None and (pending or ready.get(ends.sink, 0) & select.POLLERR):
                pending = _send(pending, ends)
    finally:
        if watch is not None:
            os.close(watch)
    _drain(ends, caller)


def _watch(process: subprocess.Popen[bytes]) -> int | None:
    """Returns a descriptor that is readable once a program has ended, None on old systems."""
    try:
        return processes.open_descriptor(process.pid)
    except OSError:
        return None


def _wait(ends: _Ends, caller: Caller, watch: int | None, pending: bytes) -> dict[int, int]:
    """Waits a moment for input, output or the end of the program; returns the events by their descriptors."""
    masks: dict[int | HasDescriptor, int] = dict.fromkeys(ends.outputs, select.POLLIN)
    if watch is not None:
        masks[watch] = select.POLLIN
    if ends.sink is not None and ends.sink != ends.terminal:
        masks[ends.sink] = select.POLLOUT if pending else 0
    elif pending and ends.terminal is not None:
        masks[ends.terminal] = select.POLLIN | select.POLLOUT
    if caller.source is not None and ends.sink is not None and not pending:
        masks[caller.source] = select.POLLIN
    return ready(masks, POLL_INTERVAL)


def _send(pending: bytes, ends: _Ends) -> bytes:
    """Writes input, as much as fits; returns the rest. The program may have closed its input."""
    assert ends.sink is not None
    try:
        return pending[os.write(ends.sink, pending) :]
    except BlockingIOError:
        return pending
    except OSError:
        ends.close_sink()
        return b""


def _show(descriptor: int, ends: _Ends, caller: Caller) -> bool:
    """Shows available output; returns False if there was none."""
    try:
        data = os.read(descriptor, AT_A_TIME)
    except BlockingIOError:
        return False
    except OSError:  # the terminal of an ended program
        data = b""
    if not data:
        ends.close_output(descriptor)
        return False
    caller.show(data, error=ends.outputs[descriptor])
    return True


def _drain(ends: _Ends, caller: Caller) -> None:
    """Shows the rest of the output of an ended program."""
    for descriptor in list(ends.outputs):
        while _show(descriptor, ends, caller):
            pass
    # the kernel moves the output of a terminal a moment later
    while ends.terminal in ends.outputs and readable([ends.terminal], QUIET):
        _show(ends.terminal, ends, caller)
