"""Starts the program of a replica on a node.

The file of the agent begins with a copy of this one. ``subprocess`` would take 1 MB and 5 ms more in each of
hundreds of agents on a node.
"""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

OF_AGENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGURG)
"""Signals that the agent handles itself, so that one between fork and exec would not reach the program."""
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that Python or the script of the job ignores, and programs would inherit that."""


class Program:
    """A running program, without input, whose output is read from pipes.

    Args:
        command: the program and its arguments; no shell.
        env: its environment, whose PATH has the program.
        before_start: called with the process before it becomes the program. If the agent is killed by then,
            the program does not start; later, its process is on record, so that it can be ended.

    Attributes:
        pid: its process.
        stdout: the descriptor of its output.
        stderr: the descriptor of its error output.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        command: "list[str]",
        env: "dict[str, str]",
        before_start: "Callable[[int], object]" = lambda pid: None,
    ) -> None:
        self.status = None  # type: int | None
        self.stdout, output = os.pipe()
        self.stderr, errors = os.pipe()
        failed, failure = os.pipe()
        gate, key = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, OF_AGENT)
        try:
            self.pid = os.fork()
            if not self.pid:
                os.close(key)
                become(command, env, (output, errors), failure, gate)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_AGENT)
        for descriptor in (output, errors, failure, gate):
            os.close(descriptor)
        try:
            before_start(self.pid)
            os.write(key, b"1")
        except BrokenPipeError:
            pass  # it was killed
        finally:
            os.close(key)
        error = os.read(failed, 16)  # empty: the program has started, which has closed the other end
        os.close(failed)
        if error:
            self.wait()
            os.close(self.stdout)
            os.close(self.stderr)
            raise OSError(int(error), os.strerror(int(error)), command[0])

    def poll(self) -> "int | None":
        """Returns its exit code, the negative number of the signal that ended it, or None while it runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        """Waits for its end; returns its exit code, or the negative number of the signal that ended it."""
        self._reap(0)
        assert self.status is not None
        return self.status

    def terminate(self) -> None:
        """Sends SIGTERM, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kills it and the processes below it, unless it has ended."""
        if self.poll() is None:
            kill_tree(self.pid)

    def _reap(self, options: int) -> "int | None":
        if self.status is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                ended = os.WIFSIGNALED(status)
                if ended:
                    self.status = -os.WTERMSIG(status)
                else:
                    self.status = os.WEXITSTATUS(status)
        return self.status


def kill_tree(pid: int) -> None:
    """Kills a process and those below it."""
    try:
        os.kill(pid, signal.SIGSTOP)  # it starts no more of them
        for child in children_of(pid):
            kill_tree(child)
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return  # it has ended


def children_of(pid: int) -> "list[int]":
    """Returns the child processes of a process."""
    found = []  # type: list[int]
    try:
        for task in os.scandir("/proc/" + str(pid) + "/task"):
            with open(task.path + "/children") as file:
                found += map(int, file.read().split())
    except OSError:
        return found  # it has ended
    return found


def become(
    command: "list[str]", env: "dict[str, str]", outputs: "tuple[int, int]", failure: int, gate: int
) -> None:
    """Replaces this process, a child of the agent, by a program, or writes the number of the error.

    Args:
        command: the program and its arguments.
        env: its environment.
        outputs: the descriptors for its output and its error output.
        failure: the descriptor for the number of the error.
        gate: the descriptor from which the permission to start is read; it ends if the agent is killed.
    """
    try:
        if not os.read(gate, 1):
            return
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        for number in OF_AGENT + IGNORED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_AGENT)
        os.execvpe(command[0], command, env)  # noqa: S606
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(127)
