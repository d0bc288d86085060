"""A run that stays with its application: logs as they come, Ctrl-C, and the result."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from torchx.errors import TorchxError
from torchx_cli.masking import mask_text
from torchx_cli.output import note

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.specs.dryrun import AppDryRunInfo
    from torchx.specs.status import AppStatus

EXIT_INTERRUPTED = 130
QUICK = 1.0
"""Seconds: of an application that succeeded within this, nothing is told but what it printed."""


class Attached:
    """One application from its submission to its end; a context manager that takes over Ctrl-C.

    Args:
        runner: submits it and looks after it.
        info: what is submitted.
        stream: whether its logs are shown on stderr.
    """

    def __init__(self, runner: Runner, info: AppDryRunInfo[Any], stream: bool) -> None:
        self._runner, self._info, self._stream = runner, info, stream
        self._status: AppStatus | None = None
        self._interrupts = Interrupts()
        self.handle = ""

    def __enter__(self) -> Attached:
        self._interrupts.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.__exit__(kind, error, trace)

    def submit(self) -> str:
        """Submits the application and returns its handle; Ctrl-C meanwhile counts when it has started."""
        self.handle = self._runner.schedule(self._info)
        return self.handle

    def leave(self) -> int:
        """Leaves the application running, unless Ctrl-C came during the submission."""
        if not self._interrupts.count:
            return 0
        self._runner.cancel(self.handle)
        return EXIT_INTERRUPTED

    def to_the_end(self) -> int:
        """Stays until the application has ended, and returns the exit code of the command."""
        self._interrupts.arm(
            self.app_id, lambda: self._runner.cancel(self.handle), lambda: self._runner.kill(self.handle)
        )
        if self._stream:
            self._show_logs()
        self._status = self._runner.wait(self.handle)
        if self._status is None:
            note(f"{self.handle} is no longer known to its scheduler")
            return 1
        self._tell_end(self._status)
        return EXIT_INTERRUPTED if self._interrupts.count else exit_code(self._status)

    @property
    def app_id(self) -> str:
        """The id within the handle."""
        from torchx.specs.handles import parse_app_handle

        return parse_app_handle(self.handle).app_id

    def as_data(self) -> dict[str, Any]:
        """Returns how it went as plain data: handle, app_id, scheduler, state, ui_url and more."""
        status = self._status or self._runner.status(self.handle)
        data = {
            "handle": self.handle,
            "app_id": self.app_id,
            "scheduler": self._info._scheduler,
            "state": status.state.name if status else "UNKNOWN",
            "ui_url": status.ui_url if status else None,
            "exit_code": exit_code(status) if status and status.is_terminal() else None,
            "first_failure": None,
        }
        if status is not None and status.first_failure is not None:
            data["first_failure"] = status.to_json()["first_failure"]
        return data

    def _show_logs(self) -> None:
        from torchx.logs import LogQuery
        from torchx_cli.streaming import labels_of, print_chunks, stderr_printer

        roles = self._info.app.roles if self._info.app is not None else []
        printer = stderr_printer(labels_of((role.name, role.num_replicas) for role in roles))
        try:
            print_chunks(self._runner.log_chunks(self.handle, LogQuery(follow=True)), printer)
        except BrokenPipeError:  # nobody reads any more; the result still counts
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        except (TorchxError, NotImplementedError) as error:
            note(f"note: no logs: {error}")

    def _tell_end(self, status: AppStatus) -> None:
        from torchx_cli.applications import short
        from torchx_cli.ending import failure_lines, last_line
        from torchx_cli.times import span

        lasted = span(status.started_at, status.ended_at)
        if status.state.name == "SUCCEEDED" and (lasted is None or lasted < QUICK):
            return
        lines = [last_line(self.app_id, status, sys.stderr)]
        alone = sum(len(role.replicas) for role in status.roles) == 1
        lines += failure_lines(
            self._runner, self.handle, status, sys.stderr,
            called=short(self._runner, self.handle), again=command_line(),
            excerpt=not (self._stream and alone),  # else its last lines stand right above
        )  # fmt: skip
        print("\n".join(lines), file=sys.stderr)


def exit_code(status: AppStatus) -> int:
    """Returns the exit code that tells how an application ended.

    0 when it succeeded; that of the replica that failed first, 128 + N when signal N ended that; else 1.
    """
    if status.state.name == "SUCCEEDED":
        return 0
    result = status.first_failure.result if status.first_failure is not None else None
    return (result & 0xFF or 1) if result else 1


def command_line() -> str:
    """Returns this command as it can be typed again, secrets masked."""
    words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]  # noqa: PTH119  # a text, and no path to open
    if words[0] in ("__main__.py", "-c", "-m"):
        words[:1] = ["torchx"]
    return mask_text(shlex.join(words))


class Interrupts:
    """Ctrl-C during a run: the first cancels the application, the second kills it, a third leaves it.

    Before :meth:`arm` there is nothing to cancel: the first is kept for later, the second leaves.
    """

    def __init__(self) -> None:
        self.count = 0
        self._name = ""
        self._steps: list[Callable[[], None]] = []
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        # a shell starts background jobs with SIGINT ignored, and so it stays
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if self._before is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, self._on)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def arm(self, name: str, cancel: Callable[[], None], kill: Callable[[], None]) -> None:
        """Tells what to end: from now on Ctrl-C acts, one that came before at once."""
        self._name, self._steps = name, [cancel, kill]
        if self.count:
            self._act(1)

    def _on(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self._steps and self.count == 1:
            _say("cancelling as soon as it has started (again to leave)")
        elif self.count > max(1, len(self._steps)):
            raise KeyboardInterrupt
        else:
            self._act(self.count)

    def _act(self, step: int) -> None:
        words = (f"cancelling {self._name} (again to kill)", f"killing {self._name}")
        _say(words[min(step, 2) - 1])
        # in a thread: a signal handler must not wait, and the logs are streamed meanwhile
        threading.Thread(target=self._call, args=(self._steps[min(step, 2) - 1],), daemon=True).start()

    def _call(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # told to the person who pressed Ctrl-C: a thread has no caller
            _say(f"error: {error}")


def _say(text: str) -> None:
    """Writes a line to stderr past Python's buffers, which a signal handler may have interrupted."""
    start = " " if sys.stderr.isatty() else ""  # after the ^C that the terminal shows
    try:
        os.write(sys.stderr.fileno(), f"{start}{text}\n".encode())
    except (OSError, ValueError):
        return
