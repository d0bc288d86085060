"""Notebook support: cells as the workspace of a job, and applications that display their status.

In a notebook, ``%load_ext torchx.notebook`` (or the import of this module) turns on the cell magic
``%%workspacefile PATH``, and shows each ``AppStatus`` as a table. Needs IPython.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.printable import counted
from torchx.scheduling.responses import COLOURS, html_table
from torchx.specs.status import AppStatus, ReplicaStatus

with lazy_imports:
    import fsspec

    from torchx import excerpts
    from torchx import runner as torchx_runner
    from torchx.scheduling import logs
    from torchx.specs import handles
    from torchx_cli.terminal import masking

if TYPE_CHECKING:
    from torchx.runner import Runner

WORKSPACE = "memory://torchx-workspace/"
"""The folder of the cells; it exists as long as the notebook's kernel."""

LAST_LINES = 20
"""The number of log lines shown with an application."""


def get_workspace() -> str:
    """Returns the workspace that the cells were written to, for the argument ``workspace`` of a run."""
    return WORKSPACE


def workspacefile(line: str, cell: str) -> None:
    """Writes a cell to a file of the workspace: ``%%workspacefile train.py`` on its first line.

    Raises:
        UsageError: the path is missing, or outside the workspace, or something follows it.
    """
    path = line.strip()
    if len(path.split()) != 1 or path.startswith(("/", "-")) or ".." in path.split("/"):
        raise UsageError(
            f"%%workspacefile takes one path in the workspace, without blanks, got `{path}`",
            hint="%%workspacefile train.py",
        )
    fs, root = fsspec.core.url_to_fs(WORKSPACE)
    target = f"{root.rstrip('/')}/{path}"
    fs.makedirs(target.rpartition("/")[0], exist_ok=True)
    with fs.open(target, "w") as file:
        file.write(cell)
    print(f"wrote {path}, {counted(len(cell.splitlines()), 'line')}")


class App:
    """An application in a notebook: displays its status and the last lines of its log.

    Args:
        handle: its handle, or a shorter name of it, such as ``@last``.
        runner: the runner to query (default: a new one).
    """

    def __init__(self, handle: str, runner: Runner | None = None) -> None:
        if runner is None:
            runner = torchx_runner.get_runner()
        self._runner = runner
        self.handle = runner.resolve_handle(handle, acts=True)

    def status(self) -> AppStatus:
        """Returns its status.

        Raises:
            UnknownAppException: its scheduler no longer knows it.
        """
        status = self._runner.status(self.handle)
        if status is None:
            raise handles.UnknownAppException(self.handle)
        return status

    def lines(self, last: int | None = None, *, follow: bool = False) -> Iterator[str]:
        """Yields the lines of its log, each after the name of its replica; secrets are masked.

        Args:
            last: only this number of last lines.
            follow: go on until it has ended.
        """
        self._register_secrets()
        query = logs.LogQuery(tail=last, follow=follow)
        for chunk in logs.whole_lines(self._runner.log_chunks(self.handle, query)):
            for line in logs.text_of(chunk.data).removesuffix("\n").split("\n"):
                yield masking.mask_text(f"{chunk.role}/{chunk.replica} │ {line}")

    def log(self, last: int | None = None, *, follow: bool = False) -> None:
        """Prints its log; an interrupt of the cell leaves the application running."""
        try:
            for line in self.lines(last, follow=follow):
                print(line)
        except KeyboardInterrupt:
            print(f"{self.handle} is still running")

    def watch(self, interval: float | str = 2.0) -> None:
        """Displays it until it has ended, and updates the display; outside of a notebook, prints its log.

        An interrupt of the cell leaves the application running.

        Args:
            interval: the time between two updates: seconds, or a text such as ``1m``.
        """
        if getattr(_shell(), "kernel", None) is None:
            self.log(follow=True)
            print(self)
            return
        shown = sys.modules["IPython"].display.display(self, display_id=True)
        try:
            while not self.status().is_terminal():
                self._runner.wait(self.handle, timeout=interval)
                shown.update(self)
            shown.update(self)  # it may have ended since the last display
        except KeyboardInterrupt:
            print(f"{self.handle} is still running")

    def wait(self, timeout: float | str | None = None) -> AppStatus:
        """Blocks until it has ended, and returns its status.

        Args:
            timeout: the maximum time: seconds, or a text such as ``10m``.
        """
        self._runner.wait(self.handle, timeout=timeout)
        return self.status()

    def cancel(self) -> None:
        """Cancels it."""
        self._runner.cancel(self.handle)

    def _register_secrets(self) -> None:
        app = self._runner.describe(self.handle)
        if app is not None:
            masking.remember(app.roles)

    def _results_html(self) -> str:
        """Returns the runs of a sweep as a table; empty for another application."""
        if not self._runner.scheduler_of(self.handle).has_runs:
            return ""
        return self._runner.results(self.handle, metrics=[])._repr_html_()

    def __repr__(self) -> str:
        return f"{self.handle} {self.status().state.name}"

    def _repr_html_(self) -> str:
        status = self.status()  # first: at its end, its log is complete
        chunks = list(self._runner.log_chunks(self.handle, logs.LogQuery(tail=LAST_LINES)))
        lines = "\n".join(excerpts.last_lines(chunks, LAST_LINES, names=True))
        self._register_secrets()
        shown = status_html(status, self._results_html())
        lines = masking.mask_text(lines)
        log = ""
        if lines:
            log = f'<pre style="font-family:monospace">{html.escape(lines)}</pre>'
        return f"<div><code>{html.escape(self.handle)}</code>{shown}{log}</div>"


def app(handle: str, runner: Runner | None = None) -> App:
    """Returns an application to display and control in a notebook; see :class:`App`."""
    return App(handle, runner)


def status_html(status: AppStatus, parts: str = "") -> str:
    """Returns the status of an application as HTML, with a table of its parts (default: its replicas)."""
    rows = [_row(replica) for replica in status.replicas]
    first = status.first_failure
    why = ""
    if first:
        why = f"{first.name} failed first: {_result(first.exit_code, first.signal)}"
    heads = ("replica", "state", "time", "result", "attempt")
    state = f'<b style="color:{COLOURS.get(status.state.name, "inherit")}">{status.state.name}</b>'
    return f"<div>{state} {html.escape(why)}</div>{parts or html_table(heads, rows)}"


def _row(replica: ReplicaStatus) -> list[str]:
    return [
        f"{replica.role}/{replica.id}",
        replica.state.name,
        _time(replica.started_at, replica.ended_at),
        _result(replica.exit_code, replica.signal),
        f"{replica.attempt} of {replica.max_attempts}",
    ]


def _result(exit_code: int | None, signal: str | None) -> str:
    return signal or ("" if exit_code is None else f"exit {exit_code}")


def _time(start: datetime | None, end: datetime | None) -> str:
    if start is None:
        return ""
    seconds = ((end or datetime.now(start.tzinfo)) - start).total_seconds()
    if seconds > 0:
        return f"{seconds:.1f} s"
    return ""


def load_ipython_extension(shell: Any) -> None:
    """Activates the notebook support; called by ``%load_ext torchx.notebook``."""
    shell.register_magic_function(workspacefile, magic_kind="cell", magic_name="workspacefile")
    shell.display_formatter.formatters["text/html"].for_type(AppStatus, status_html)


def _shell() -> Any:
    """Returns the shell of IPython; None outside of it."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    return ipython.get_ipython()


def _turn_on() -> None:
    """Activates the notebook support if the module is imported in a notebook."""
    shell = _shell()
    if shell is not None:
        load_ipython_extension(shell)


_turn_on()
