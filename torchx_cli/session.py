"""State of one command line: the flags before the command, config and runner."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from torchx import settings
from torchx.command_line import ArgumentError
from torchx.lazy import lazy_imports
from torchx_cli.terminal.output import note, shown

with lazy_imports:
    import logging
    import shlex

    from torchx import config
    from torchx import runner as torchx_runner
    from torchx.config import model
    from torchx.jobs import paths
    from torchx_cli.terminal import masking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from threading import ExceptHookArgs

    from typer import Context

    from torchx.config import Config, ConfigError
    from torchx.runner.api import Runner

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
SESSION = "torchx"
"""The session part of handles created by the command line."""


class Session:
    """The flags before the command, with config and runner created on demand.

    Args:
        profile: the configuration profile, or None.
        log_level: the level of torchx's own log messages; empty for `$LOGLEVEL`.
        context: the other machine of `run` and `cp`; empty for this one.
    """

    def __init__(self, profile: str | None = None, log_level: str = "", context: str = "") -> None:
        self.profile, self.context = profile, context
        self._config: Config | None = None
        level = (log_level or os.environ.get(settings.LOGLEVEL, "")).upper()
        if log_level and level not in LEVELS:
            raise ArgumentError(
                f"--log_level takes one of {', '.join(LEVELS)}, got `{log_level}`",
                flag="--log_level",
                given=log_level,
            )
        if level in LEVELS:
            _show_log(level)

    @property
    def config(self) -> Config:
        """The effective configuration."""
        if self._config is None:
            self._config = config.load_config(profile=self.profile)
            masking.configure(self._config)
            files = self._config.found
            for path, why in zip(files.passed_over, files.reasons, strict=True):
                note(f"note: {passed_over(path, why)}")
            if self._config.ignored:
                note(f"note: {unused_sections(self._config.ignored)}")
        return self._config

    @property
    def valid_config(self) -> Config:
        """The valid part of the configuration, for commands that must work with any."""
        if self._config is None:
            self._config, problems = self.examine_config()
            for error in problems:
                note(f"note: {error.message}; it is ignored")
        return self._config

    def examine_config(self) -> tuple[Config, list[ConfigError]]:
        """Reads the valid part of the configuration, and returns it with all errors."""
        examined, problems = model.examine_config(self.profile)
        masking.configure(examined)
        return examined, problems

    @contextmanager
    def runner(self, *, check_home: bool = True) -> Iterator[Runner]:
        """Opens the runner, and closes it on exit.

        Args:
            check_home: check the owner of the state folder now rather than on first use.

        Raises:
            StateError: the state folder belongs to another user, or others may write to it.
        """
        if check_home:
            paths.check_user_home()
        threading.excepthook = _report_thread_error
        with torchx_runner.get_runner(SESSION) as runner:
            runner.load_config = lambda: self.config
            runner.report_completed = cache(_print_completed)  # once, though a command may resolve it again
            runner.holds_workspaces = False
            yield runner


def _print_completed(text: str, handle: str) -> None:
    note(f"`{text}` means {handle}")


def passed_over(path: Path, why: str) -> str:
    """Returns a line about an ignored configuration file, with the command to trust it."""
    name = config.shown_path(path)
    if path.exists() and not path.is_file():  # trust does not help
        return f"{name} is not used: {why}"
    return f"{name} is not used: {why}; to use it: torchx config trust {shlex.quote(name)}"


def unused_sections(headings: Iterable[str]) -> str:
    """Returns a line about sections that have no effect."""
    return f"the configuration has sections of plugins that are not installed: {', '.join(headings)}"


def _report_thread_error(failed: ExceptHookArgs) -> None:
    """Prints the error of a thread as one line."""
    error = failed.exc_value
    if error is None or isinstance(error, SystemExit):
        return
    name = "a thread"
    if failed.thread is not None:
        name = failed.thread.name
    note(f"note: {name} has failed: {str(error).partition(chr(10))[0] or type(error).__name__}")


def _show_log(level: str) -> None:
    """Logs to stderr, printable and with secrets masked."""

    class Shown(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return shown(masking.mask_text(super().format(record)))

    handler = logging.StreamHandler()
    handler.setFormatter(Shown("torchx %(asctime)s %(levelname)-8s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def session_of(ctx: Context) -> Session:
    """Returns the session of this command line."""
    session = ctx.find_object(Session)
    if session is not None:
        return session
    return Session()
