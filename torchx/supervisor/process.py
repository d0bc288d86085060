"""The process of a supervisor: how it is started, and how it separates from the command that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import torchx
from torchx.errors import StateError
from torchx.machine import files, processes, threads
from torchx.machine.polling import readable

READY_WITHIN = 30.0
"""Maximum seconds until a supervisor reports ready; it usually takes some hundredths."""

RESTARTED_AFTER = 0.5
"""Minimum seconds between two starts of a supervisor that is replaced when it is killed."""

LARGEST_ERROR_LOG = 1 << 20
"""Maximum bytes to read of a supervisor's error output."""

PIPES_PER_REPLICA = 2
OTHER_FILES = 64
"""Files that a supervisor has open besides those of its replicas."""

BOOTSTRAP = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from torchx import lazy; lazy.postpone('inspect', 'ipaddress'); "
    "from {module} import main; main(sys.argv[1:])"
)
"""``dataclasses`` needs ``inspect``, a fifth of the imports, for classes without docstrings only; ``pathlib``
needs ``ipaddress`` for URLs only."""


def files_needed(replicas: int) -> int:
    """Returns the minimum limit of open files for a supervisor of this number of replicas."""
    return PIPES_PER_REPLICA * replicas + OTHER_FILES


def python_command(
    module: str, arguments: Sequence[str], *, isolated: bool = True, delay: float = 0.0
) -> list[str]:
    """Returns the command that calls ``main`` of one of our modules in a new process.

    Args:
        module: the module.
        arguments: the arguments of ``main``.
        isolated: without site packages and the caller's settings of Python. The process starts in half the
            time, and a caller in a folder with modules of any names does not affect it.
        delay: seconds to wait before anything is imported.
    """
    # -I ignores PYTHONUTF8, and both processes must encode paths the same way
    flags = [*(("-I", "-S") if isolated else ()), "-X", f"utf8={sys.flags.utf8_mode}"]
    # the folder of this package comes last, so that it hides no standard module
    root = str(Path(torchx.__file__).resolve().parent.parent)
    if isolated:
        code = BOOTSTRAP
    else:
        code = f"import sys; sys.path.remove(''); {BOOTSTRAP}"
    code = code.format(module=module)
    if delay:
        code = f"import time; time.sleep({delay}); {code}"
    return [sys.executable, *flags, "-c", code, root, *arguments]


def start(
    module: str,
    arguments: Sequence[str],
    log: Path,
    held: Sequence[int] = (),
    *,
    isolated: bool = True,
    delay: float = 0.0,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    umask: int = -1,
) -> None:
    """Starts a supervisor and waits until it reports ready.

    Its arguments are followed by the descriptor for :func:`report_ready`. A supervisor that does not become
    ready is killed.

    Args:
        module: its module; ``main`` of it gets the arguments and calls :func:`separate` first.
        arguments: its arguments.
        log: the file for its error output.
        held: descriptors that it holds for its lifetime, such as its lock.
        isolated: as for :func:`python_command`.
        delay: seconds after which it begins; if not 0, this function does not wait for it.
        env: its environment (default: that of this process).
        cwd: its working directory (default: that of this process).
        umask: its umask; -1 for that of this process.

    Raises:
        StateError: it does not start.
        OSError: the log cannot be written.
    """
    error_log = files.open_file(log, files.APPEND)
    reader, writer = os.pipe()
    args = python_command(module, [*arguments, str(writer)], isolated=isolated, delay=delay)
    try:
        child = processes.spawn(
            args, stderr=error_log, pass_fds=[writer, *held], env=env, cwd=cwd, umask=umask
        )
    except OSError as error:
        os.close(reader)
        file = ""
        if error.filename:
            file = f"{error.filename}: "
        raise StateError(f"the supervisor cannot be started: {file}{processes.start_error(error)}") from error
    finally:
        os.close(writer)
        os.close(error_log)
    if delay:
        os.close(reader)
        threads.begin(reap, child.pid)
        return
    try:
        if not _is_ready(reader):
            raise StateError(f"the supervisor did not start: {_last_error(log) or 'no answer'}")
    except BaseException:
        # its whole session; it is not reaped yet, so its pid cannot have been reused
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        raise
    finally:
        os.close(reader)
        # it continues in its own child process, so this one ends immediately
        reap(child.pid)


def reap(pid: int) -> None:
    """Waits for the end of a process that :func:`separate` leaves, and reaps the others of its group later.

    Process 1 of a container, and a subreaper, adopt the process that continues, and have to reap it.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
        os.waitpid(-pid, os.WNOHANG)  # without an adopted process, this is an error
        threads.begin(_reap_group, pid)


def _reap_group(group: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)


def _is_ready(reader: int) -> bool:
    """Waits until the supervisor reports ready; returns False if it ends or times out."""
    return bool(readable([reader], READY_WITHIN)) and os.read(reader, 16) == b"ready"


def _last_error(log: Path) -> str:
    """Returns the last error in a supervisor's output, or an empty string: the line that is not indented.

    Hints and the frames of a traceback are indented.
    """
    with contextlib.suppress(OSError):
        lines = files.read_file(log, LARGEST_ERROR_LOG).decode("utf-8", "replace").split("\n")
        line = next((line for line in reversed(lines) if line[:1].strip()), "")
        return line.removeprefix(f"{StateError.__module__}.{StateError.__name__}: ")
    return ""


def restart_later(
    module: str, arguments: Sequence[str], held: Sequence[int], delay: float, *, isolated: bool = True
) -> NoReturn:
    """Replaces this process by one that waits, which takes little memory, and then runs a module.

    Args:
        module: the module; ``main`` of it gets the arguments.
        arguments: its arguments.
        held: descriptors that it keeps, such as its lock.
        delay: seconds to wait.
        isolated: as for :func:`python_command`.
    """
    command = python_command(module, arguments, isolated=isolated, delay=delay)
    for descriptor in held:
        os.set_inheritable(descriptor, True)
    os.execv(command[0], command)  # noqa: S606  # no shell


# --- in the process of the supervisor ------------------------------------------------------------


def separate() -> None:
    """Separates this process from its parent: continues in a child, with its own descriptors and signals.

    The parent can reap this process immediately, even a long-lived one such as a notebook.
    """
    processes.disable_descriptor_inheritance()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the caller may have blocked signals
    if fork():
        os._exit(0)


def print_error(text: str) -> None:
    """Writes a line to the log of this process."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def fork() -> int:
    """Continues in this process and in a child process, as os.fork does.

    Raises:
        StateError: the user may start no other process.
    """
    try:
        return os.fork()
    except OSError as error:
        raise StateError(processes.start_error(error)) from error


def continue_under_guard() -> None:
    """Continues in a child process, which this process replaces by another one if it is killed.

    For a supervisor that can be replaced at any time. This process keeps the descriptors of the supervisor,
    such as its leases, and ends when the supervisor ends orderly.
    """
    while True:
        begun = time.monotonic()
        child = fork()
        if not child:
            return
        _, status = os.waitpid(child, 0)
        if status == 0:
            os._exit(0)
        time.sleep(max(0.0, begun + RESTARTED_AFTER - time.monotonic()))


def report_ready(ready: int) -> None:
    """Reports to the process that called :func:`start`; it may have been killed, but the job runs anyway."""
    with contextlib.suppress(BrokenPipeError):
        os.write(ready, b"ready")
    os.close(ready)


def wake_on_signals() -> int:
    """Returns a descriptor that is readable after a signal to end, or the end of a child process."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # handlers, not SIG_IGN: replicas would inherit ignored signals
        signal.signal(number, lambda *_: None)
    return reader
